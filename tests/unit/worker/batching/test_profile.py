"""Which batch size pays, by what was measured: never more than there is, never later than there is time, never for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching.profile import Error, LatencyProfile
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import FLAT, LINEAR

curves = st.dictionaries(st.integers(1, 64), st.floats(1e-5, 10.0), min_size=1, max_size=8)


@given(curves, st.integers(1, 100), st.floats(0, 20) | st.just(float("inf")))
@settings(STEADY, max_examples=300)
def test_the_best_size_is_there_is_in_time_and_is_cheaper_than_one_by_one(
    curve: dict[int, float], available: int, within: float
) -> None:
    profile = LatencyProfile(curve)

    best = profile.best(available, within=within)

    assert 1 <= best <= available
    if best > 1:
        assert profile.seconds(best) <= within
        assert profile.seconds(best) / best < profile.seconds(1)


@given(curves, st.integers(1, 100))
@settings(STEADY, max_examples=200)
def test_no_other_size_that_is_known_is_much_cheaper_a_row(curve: dict[int, float], available: int) -> None:
    profile = LatencyProfile(curve)

    price = profile.seconds(best := profile.best(available)) / best

    assert all(profile.seconds(size) / size >= price * 0.9 for size in {*curve, available} if size <= available)


def test_where_rows_are_free_all_that_wait_are_taken() -> None:
    assert [LatencyProfile(FLAT).best(n) for n in (1, 2, 3, 5, 16)] == [1, 2, 3, 5, 16]


def test_where_each_row_costs_the_same_none_waits_for_another() -> None:
    assert [LatencyProfile(LINEAR).best(n) for n in (1, 2, 3, 8, 100)] == [1] * 5


def test_the_size_from_which_memory_is_slow_is_not_passed() -> None:
    profile = LatencyProfile({1: 1.0, 2: 1.0, 4: 1.0, 8: 8.0})

    assert [profile.best(n) for n in (3, 4, 7, 8)] == [3, 4, 4, 4]


@pytest.mark.parametrize(("within", "best"), [(10.0, 4), (1.4, 2), (1.0, 1), (0.0, 1), (-1.0, 1)])
def test_a_deadline_makes_the_batch_smaller(within: float, best: int) -> None:
    assert LatencyProfile({1: 1.0, 2: 1.3, 4: 1.5}).best(4, within=within) == best


def test_nothing_measured_is_nothing_promised() -> None:
    profile = LatencyProfile({})

    assert (profile.seconds(7), profile.best(7), profile.measured) == (0.0, 1, {})


@pytest.mark.parametrize(("rows", "seconds"), [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (6, 5.0), (8, 6.0), (16, 12.0)])
def test_between_the_sizes_the_curve_is_straight_and_beyond_it_goes_on_by_the_row(rows: int, seconds: float) -> None:
    assert LatencyProfile({2: 2.0, 4: 4.0, 8: 6.0}).seconds(rows) == (seconds if rows >= 2 else 2.0)


def test_one_slow_run_moves_the_curve_a_little_and_many_move_it_there() -> None:
    profile = LatencyProfile({1: 1.0})

    profile.observe(1, 1000.0)
    after_one = profile.seconds(1)
    for _ in range(100):
        profile.observe(1, 2.0)

    assert after_one < 3.0 and profile.seconds(1) == pytest.approx(2.0, rel=0.01)


def test_a_size_that_was_never_seen_is_learnt_and_so_many_are_kept_and_no_more() -> None:
    profile = LatencyProfile({1: 1.0})

    for rows in range(2, 1000):
        profile.observe(rows, 0.5)

    assert profile.measured[2] == 0.5 and profile.best(2) == 2 and len(profile.measured) <= 64


def test_a_scaled_curve_is_the_same_curve_and_another_object() -> None:
    profile = LatencyProfile({1: 1.0, 4: 2.0})
    scaled = profile.scaled(3.0)

    scaled.observe(1, 9.0)

    assert scaled.measured[4] == 6.0 and profile.measured == {1: 1.0, 4: 2.0}


@given(curves, st.integers(1, 100))
@settings(STEADY, max_examples=100)
def test_the_price_of_a_row_is_at_most_that_of_a_row_alone(curve: dict[int, float], limit: int) -> None:
    profile = LatencyProfile(curve)

    assert profile.per_row(limit) <= profile.seconds(1) * (1 + 1e-9)


def test_an_error_that_is_always_the_same_is_no_spread() -> None:
    error = Error()
    for _ in range(400):
        error.observe(2.0)

    assert error.mean == pytest.approx(2.0, abs=0.01)
    assert error.margin == pytest.approx(2.0, abs=0.05)


def test_a_forecast_that_is_too_long_has_no_margin_but_its_spread() -> None:
    error = Error()
    for _ in range(400):
        error.observe(-2.0)

    assert error.margin == pytest.approx(0.0, abs=0.05)


def test_a_run_that_is_filled_up_takes_as_long_as_the_size_it_gets() -> None:
    """With the time of 17 rows for what is run as 24, a quarter of the device went to rows that nobody had asked for."""
    measured = {8: 1.9, 16: 2.9, 24: 3.9}
    steps = LatencyProfile(measured, steps=True)

    assert [steps.seconds(rows) for rows in (1, 8, 9, 17, 24, 48)] == [1.9, 1.9, 2.9, 3.9, 3.9, 7.8]
    assert [steps.best(rows) for rows in (17, 18, 23, 24)] == [16, 16, 23, 24]
    assert steps.scaled(2).seconds(17) == 7.8


@given(
    st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1), min_size=1), st.lists(st.tuples(st.integers(1, 64), st.floats(1e-3, 1)))
)
def test_what_a_row_costs_follows_the_runs(measured: dict[int, float], runs: list[tuple[int, float]]) -> None:
    """It is remembered between them, since every request asks."""
    remembered = LatencyProfile(measured)
    for rows, seconds in runs:
        remembered.per_row(64)
        remembered.observe(rows, seconds)
    assert remembered.per_row(64) == LatencyProfile(remembered.measured).per_row(64)

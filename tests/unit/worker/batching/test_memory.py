"""How many rows fit: learnt from failures, forgotten slowly, and apart for each shape."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching.memory import _BUCKETS, _PROBE_SECONDS, MemoryCeilings
from tests.unit.worker.conftest import STEADY

A, B = ((), (2,)), ((), (3,))


def test_until_something_fails_there_is_no_ceiling() -> None:
    ceilings = MemoryCeilings()

    assert ceilings.limit(A, 1000, 0.0) == 1000 and ceilings.lowest is None


def test_what_failed_is_halved_for_its_own_shape_only() -> None:
    ceilings = MemoryCeilings()

    ceilings.failed(A, 16, 0.0)

    assert (ceilings.limit(A, 1000, 1.0), ceilings.limit(A, 3, 1.0), ceilings.limit(B, 1000, 1.0)) == (8, 3, 1000)
    assert ceilings.lowest == 8


def test_failing_again_lowers_it_further_and_a_larger_failure_does_not_raise_it() -> None:
    ceilings = MemoryCeilings()
    for rows in (16, 8, 64):
        ceilings.failed(A, rows, 0.0)

    assert ceilings.limit(A, 1000, 0.0) == 4


def test_a_ceiling_is_tried_one_step_a_minute_until_all_fits_again() -> None:
    ceilings = MemoryCeilings()
    ceilings.failed(A, 8, 0.0)
    limits = []
    for minute in range(4):
        now = minute * _PROBE_SECONDS
        limits.append([ceilings.limit(A, 20, now), ceilings.limit(A, 20, now)])

    assert limits == [[4, 4], [8, 8], [16, 16], [20, 20]] and ceilings.lowest is None


def test_a_step_that_fails_goes_back_and_waits_another_minute() -> None:
    ceilings = MemoryCeilings()
    ceilings.failed(A, 8, 0.0)
    assert ceilings.limit(A, 100, _PROBE_SECONDS) == 8

    ceilings.failed(A, 8, _PROBE_SECONDS)

    assert [ceilings.limit(A, 100, _PROBE_SECONDS * x) for x in (1, 1.9, 2)] == [4, 4, 8]


def test_a_single_row_is_counted_as_hopeless_until_a_run_succeeds() -> None:
    ceilings = MemoryCeilings()
    for _ in range(3):
        ceilings.failed(A, 1, 0.0)
    assert ceilings.hopeless == 3 and ceilings.limit(A, 10, 0.0) == 10

    ceilings.succeeded()

    assert ceilings.hopeless == 0


def test_two_rows_that_failed_leave_one_and_a_run_without_rows_leaves_no_ceiling() -> None:
    ceilings = MemoryCeilings()
    for rows in (2, 0):
        ceilings.failed(A, rows, 0.0)

    assert (ceilings.limit(A, 10, 0.0), ceilings.lowest, ceilings.hopeless) == (1, 1, 1)


def test_of_endless_shapes_the_last_are_remembered() -> None:
    ceilings = MemoryCeilings()
    for width in range(_BUCKETS + 1):
        ceilings.failed(((), (width,)), 16, 0.0)

    assert [ceilings.limit(((), (width,)), 100, 0.0) for width in (0, 1, _BUCKETS)] == [100, 8, 8]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 100), st.floats(0, 200)), max_size=30))
@settings(STEADY, max_examples=150)
def test_a_limit_is_never_below_one_nor_above_what_is_wanted(script: list[tuple[bool, int, float]]) -> None:
    ceilings, now = MemoryCeilings(), 0.0
    for fails, rows, later in script:
        now += later
        limit = ceilings.limit(A, rows, now)
        assert 1 <= limit <= rows
        if fails:
            ceilings.failed(A, limit, now)

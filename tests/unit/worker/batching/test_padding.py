"""How many rows a run gets where another shape costs: stay until staying has cost as much as a change."""

from hypothesis import given
from hypothesis import strategies as st

from inference_worker.batching.padding import Padding
from inference_worker.batching.profile import LatencyProfile

SIZES = {1: 0.1, 2: 0.2, 4: 0.4, 8: 0.8}


def sizes(*rows: int, switch_seconds: float = 1.0) -> list[int]:
    """What runs of so many rows are padded to, one after the other."""
    padding = Padding(LatencyProfile(SIZES), switch_seconds)
    return [padding(each) for each in rows]


def test_the_first_run_gets_the_smallest_size_that_fits_it() -> None:
    assert [sizes(rows)[0] for rows in (1, 2, 3, 4, 5, 8)] == [1, 2, 4, 4, 8, 8]


def test_what_is_larger_than_every_warmed_size_stays_as_it_is_and_changes_nothing() -> None:
    assert sizes(4, 9, 3) == [4, 9, 4]


def test_a_run_that_needs_more_gets_more_at_once() -> None:
    assert sizes(1, 5, 2) == [1, 8, 8]


def test_it_stays_until_the_rows_that_nobody_asked_for_have_cost_a_change() -> None:
    # Each run of one row on a size of four wastes 0.3 s.
    assert sizes(4, 1, 1, 1, 1, 1) == [4, 4, 4, 4, 1, 1]
    assert sizes(4, 1, 1, switch_seconds=0.6) == [4, 4, 1]


def test_a_run_that_fits_wastes_nothing_and_forgets_nothing() -> None:
    assert sizes(4, 1, 1, 1, 4, 1) == [4, 4, 4, 4, 4, 1]


def test_after_a_change_counting_begins_anew() -> None:
    assert sizes(4, 1, 1, 1, 8, 4, 4, 4) == [4, 4, 4, 4, 8, 8, 8, 4]


@given(st.lists(st.integers(1, 12), max_size=40), st.floats(0.0, 5.0))
def test_no_run_gets_fewer_rows_than_it_has(rows: list[int], switch_seconds: float) -> None:
    padded = sizes(*rows, switch_seconds=switch_seconds)

    assert all(size >= each for size, each in zip(padded, rows, strict=True))

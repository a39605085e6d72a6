"""Statistics of rounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.plane.figures import overlaps, quantile, spread, turns

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1)


@given(numbers, st.floats(0.0, 1.0))
def test_a_quantile_is_a_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) <= share * len(values) + 1e-6


def test_quantiles_of_a_hundred() -> None:
    values = [float(n) for n in range(1, 101)]

    assert [quantile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]


def test_nothing_has_no_figures() -> None:
    for figure in (lambda: quantile([], 0.5), lambda: spread([])):
        with pytest.raises(ValueError, match="no values"):
            figure()


def test_a_spread_is_median_and_range() -> None:
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_overlaps_are_starts_while_something_lasts() -> None:
    assert overlaps([(0, 1), (1, 2), (5, 6)]) == 0
    assert overlaps([(0, 10), (1, 2), (3, 4)]) == 2
    assert overlaps([(3, 4), (0, 3.5)]) == 1


def test_sides_take_turns_in_both_directions() -> None:
    assert turns(3, "AB") == ["A", "B", "B", "A", "A", "B"]

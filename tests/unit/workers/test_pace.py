"""What a batch's pace says of its end: little at first, and more the longer it is seen."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.workers.pace import _SURE, _WINDOW_SECONDS, Pace
from tests.builders import NOW

COUNTS = st.integers(1, 10**6)
SECONDS = st.floats(_WINDOW_SECONDS, 10**5)


def until(pace: Pace) -> float:
    assert pace.soonest_end is not None
    return (pace.soonest_end - NOW).total_seconds()


@given(done=COUNTS, left=COUNTS, seconds=st.floats(0.1, _WINDOW_SECONDS, exclude_max=True))
def test_before_the_first_window_is_over_nothing_is_certain(done: int, left: int, seconds: float) -> None:
    assert Pace(done, left, seconds, NOW).soonest_end is None


@given(done=COUNTS, left=COUNTS, seconds=SECONDS)
def test_the_soonest_end_is_before_the_expected_one_and_after_what_was_heard(done: int, left: int, seconds: float) -> None:
    pace = Pace(done, left, seconds, NOW)

    assert pace.soonest_end is not None
    assert NOW <= pace.soonest_end <= pace.expected_end


@given(done=st.integers(1, 1000), left=st.integers(1, 1000), seconds=st.floats(_WINDOW_SECONDS, 1000), longer=st.integers(2, 9))
def test_the_same_pace_for_longer_is_more_certain(done: int, left: int, seconds: float, longer: int) -> None:
    short, long = Pace(done, left, seconds, NOW), Pace(longer * done, left, longer * seconds, NOW)

    assert long.expected_end - short.expected_end <= timedelta(microseconds=1)
    assert until(long) >= until(short)


@pytest.mark.parametrize(("windows", "times"), [(1, 1 + _SURE), (100, 1 + _SURE / 10)])
def test_the_doubt_shrinks_with_the_root_of_what_was_seen(windows: int, times: float) -> None:
    pace = Pace(windows, 60, windows * _WINDOW_SECONDS, NOW)

    assert until(pace) * times == pytest.approx(60 * _WINDOW_SECONDS)

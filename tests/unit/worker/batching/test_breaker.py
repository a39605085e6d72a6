"""The circuit breaker: what opens it, who may try again, and whose word counts."""

from __future__ import annotations

import pytest

from inference_worker.batching.breaker import Breaker, BreakerLimits, BreakerState

LIMITS = BreakerLimits(faults=3, first_seconds=1.0, longest_seconds=5.0)
CLOSED, HALF_OPEN, OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN


def an_open_one(at: float = 0.0) -> Breaker:
    breaker = Breaker(LIMITS)
    assert [breaker.failed(breaker.epoch, at) for _ in range(3)] == [False, False, True]
    return breaker


def a_half_open_one() -> Breaker:
    """With its canary on the way."""
    breaker = an_open_one()
    assert breaker.refuses(1.0) is None
    return breaker


def test_a_closed_one_lets_everybody_in() -> None:
    breaker = Breaker(LIMITS)

    assert [breaker.refuses(float(now)) for now in range(5)] == [None] * 5 and breaker.state is CLOSED


def test_faults_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    breaker = Breaker(LIMITS)
    for _ in range(10):
        assert not breaker.failed(breaker.epoch, 0.0)
        assert not breaker.failed(breaker.epoch, 0.0)
        breaker.succeeded(breaker.epoch)

    assert breaker.state is CLOSED
    assert an_open_one().state is OPEN


@pytest.mark.parametrize(("now", "seconds"), [(0.0, 1.0), (0.6, 1.0)])
def test_an_open_one_refuses_and_says_when_to_come_back(now: float, seconds: float) -> None:
    breaker = an_open_one()

    assert breaker.refuses(now) == seconds and breaker.state is OPEN


def test_when_its_time_is_up_one_canary_goes_and_all_others_wait_for_it() -> None:
    breaker = an_open_one()

    assert breaker.refuses(1.0) is None and breaker.state is HALF_OPEN
    assert [breaker.refuses(9.0) is None for _ in range(3)] == [False] * 3


def test_a_canary_that_comes_back_closes_it() -> None:
    breaker = a_half_open_one()

    breaker.succeeded(breaker.epoch)

    assert breaker.state is CLOSED and breaker.refuses(1.0) is None


def test_a_canary_that_fails_opens_it_at_once_for_twice_as_long_up_to_a_limit() -> None:
    breaker, now, waits = an_open_one(), 0.0, []
    for _ in range(5):
        wait = breaker.refuses(now)
        assert wait is not None
        waits.append(wait)
        now += wait
        assert breaker.refuses(now) is None
        assert breaker.failed(breaker.epoch, now)

    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_after_it_has_closed_it_begins_with_the_first_wait_again_and_counts_from_none() -> None:
    breaker = a_half_open_one()
    breaker.failed(breaker.epoch, 1.0)
    assert breaker.refuses(3.0) is None
    breaker.succeeded(breaker.epoch)

    assert [breaker.failed(breaker.epoch, 3.0) for _ in range(3)] == [False, False, True]
    assert breaker.refuses(3.0) == 1.0


def test_a_canary_that_says_nothing_makes_room_for_another() -> None:
    breaker = a_half_open_one()

    breaker.undecided(breaker.epoch)

    assert breaker.state is HALF_OPEN
    assert breaker.refuses(1.0) is None and breaker.refuses(1.0) is not None


def test_the_word_of_a_run_that_was_begun_before_does_not_count() -> None:
    breaker = Breaker(LIMITS)
    before = breaker.epoch
    for _ in range(3):
        breaker.failed(before, 0.0)
    assert breaker.state is OPEN

    breaker.succeeded(before)
    assert breaker.state is OPEN
    assert breaker.refuses(1.0) is None
    assert not breaker.failed(before, 1.0)
    breaker.succeeded(before)
    breaker.undecided(before)

    assert breaker.state is HALF_OPEN and breaker.refuses(1.0) is not None


def test_a_late_fault_does_not_count_for_the_next_opening() -> None:
    breaker = a_half_open_one()
    before = breaker.epoch
    breaker.succeeded(before)

    assert [breaker.failed(before, 2.0) for _ in range(5)] == [False] * 5 and breaker.state is CLOSED


def test_the_states_have_the_numbers_that_the_metric_promises() -> None:
    assert {state.name: int(state) for state in BreakerState} == {"CLOSED": 0, "HALF_OPEN": 1, "OPEN": 2}

"""The control law, step by step: what it asks for, what it does not, and the HPA's arithmetic."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from inference_operator.autoscaling.recommender import Bounds, Observation, recommend, recommended_milliseconds
from inference_operator.state.load import Load, Recommendation, Why, Workers
from tests.builders import a_load

WINDOW = 15.0
LEARNED = Recommendation(2, Why.HELD, utilisation=0.6, learned=True, ready=2)


def bounds(asked: int = 2, **more: Any) -> Bounds:
    return Bounds(**{"target_seconds": 0.1, "minimum": 1, "maximum": 10, "asked": asked, **more})


def seen(p95: float | None, *, ready: int = 2, time: float = 100.0, recent: Load | None = None, **more: Any) -> Observation:
    steady = a_load(p95, **more)
    return Observation(time, Workers(ready, ready), steady, recent if recent is not None else steady)


def step(state: Recommendation | None, what: Observation, given_bounds: Bounds | None = None) -> Recommendation:
    return recommend(state, what, given_bounds or bounds(), window_seconds=WINDOW)


def test_load_asks_for_as_many_as_the_utilisation_allows() -> None:
    found = step(LEARNED, seen(0.08, busy=1.9, count=10_000))

    # 1.9 workers' worth, less what chance may have done, at no more than 0.6 each.
    assert (found.desired, found.why) == (4, Why.LOAD)


def test_few_requests_are_no_proof() -> None:
    assert step(LEARNED, seen(0.08, busy=1.25, count=10_000)).desired == 3
    assert step(LEARNED, seen(0.08, busy=1.25, count=12)).desired == 2


def test_what_piles_up_is_asked_for_at_once() -> None:
    assert step(LEARNED, seen(0.3, busy=2.0, demand=4.0, count=10_000)).desired == 7


def test_no_requests_in_a_whole_window_are_the_minimum() -> None:
    assert step(LEARNED, seen(None, busy=0.0)) == replace(LEARNED, desired=1, why=Why.IDLE, breach_since=None)
    assert step(LEARNED, seen(None, busy=0.0, seconds=5.0)).desired == 2


def test_one_request_that_still_runs_is_no_idleness() -> None:
    waiting = Observation(100.0, Workers(2, 2, queued=3), a_load(None, busy=0.0), a_load(None, busy=0.0))

    assert step(LEARNED, waiting).why is not Why.IDLE


@pytest.mark.parametrize(
    "workers", [Workers(), Workers(ready=2), Workers(ready=2, unreachable=2), Workers(ready=2, left_out=2)], ids=str
)
def test_what_is_not_known_moves_nothing(workers: Workers) -> None:
    blind = Observation(100.0, workers, a_load(9.0, busy=9.0), a_load(9.0, busy=9.0))

    assert (step(LEARNED, blind, bounds(5)).desired, step(None, blind, bounds(5)).desired) == (5, 5)


def breach(
    state: Recommendation, lasts: int, *, p95: float = 0.15, given_bounds: Bounds | None = None, **more: Any
) -> Recommendation:
    """As many seconds over the target, with a load that two workers should bear."""
    for second in range(lasts + 1):
        given = {"busy": 1.0, "count": 1000, **more}
        state = step(state, seen(p95, time=100.0 + second, **given), given_bounds)
    return state


def test_a_breach_that_the_load_does_not_explain_has_to_last() -> None:
    # What is learned from a breach would ask for more by itself; here nothing may be learned.
    assert breach(LEARNED, 5, seconds=7.0).desired == 2
    after = breach(LEARNED, 9, seconds=7.0)

    assert (after.desired, after.why) == (3, Why.BREACH)


def test_a_breach_asks_for_twice_as_many_at_most() -> None:
    assert breach(LEARNED, 9, p95=50.0, seconds=7.0).desired == 4


def test_a_breach_that_passes_by_itself_asks_for_nothing() -> None:
    """The window still remembers what is over, or the queue of before is being worked off."""
    newest_are_well = a_load(0.05, busy=1.0, count=300, seconds=5.0)

    assert breach(LEARNED, 20, seconds=7.0, recent=newest_are_well).desired == 2
    assert breach(LEARNED, 20, seconds=7.0, demand=0.9).desired == 2
    # Few newest requests are no proof that it has passed.
    assert breach(LEARNED, 20, seconds=7.0, recent=a_load(0.05, busy=1.0, count=19, seconds=5.0)).desired == 3


@pytest.mark.parametrize(("queued", "desired"), [(0, 2), (4, 2), (104, 3), (504, 6)])
def test_a_queue_beyond_what_the_target_allows_is_to_be_worked_off_in_ten_seconds(queued: int, desired: int) -> None:
    # Requests of 50 ms: two workers may have four of them waiting for 0.1 s. A hundred more are half a worker's ten seconds.
    load = a_load(0.09, busy=1.0, count=10_000, requests_per_second=20.0)

    assert step(LEARNED, Observation(100.0, Workers(2, 2, queued=queued), load, load)).desired == desired


def test_long_requests_may_wait_as_long_as_their_target_allows() -> None:
    load = a_load(80.0, busy=1.9, count=10_000, requests_per_second=0.05, floor=38.0)
    queue = Observation(100.0, Workers(2, 2, queued=4), load, load)

    assert step(replace(LEARNED, utilisation=0.95), queue, bounds(target_seconds=120.0)).desired == 2


def test_a_queue_shorter_than_the_target_allows_takes_nothing_off_the_load() -> None:
    load = a_load(8.0, busy=1.25, count=10_000)
    no_queue = Observation(100.0, Workers(2, 2), load, load)

    # Two workers may have twenty seconds of work waiting for a target of ten.
    assert step(LEARNED, no_queue, bounds(target_seconds=10.0)).desired == 3


def test_a_breach_within_the_dead_band_is_none() -> None:
    assert breach(LEARNED, 30, p95=0.109, seconds=7.0).desired == 2


def test_a_breach_of_few_requests_is_none() -> None:
    assert breach(LEARNED, 30, p95=9.0, count=19, seconds=7.0, busy=0.5).desired == 2


def test_workers_that_warm_up_count_against_a_breach() -> None:
    assert breach(LEARNED, 30, p95=9.0, seconds=7.0, given_bounds=bounds(3)).desired == 3


def test_a_breach_begins_anew_when_the_workers_have_become_more() -> None:
    state = breach(LEARNED, 9, seconds=7.0)
    more = step(state, seen(0.15, ready=3, busy=1.0, count=1000, time=111.0, seconds=7.0), bounds(3))

    assert more.desired == 3


def test_nothing_is_given_up_in_a_breach() -> None:
    assert breach(replace(LEARNED, ready=8), 3, ready=8, busy=3.0, given_bounds=bounds(8)).desired == 8


def test_less_load_gives_workers_up_with_a_distance() -> None:
    def down(busy: float) -> int:
        return step(replace(LEARNED, ready=5), seen(0.02, ready=5, busy=busy, count=10_000, floor=0.019), bounds(5)).desired

    # At 0.6 four workers bear 2.4; they are kept until that is well undercut.
    assert (down(2.3), down(1.9), down(0.1)) == (5, 4, 1)


@pytest.mark.parametrize(("count", "desired"), [(10_000, 3), (100, 3), (25, 4)])
def test_fewer_newest_requests_leave_more_to_chance_before_a_worker_goes(count: int, desired: int) -> None:
    load = a_load(0.02, busy=1.3, count=10_000, floor=0.019)
    newest = a_load(0.02, busy=1.3, count=count, seconds=5.0)
    what = Observation(100.0, Workers(5, 5), load, newest)

    # Each of three bears half a worker's worth; of a hundred requests a tenth more may be chance, of 25 a fifth.
    assert step(replace(LEARNED, ready=5), what, bounds(5)).desired == desired


def test_nothing_is_given_up_before_a_window_is_whole() -> None:
    assert step(replace(LEARNED, ready=5), seen(0.02, ready=5, busy=0.1, seconds=13.0), bounds(5)).desired == 5


def test_a_service_is_not_scaled_up_because_of_a_batch_in_its_slack() -> None:
    state = LEARNED
    for time in (100.0, 105.0, 110.0, 120.0):
        slow = seen(0.3, busy=0.5, time=time)
        state = step(state, replace(slow, workers=replace(slow.workers, lending=1), lent=True))

    assert state == LEARNED
    assert step(LEARNED, seen(0.3, busy=1.0, time=100.0)).breach_since == 100.0


def test_the_load_asks_for_more_workers_beside_a_batch_too() -> None:
    busy = seen(0.08, busy=1.9, count=10_000)

    assert step(LEARNED, replace(busy, workers=replace(busy.workers, lending=2), lent=True)).desired == 4


def test_utilisation_is_learned_from_what_is_seen() -> None:
    good, bad = (step(LEARNED, seen(p95, busy=1.0, count=1000, floor=0.02)) for p95 in (0.03, 0.3))

    assert good.utilisation > 0.6 > bad.utilisation
    # At once where nothing was learned, later by small steps.
    first = step(replace(LEARNED, learned=False), seen(0.3, busy=1.0, count=1000, floor=0.02))
    assert first.utilisation < bad.utilisation


def test_nothing_is_learned_from_windows_that_can_not_tell() -> None:
    for what in (
        seen(0.3, busy=1.0, count=19),
        seen(0.3, busy=1.0, seconds=7.0),
        seen(0.3, busy=0.3),
        seen(0.3, busy=1.9),
        seen(0.3, busy=1.0, demand=1.3),
        seen(0.3, busy=1.0, floor=0.09),
    ):
        assert step(LEARNED, what).utilisation == 0.6


def test_nothing_is_learned_from_a_queue_that_is_gone() -> None:
    """The window is slow by what waited in it; the newest requests are not, with the same utilisation."""
    newest = a_load(0.03, busy=1.0, count=300, seconds=5.0)

    assert step(LEARNED, seen(0.3, busy=1.0, count=1000, floor=0.02, recent=newest)).utilisation == 0.6
    assert step(replace(LEARNED, learned=False), seen(0.3, busy=1.0, count=1000, floor=0.02, recent=newest)).learned is False


def test_idle_workers_can_acquit_and_not_convict() -> None:
    """What a breach taught is unlearned where the workers have become many; a spread of the requests themselves teaches nothing."""
    taught = replace(LEARNED, utilisation=0.2, ready=8)

    assert step(taught, seen(0.03, ready=8, busy=0.8, count=1000, floor=0.02), bounds(8)).utilisation > 0.2
    assert step(taught, seen(0.09, ready=8, busy=0.8, count=1000, floor=0.001), bounds(8)).utilisation == 0.2


def test_a_target_below_the_models_own_latency_is_told_and_not_chased() -> None:
    state = breach(replace(LEARNED, ready=4), 9, ready=4, p95=0.3, busy=0.8, given_bounds=bounds(4))
    assert state.below_floor and state.why is Why.FLOOR

    # 0.8 workers' worth at the utilisation for the load alone.
    assert state.desired == 2
    assert step(state, seen(0.05, ready=4, busy=0.8, count=1000), bounds(4)).below_floor is False


def test_a_window_without_requests_does_not_lift_the_verdict() -> None:
    state = breach(replace(LEARNED, ready=4), 9, ready=4, p95=0.3, busy=0.8, given_bounds=bounds(4))

    assert step(state, seen(0.3, ready=2, busy=0.8, count=5), bounds(2)).below_floor


def test_what_there_is_no_place_for_is_asked_for_once() -> None:
    want = seen(0.3, busy=2.0, demand=5.0, count=10_000)
    found = step(LEARNED, want, bounds(3, capacity=2))

    assert (found.desired, found.why) == (3, Why.CAPACITY)
    assert step(LEARNED, want, bounds(2)).desired == 9
    # Where even the minimum has no place, the minimum stays what is asked for.
    assert step(LEARNED, want, bounds(5, minimum=5, capacity=2)).desired == 5


@pytest.mark.parametrize("asked", [1, 3, 9])
def test_a_new_process_goes_on_from_the_replicas_it_finds(asked: int) -> None:
    """Whatever was learned before: a load that the workers bear moves nothing at once."""
    for busy in (0.3, 0.6, 0.9):
        young = seen(0.08, ready=asked, busy=busy * asked, count=10_000, seconds=1.0)
        assert step(None, young, bounds(asked)).desired == asked


def test_a_new_process_gives_up_one_worker_at_a_time_until_it_has_learned() -> None:
    """Idle workers whose latencies are spread teach nothing: how few would do is not known."""
    spread = seen(0.09, ready=5, busy=0.5, count=1000, floor=0.001)

    assert step(None, spread, bounds(5)).desired == 4
    assert step(replace(LEARNED, ready=5), spread, bounds(5)).desired == 2


LOADS = st.builds(
    a_load,
    st.one_of(st.none(), st.floats(1e-6, 3600)),
    count=st.integers(1, 10**6),
    seconds=st.floats(0, 20),
    busy=st.floats(0, 100),
    demand=st.floats(0, 400),
)


@given(
    st.lists(st.tuples(LOADS, LOADS, st.integers(0, 20), st.integers(0, 30)), min_size=1, max_size=8),
    st.integers(1, 5),
    st.integers(0, 9),
)
def test_never_outside_the_bounds(rounds: list[tuple[Load, Load, int, int]], minimum: int, room: int) -> None:
    state = None
    for number, (steady, recent, ready, asked) in enumerate(rounds):
        given_bounds = bounds(asked, minimum=minimum, maximum=minimum + room)
        state = step(state, Observation(float(number), Workers(ready, ready), steady, recent), given_bounds)
        assert minimum <= state.desired <= minimum + room
        assert 0.1 < state.utilisation < 0.9


# The HPA's own arithmetic (kubernetes podautoscaler, replica_calculator: GetObjectMetricReplicas).


def hpa(milli: int, *, ready: int, asked: int, target_milliseconds: int) -> int:
    ratio = milli / (target_milliseconds * 1000)
    return asked if abs(1.0 - ratio) <= 0.1 else math.ceil(ratio * ready)


@given(desired=st.integers(1, 500), ready=st.integers(1, 500), asked=st.integers(1, 500), target=st.integers(1, 600_000))
def test_the_hpa_comes_to_the_number_that_is_wanted(desired: int, ready: int, asked: int, target: int) -> None:
    assume(target * 1000 > 4 * ready)
    milli = recommended_milliseconds(desired, ready=ready, asked=asked, target_milliseconds=target)
    found = hpa(milli, ready=ready, asked=asked, target_milliseconds=target)

    if desired in (asked, ready):
        # The HPA can't be told of a number that is ready already: it waits until the workers are as many as were asked for.
        assert found == asked
    elif abs(desired / ready - 1) > 0.1 + 1e-6:
        assert found == desired
    elif desired > asked:
        assert desired <= found <= math.floor(ready * 1.1) + 1
    else:
        assert found in (asked, desired)


def test_without_ready_workers_the_hpa_is_told_to_wait() -> None:
    assert recommended_milliseconds(5, ready=0, asked=2, target_milliseconds=100) == 100_000


def test_a_rise_that_the_hpa_would_swallow_is_made_just_large_enough() -> None:
    milli = recommended_milliseconds(21, ready=20, asked=20, target_milliseconds=100)

    assert math.ceil(milli / 100_000 * 20) == 23

"""The control law with a queue and the HPA around it, in virtual time: it settles, stays, and comes down again."""

import random
from collections.abc import Callable

import pytest

from tests.simulation.queueing import Service, reversals, share_over

STEP = 200.0
Draw = Callable[[random.Random], float]


def even(seconds: float) -> Draw:
    return lambda _: seconds


def varied(seconds: float) -> Draw:
    return lambda dice: dice.expovariate(1 / seconds)


def step(before: float, after: float) -> Callable[[float], float]:
    return lambda time: before if time < STEP else after


SERVICES = {
    "many quick requests": (step(40, 160), even(0.01), 0.05),
    "requests of 50 ms": (step(8, 40), even(0.05), 0.25),
    "requests of varied length": (step(8, 30), varied(0.05), 0.4),
    "few slow requests": (step(0.6, 4), even(0.5), 2.0),
    "a worker's worth and a third": (step(12, 34), even(1 / 26), 0.3),
}


@pytest.mark.parametrize("period", [5.0, 15.0])
@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_step_it_settles_within_the_target_and_stays(name: str, period: float, seed: int) -> None:
    rate, service, target = SERVICES[name]
    moments = Service(rate, service, target, seed=seed, hpa_seconds=period).run(STEP + 400)

    assert share_over(moments, target, since=STEP + 150) < 0.06
    # Up, and at most once back from an overshoot.
    assert reversals(moments, since=STEP) <= 1
    assert moments[-1].asked < 20


@pytest.mark.parametrize("begins", range(5))
def test_the_queue_of_the_first_worker_is_not_taken_for_a_lack_of_workers(begins: int) -> None:
    """Whenever in the HPA's period the load steps up: what is asked for is enough, stays, and is not twice as many."""
    rate, service, target = SERVICES["a worker's worth and a third"]
    moments = Service(lambda time: rate(time - 3 * begins), service, target, seed=begins).run(STEP + 400)

    assert max(m.asked for m in moments) <= 4
    assert reversals(moments, since=STEP) <= 1
    assert share_over(moments, target, since=STEP + 80) < 0.06


@pytest.mark.parametrize("after", [8.0, 0.0])
def test_less_load_comes_down_without_going_up_again(after: float) -> None:
    moments = Service(step(60, after), even(0.05), 0.25, asked=6).run(STEP + 300)

    # Eight a second of 50 ms keep one worker busy for less than half of the time.
    assert moments[-1].asked == 1
    assert reversals(moments, since=STEP) == 0
    assert share_over(moments, 0.25, since=STEP) == 0


def test_a_target_below_the_service_time_does_not_run_to_the_maximum() -> None:
    moments = Service(step(5, 20), even(0.1), 0.05).run(STEP + 400)

    assert max(m.asked for m in moments) <= 8
    assert moments[-1].asked <= 5
    assert reversals(moments, since=STEP) <= 1


def test_without_places_it_asks_for_one_more_and_no_more() -> None:
    moments = Service(step(8, 120), even(0.05), 0.25, capacity=3).run(STEP + 200)

    # What was asked for before it was known is given back after the HPA's own delay.
    assert {m.asked for m in moments if m.time > STEP + 120} == {4}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_restart_of_the_operator_moves_nothing(seed: int) -> None:
    undisturbed = Service(step(8, 40), varied(0.05), 0.4, seed=seed).run(STEP + 400)
    restarted = Service(step(8, 40), varied(0.05), 0.4, seed=seed, restarts=(STEP + 250,)).run(STEP + 400)
    at = int(STEP + 250)

    moved = {m.asked for m in restarted[at - 5 : at + 60]}
    assert len(moved) <= len({m.asked for m in undisturbed[at - 5 : at + 60]}) + 1
    assert max(moved) - min(moved) <= 2


@pytest.mark.parametrize("every", [37, 97])
@pytest.mark.parametrize("name", SERVICES)
def test_restarts_under_load_neither_give_up_what_is_needed_nor_ask_for_far_more(name: str, every: int) -> None:
    """Each forgets what was learned; the first comes in the middle of the breach."""
    rate, service, target = SERVICES[name]
    undisturbed = Service(rate, service, target).run(STEP + 400)
    restarted = Service(rate, service, target, restarts=tuple(range(int(STEP) + 10, int(STEP) + 400, every))).run(STEP + 400)

    settled = [m.asked for m in undisturbed if m.time > STEP + 100]
    asked = [m.asked for m in restarted if m.time > STEP + 100]
    assert min(asked) >= min(settled) - 1
    assert max(asked) <= 2 * max(settled)
    assert share_over(restarted, target, since=STEP + 100) < 0.06
    assert reversals(restarted, since=STEP) <= 1


def test_two_runs_are_the_same() -> None:
    one, other = (Service(step(8, 40), varied(0.05), 0.4, seed=4).run(150) for _ in range(2))

    assert one == other

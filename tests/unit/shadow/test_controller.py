"""A learned policy beside the passes: what is counted, and that nothing it does changes an answer."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.observability import metrics
from inference_operator.scheduling.schedule import Schedule
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest
from inference_operator.shadow.comparison import MOST, Verdict, compare, shown, vetoed
from inference_operator.shadow.controller import BUDGET_SECONDS, Shadow
from inference_operator.state.request import Request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools
from tests.builders import NOW, SETTINGS, TOKENS, a_node, a_request, an_option, no_room, placed_on

NODES = (a_node("cpu-1", cpu="1"), a_node("gpu-1", cpu="1", gpu=1))
OPTIONS = (an_option("gpu", seconds=12, gpu=1), an_option("cpu", seconds=40))


@dataclass
class Given:
    """A policy that scores by a test's rule."""

    rule: Callable[[np.ndarray], list[float]]
    threshold: float = 0.5
    seen: list[np.ndarray] = field(default_factory=list)

    def scores(self, rows: np.ndarray) -> list[float]:
        self.seen.append(rows)
        return self.rule(rows)


def first_held(rows: np.ndarray) -> list[float]:
    return [0.1, *[0.9] * (len(rows) - 1)]


def always(score: float) -> Given:
    return Given(lambda rows: [score] * len(rows))


def at_once(do: Callable[[], None]) -> None:
    do()


@dataclass
class Watch:
    """Time that passes at each look at it."""

    step: float = 0.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def counted() -> Callable[[], Counter[str]]:
    """What was counted since."""
    before = _counts()
    return lambda: _counts() - before


def _counts() -> Counter[str]:
    return Counter({outcome.value: int(metrics.policy_decisions_total.labels(outcome.value)._value.get()) for outcome in Verdict})


def fleet(*requests: PlacementRequest) -> Fleet:
    return Fleet(NODES, (), requests)


def a_batch(name: str, deadline_in: float) -> PlacementRequest:
    return a_request(name, *OPTIONS, deadline_in=deadline_in)


def passed(of: Fleet, policy: Given, clock: Callable[[], float] | None = None) -> Schedule:
    decisions = schedule(of, SETTINGS.cost, NOW)
    Shadow(policy, at_once, clock or Watch()).watch(of, decisions, NOW)
    return decisions


CROWD = [a_batch(f"n{number}", 100 + number) for number in range(4)]


def test_what_the_policy_would_do_as_well_agrees(counted: Callable[[], Counter[str]]) -> None:
    passed(fleet(*CROWD), always(0.9))

    assert counted() == {"agrees": 4}


def test_what_it_would_hold_back_leaves_its_place_to_the_next(counted: Callable[[], Counter[str]]) -> None:
    decisions = passed(fleet(*CROWD), Given(first_held))

    assert [bool(decisions[placement_request.key].assignments) for placement_request in CROWD] == [True, True, False, False]
    assert counted() == {"would_hold": 1, "would_start": 1, "agrees": 2}


@pytest.mark.parametrize(("deadline_in", "outcome"), [(100, Verdict.WOULD_START), (20, Verdict.AGREES)])
def test_it_starts_nothing_that_would_be_late_there(deadline_in: float, outcome: Verdict) -> None:
    held, waits = a_batch("held", 90), a_batch("waits", deadline_in)
    decisions = {held.key: placed_on(held, "cpu-1"), waits.key: no_room(waits)}

    assert compare((held, waits), decisions, (True, False), NOW) == (Verdict.WOULD_HOLD, outcome)


def test_jobs_that_have_a_place_by_now_have_come_lately_too() -> None:
    policy = always(0.9)
    shadow = Shadow(policy, at_once, Watch())
    for requests, later in ((CROWD[:2], 0), (CROWD[2:], 10), (CROWD[3:], 55)):
        shadow.watch(fleet(*requests), {}, NOW + timedelta(seconds=later))

    assert [round(float(np.exp(rows[0, -1]))) - 1 for rows in policy.seen] == [2, 4, 0]


@pytest.mark.parametrize("requests", [CROWD[:2], []], ids=["room for all", "nobody"])
def test_without_contention_nothing_is_held_back(requests: list[PlacementRequest], counted: Callable[[], Counter[str]]) -> None:
    passed(fleet(*requests), Given(first_held))

    assert counted() == ({"agrees": len(requests)} if requests else {})


def test_all_are_never_held_back(counted: Callable[[], Counter[str]]) -> None:
    passed(fleet(*CROWD), always(0.1))

    assert counted() == {"agrees": 4}


def test_it_is_shown_the_first_in_rank_of_what_it_knows() -> None:
    policy = always(0.9)
    other = [a_request("service", *OPTIONS), a_request("cpu-only", OPTIONS[1], deadline_in=50)]
    passed(fleet(*other, *(a_batch(f"n{number}", 500 - number) for number in range(MOST + 20))), policy)

    (rows,) = policy.seen
    assert len(rows) == MOST
    assert (np.diff(rows[:, 0]) > 0).all()


def nan(rows: np.ndarray) -> list[float]:
    return [float("nan")] * len(rows)


def broken(rows: np.ndarray) -> list[float]:
    raise RuntimeError("it is broken")


def short(rows: np.ndarray) -> list[float]:
    return [0.5]


@pytest.mark.parametrize("rule", [broken, short])
def test_a_policy_that_fails_is_skipped(rule: Callable[[np.ndarray], list[float]], counted: Callable[[], Counter[str]]) -> None:
    passed(fleet(*CROWD), Given(rule))

    assert counted() == {"skipped": 4}


def test_a_policy_that_takes_too_long_is_skipped(counted: Callable[[], Counter[str]]) -> None:
    passed(fleet(*CROWD), always(0.1), Watch(step=1.1 * BUDGET_SECONDS))

    assert counted() == {"skipped": 4}


def test_a_pass_does_not_wait_for_the_last_look(counted: Callable[[], Counter[str]]) -> None:
    started, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow(rows: np.ndarray) -> list[float]:
        started.set()
        go_on.wait(10)
        return first_held(rows)

    def elsewhere(do: Callable[[], None]) -> None:
        def look() -> None:
            do()
            done.set()

        threading.Thread(target=look).start()

    shadow = Shadow(Given(slow), elsewhere, Watch())
    decisions = schedule(fleet(*CROWD), SETTINGS.cost, NOW)
    shadow.watch(fleet(*CROWD), decisions, NOW)
    assert started.wait(10)
    shadow.watch(fleet(*CROWD), decisions, NOW)
    assert counted() == {"skipped": 4}
    del decisions
    go_on.set()
    assert done.wait(10)

    # By the answers that the pass gave, whatever has become of them.
    assert counted() == {"skipped": 4, "would_hold": 1, "would_start": 1, "agrees": 2}


def test_a_look_that_took_long_is_followed_by_a_rest(counted: Callable[[], Counter[str]]) -> None:
    clock = Watch(step=1.0)
    shadow, passes = Shadow(always(0.9), at_once, clock), fleet(*CROWD)
    shadow.watch(passes, {}, NOW)
    looked, clock.step = counted(), 0.0
    shadow.watch(passes, {}, NOW)
    assert counted() - looked == {"skipped": 4}

    clock.now += 100
    shadow.watch(passes, {}, NOW)

    assert counted() - looked == {"skipped": 4, "agrees": 4}


# It has no say.

requests = st.lists(
    st.tuples(st.floats(5, 300), st.integers(0, 2), st.booleans(), st.floats(4, 100), st.floats(4, 100)), min_size=1, max_size=12
)
rules = st.sampled_from([broken, short, nan, lambda rows: [0.0] * len(rows), lambda rows: [i % 2 for i in range(len(rows))]])


@given(requests, rules)
def test_answers_are_the_same_with_and_without(
    found: list[tuple[float, int, bool, float, float]], rule: Callable[[np.ndarray], list[float]]
) -> None:
    def decided(watcher: Shadow | None) -> tuple[dict[Request, Decision], list[tuple[Request, bool]]]:
        woken: list[tuple[Request, bool]] = []

        def wake(key: Request, *, urgent: bool = False) -> None:
            woken.append((key, urgent))

        store, clock = Store(), Still()
        store.nodes = {node.name: node for node in NODES}
        loop = SchedulingLoop(store, Pools(store, SETTINGS, clock, TOKENS), SETTINGS, clock, wake, watcher)
        for number, (deadline_in, priority, firm, gpu, cpu) in enumerate(found):
            options = (an_option("gpu", seconds=gpu, gpu=1), an_option("cpu", seconds=cpu))
            placement_request = a_request(f"n{number}", *options, deadline_in=deadline_in, priority=priority, firm=firm)
            loop.want(placement_request.key, placement_request)
        loop.decide()
        return loop._decisions, woken

    assert decided(Shadow(Given(rule), at_once)) == decided(None)


class Still:
    """A clock that stands."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    def boottime(self) -> float:
        return self.monotonic()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_the_first_to_be_held_back_are_those_below_the_threshold(scores: list[float], threshold: float) -> None:
    batch = [a_batch(f"n{number}", 100 + number) for number in range(len(scores))]
    _, scene = shown(fleet(*batch), NOW, 0)
    assert scene is not None

    held = vetoed(scene, scores, threshold)

    assert not all(held)
    assert all(score < threshold for score, hold in zip(scores, held, strict=True) if hold)

"""What holds of every fleet in which work already has places: who is asked to make room, for whom, and that it comes to an end."""

import gc
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.instants import shift
from inference_operator.scheduling import filters
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.node_capacity import free_amounts
from inference_operator.scheduling.ranking import is_late
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, Option, PlacementRequest, RunningWork
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node
from inference_operator.state.request import Request, job_request
from inference_operator.state.resources import shortage, subtract
from tests.builders import NOW, a_node, a_request, a_running_work, a_tenants_pod, an_option

WEIGHTS = CostWeights()
CLASSES = {"cpu": an_option("cpu"), "gpu": an_option("gpu", gpu=1)}

# Small and full, so that room is scarce: in every third fleet somebody has to make room.
nodes = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1)), min_size=1, max_size=2).map(
    lambda found: tuple(a_node(f"node-{i}", cpu=str(cpu), gpu=gpu) for i, (cpu, gpu) in enumerate(found))
)
running = st.lists(
    st.builds(
        lambda node, class_, left, deadline, priority, movable: a_running_work(
            node=f"node-{node}", option=CLASSES[class_], left=left, deadline_in=deadline, priority=priority, movable=movable
        ),
        st.integers(0, 1),
        st.sampled_from(["cpu", "cpu", "gpu"]),
        st.integers(-5, 90) | st.integers(40, 90),
        st.none() | st.integers(-10, 100) | st.integers(100, 300),
        st.sampled_from([0, 0, 0, 5]),
        st.sampled_from([True, True, True, True, False]),
    ),
    min_size=3,
    max_size=8,
)
seconds = st.integers(3, 40)
options = st.one_of(
    seconds.map(lambda s: (an_option("cpu", seconds=s),)),
    seconds.map(lambda s: (an_option("gpu", seconds=s, gpu=1),)),
    st.tuples(seconds, seconds).map(lambda s: (an_option("cpu", seconds=max(s)), an_option("gpu", seconds=min(s), gpu=1))),
)
requests = st.lists(
    st.builds(
        lambda chosen, deadline, priority, firm, holds: replace(
            a_request("n", *chosen, deadline_in=deadline, priority=priority, firm=firm), holds=holds
        ),
        options,
        st.none() | st.integers(-10, 150) | st.integers(20, 60),
        st.sampled_from([0, 0, 5]),
        st.booleans(),
        st.sampled_from([False, False, False, False, True]),
    ),
    min_size=1,
    max_size=6,
)


def named(requests: list[PlacementRequest], running: list[RunningWork], nodes: tuple[Node, ...]) -> Fleet:
    """A fleet in which all that has a place has room there."""
    free = free_amounts(nodes, ())
    running_unit: list[RunningWork] = []
    for running_work in running:
        there = free.get(running_work.node)
        if there is not None and shortage(running_work.requirements.amounts, there) is None:
            subtract(there, running_work.requirements.amounts)
            name = f"t{len(running_unit)}"
            running_unit.append(replace(running_work, key=job_request(Key("default", name)), uid=f"uid-of-{name}"))
    wanted = tuple(
        replace(request, key=job_request(Key("default", f"n{i}")), uid=f"uid-of-n{i}") for i, request in enumerate(requests)
    )
    return Fleet(nodes, tuple(a_tenants_pod(running_work) for running_work in running_unit), wanted, tuple(running_unit))


fleets = st.builds(named, requests, running, nodes)


def decided(fleet: Fleet) -> Mapping[Request, Decision]:
    return schedule(fleet, WEIGHTS, NOW)


def preemptions(fleet: Fleet, decisions: Mapping[Request, Decision]) -> list[tuple[RunningWork, PlacementRequest]]:
    """Who makes room for whom."""
    by_key = {request.key: request for request in fleet.requests}
    found = [
        (running_work, decisions[running_work.key].preemption) for running_work in fleet.running if running_work.key in decisions
    ]
    return [(running_work, by_key[preemption.beneficiary]) for running_work, preemption in found if preemption is not None]


def left(running_work: RunningWork) -> float:
    return max((running_work.end - NOW).total_seconds(), 0.05 * (NOW - running_work.begun).total_seconds())


def there(running_work: RunningWork, request: PlacementRequest) -> list[Option]:
    """The ways in which a request could be met in running work's place."""
    return [option for option in request.options if set(option.requirements.amounts) <= set(running_work.requirements.amounts)]


def gist(decisions: Mapping[Request, Decision]) -> Mapping[Request, object]:
    """Who gets what and who makes room for whom; what those who wait are told of times and others is left out."""
    return {
        key: (
            [(a.accelerator, a.node) for a in decision.assignments],
            decision.pending.reason if decision.pending else None,
            decision.preemption.beneficiary if decision.preemption else None,
        )
        for key, decision in decisions.items()
    }


@given(fleets)
def test_room_is_made_only_for_work_that_is_then_on_time(fleet: Fleet) -> None:
    for running_work, request in preemptions(fleet, decided(fleet)):
        assert request.deadline is not None and not is_late(request, NOW)
        needed = min(option.estimate.total_seconds for option in request.options)
        assert shift(NOW, running_work.leaving_seconds + needed) <= request.deadline


@given(fleets)
def test_who_is_made_room_for_is_told_a_start_that_is_on_time(fleet: Fleet) -> None:
    decisions = decided(fleet)

    for _, request in preemptions(fleet, decisions):
        pending = decisions[request.key].pending
        assert pending is not None and pending.done is not None and request.deadline is not None
        assert pending.done <= request.deadline


@given(fleets)
def test_who_makes_room_is_on_time_afterwards_or_was_late_anyway(fleet: Fleet) -> None:
    for running_work, request in preemptions(fleet, decided(fleet)):
        if running_work.deadline is None or shift(NOW, left(running_work)) > running_work.deadline:
            continue
        assert not request.holds
        meanwhile = min(option.estimate.total_seconds for option in request.options)
        back = running_work.leaving_seconds + meanwhile + running_work.resuming_seconds + left(running_work)
        assert shift(NOW, back) <= running_work.deadline


@given(fleets)
def test_nobody_makes_room_for_a_lower_priority(fleet: Fleet) -> None:
    assert all(running_work.priority <= request.priority for running_work, request in preemptions(fleet, decided(fleet)))


@given(fleets)
def test_who_may_not_move_is_never_asked(fleet: Fleet) -> None:
    assert all(running_work.movable for running_work, _ in preemptions(fleet, decided(fleet)))


@given(fleets)
def test_a_running_work_is_answered_only_if_it_has_to_leave_and_makes_room_for_one(fleet: Fleet) -> None:
    decisions = decided(fleet)
    pairs = preemptions(fleet, decisions)

    assert set(decisions) == {request.key for request in fleet.requests} | {running_work.key for running_work, _ in pairs}
    assert all(count == 1 for count in Counter(request.key for _, request in pairs).values())
    assert all((decisions[t.key].uid, decisions[t.key].revision) == (t.uid, t.revision) for t, _ in pairs)


@given(fleets)
def test_room_is_made_where_the_work_then_fits(fleet: Fleet) -> None:
    free = free_amounts(fleet.nodes, fleet.pods)
    by_name = {node.name: node for node in fleet.nodes}

    for running_work, request in preemptions(fleet, decided(fleet)):
        fits = [
            option
            for option in request.options
            if filters.unfit(by_name[running_work.node], option.requirements) is None
            and filters.frees(running_work, free[running_work.node], option.requirements)
        ]
        assert fits


def test_who_would_free_too_little_is_not_asked() -> None:
    wide = a_request("wide", an_option("cpu", seconds=20, cpu="2"), deadline_in=40)
    small = [a_running_work(f"t{i}", option=CLASSES["cpu"]) for i in range(2)]
    fleet = Fleet((a_node(cpu="2"),), tuple(a_tenants_pod(running_work) for running_work in small), (wide,), tuple(small))

    assert not preemptions(fleet, decided(fleet))


@given(fleets)
def test_nobody_makes_room_for_what_starts_now(fleet: Fleet) -> None:
    decisions = decided(fleet)

    assert not [request for _, request in preemptions(fleet, decisions) if decisions[request.key].assignments]


@given(fleets, st.integers(0, 10))
def test_the_order_of_the_snapshot_does_not_matter(fleet: Fleet, seed: int) -> None:
    dice = random.Random(seed)
    mixed = Fleet(
        tuple(dice.sample(fleet.nodes, len(fleet.nodes))),
        tuple(dice.sample(fleet.pods, len(fleet.pods))),
        tuple(dice.sample(fleet.requests, len(fleet.requests))),
        tuple(dice.sample(fleet.running, len(fleet.running))),
    )

    assert decided(mixed) == decided(fleet)


@given(fleets)
def test_late_work_asks_nobody_to_leave(fleet: Fleet) -> None:
    late = tuple(request for request in fleet.requests if is_late(request, NOW) or request.deadline is None)

    assert not preemptions(fleet, decided(replace(fleet, requests=late)))


@given(fleets)
def test_late_work_takes_nothing_from_work_that_can_be_on_time(fleet: Fleet) -> None:
    on_time = tuple(request for request in fleet.requests if not is_late(request, NOW))
    alone, together = gist(decided(replace(fleet, requests=on_time))), gist(decided(fleet))

    assert {key: together[key] for key in alone} == alone


impossible = st.sampled_from(
    [
        a_request("impossible", an_option(cpu="1000"), priority=1000, deadline_in=60),
        a_request("impossible", an_option(node_selector={"no": "where"}), priority=1000, workers=100, deadline_in=60),
        a_request("impossible", priority=1000, deadline_in=-1, firm=True),
    ]
)


@given(fleets, impossible)
def test_work_that_fits_no_empty_node_changes_nobodys_answer(fleet: Fleet, extra: PlacementRequest) -> None:
    alone, together = decided(fleet), decided(replace(fleet, requests=(extra, *fleet.requests)))

    assert {key: decision for key, decision in together.items() if key != extra.key} == alone


@given(fleets)
def test_with_room_for_all_everything_starts_now_and_nobody_leaves(fleet: Fleet) -> None:
    roomy = replace(fleet, nodes=tuple(a_node(node.name, cpu="64", gpu=16) for node in fleet.nodes))
    decisions = decided(roomy)

    assert not preemptions(roomy, decisions)
    for request in fleet.requests:
        assert decisions[request.key].assignments or (request.firm and is_late(request, NOW))


@given(fleets)
def test_those_who_wait_have_places_in_the_queue_by_their_expected_start(fleet: Fleet) -> None:
    waiting = [a.pending for a in decided(fleet).values() if a.pending is not None and a.pending.position is not None]
    in_turn = sorted(waiting, key=lambda pending: pending.position or 0)
    starts = [pending.start for pending in in_turn if pending.start is not None]

    assert [pending.position for pending in in_turn] == list(range(1, len(in_turn) + 1))
    assert starts == sorted(starts)
    assert all(pending.start is not None for pending in in_turn[: len(starts)])
    assert all(start >= NOW for start in starts)


one_class = st.builds(
    lambda requests, running, cpu: named(requests, running, (a_node("node-0", cpu=str(cpu)),)),
    st.lists(
        st.builds(
            lambda s, deadline: a_request("n", an_option("cpu", seconds=s), deadline_in=deadline), seconds, st.integers(60, 150)
        ),
        max_size=8,
    ),
    st.lists(st.integers(5, 90).map(lambda left: a_running_work(node="node-0", left=left, movable=False)), max_size=3),
    st.integers(1, 3),
)


@given(one_class)
def test_at_no_time_is_more_expected_to_run_than_there_are_places(fleet: Fleet) -> None:
    decisions = decided(fleet)
    spans = [(NOW, running_work.end) for running_work in fleet.running]
    for request in fleet.requests:
        decision = decisions[request.key]
        if decision.assignments:
            spans.append((NOW, shift(NOW, request.options[0].estimate.cautious_seconds)))
        elif decision.pending is not None and decision.pending.start is not None and decision.pending.done is not None:
            spans.append((decision.pending.start, decision.pending.done))
    places = fleet.nodes[0].allocatable["cpu"] // 1000

    moment = timedelta(milliseconds=1)
    for start, _ in spans:
        assert sum(begin <= start and start + moment < end for begin, end in spans) <= places


# What comes of it, pass after pass, while the clock stands still.


@dataclass
class Carried:
    """A fleet whose decisions are carried out at once: places are taken, and who makes room wants a place again."""

    fleet: Fleet
    preempted: Counter[Request]

    def step(self) -> bool:
        """One pass; whether it changed anything."""
        decisions = decided(self.fleet)
        requests, running = list(self.fleet.requests), list(self.fleet.running)
        leaving = [
            running_work
            for running_work in running
            if running_work.key in decisions and decisions[running_work.key].preemption is not None
        ]
        for running_work in leaving:
            running.remove(running_work)
            requests.append(self._back(running_work))
            self.preempted[running_work.key] += 1
        for request in self.fleet.requests:
            for assignment in decisions[request.key].assignments:
                (option,) = [o for o in request.options if o.accelerator == assignment.accelerator]
                requests.remove(request)
                running.append(self._settled(request, option, assignment.node))
        changed = bool(leaving) or len(running) != len(self.fleet.running)
        self.fleet = Fleet(
            self.fleet.nodes, tuple(a_tenants_pod(running_work) for running_work in running), tuple(requests), tuple(running)
        )
        return changed

    def _back(self, running_work: RunningWork) -> PlacementRequest:
        estimate = Estimate(running_work.resuming_seconds, left(running_work), measured=True)
        accelerator = "gpu" if running_work.requirements == CLASSES["gpu"].requirements else "cpu"
        option = replace(CLASSES[accelerator], estimate=estimate)
        return replace(
            a_request(running_work.key.name, option, priority=running_work.priority),
            deadline=running_work.deadline,
            created=running_work.begun,
        )

    def _settled(self, request: PlacementRequest, option: Option, node: str) -> RunningWork:
        total = option.estimate.total_seconds
        found = a_running_work(request.key.name, node=node, option=option, left=total, begun_ago=0.0, priority=request.priority)
        return replace(found, deadline=request.deadline, movable=not request.holds)


def jobs(fleet: Fleet) -> int:
    return len(fleet.requests) + len(fleet.running)


@given(fleets)
def test_making_room_comes_to_an_end_and_nobody_is_sent_back_and_forth(fleet: Fleet) -> None:
    world = Carried(fleet, Counter())

    for _ in range(4 * jobs(fleet) + 4):
        if not world.step():
            break
    else:
        raise AssertionError("passes never come to rest")
    assert world.preempted.total() <= jobs(fleet)


@given(fleets)
def test_who_made_room_preempts_nobody_in_the_next_pass(fleet: Fleet) -> None:
    world = Carried(fleet, Counter())
    world.step()
    gone = set(world.preempted)

    assert not [
        (running_work, request) for running_work, request in preemptions(world.fleet, decided(world.fleet)) if request.key in gone
    ]


@given(fleets)
def test_a_pass_leaves_nothing_to_the_collector(fleet: Fleet) -> None:
    gc.disable()
    try:
        gc.collect(0)
        decided(fleet)
        assert gc.collect(0) == 0
    finally:
        gc.enable()

"""What holds of every fleet-wide decision, whatever the fleet."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.scheduling import cost, filters, node_capacity
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.node_capacity import free_amounts
from inference_operator.scheduling.ranking import is_late
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, Option, PendingReason, PlacementRequest
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, PodPhase, Taint
from inference_operator.state.request import Request, job_request
from inference_operator.state.resources import shortage, subtract
from tests.builders import NOW, a_node, a_request, an_option, somebodys_pod

WEIGHTS = CostWeights()

nodes = st.lists(
    st.builds(
        lambda cpu, gpu, ready, taints: {"cpu": str(cpu), "gpu": gpu, "ready": ready, "taints": taints},
        st.integers(0, 4),
        st.integers(0, 2),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([(), (), (Taint("k", "", "NoSchedule"),)]),
    ),
    max_size=4,
).map(lambda found: tuple(a_node(f"node-{i}", **facts) for i, facts in enumerate(found)))
pods = st.lists(
    st.builds(lambda node, cpu, phase: (node, str(cpu), phase), st.integers(0, 4), st.integers(1, 3), st.sampled_from(PodPhase)),
    max_size=4,
).map(lambda found: tuple(somebodys_pod(f"p{i}", node=f"node-{n}", cpu=c, phase=p) for i, (n, c, p) in enumerate(found)))
options = st.builds(
    lambda seconds, measured, cpu: an_option("cpu", seconds=seconds, measured=measured, cpu=str(cpu)),
    st.integers(3, 90),
    st.booleans(),
    st.integers(1, 2),
)
gpu_options = st.builds(
    lambda seconds, measured: an_option("gpu", seconds=seconds, measured=measured, gpu=1), st.integers(3, 90), st.booleans()
)
candidates = st.one_of(options.map(lambda o: (o,)), gpu_options.map(lambda o: (o,)), st.tuples(options, gpu_options))
requests = st.lists(
    st.builds(
        lambda chosen, workers, deadline, priority, firm: (chosen, workers, deadline, priority, firm),
        candidates,
        st.integers(1, 3),
        st.none() | st.integers(-30, 120),
        st.sampled_from([0, 0, 5]),
        st.booleans(),
    ),
    max_size=6,
).map(
    lambda found: tuple(
        a_request(f"n{i}", *chosen, workers=workers, deadline_in=deadline, priority=priority, firm=firm)
        for i, (chosen, workers, deadline, priority, firm) in enumerate(found)
    )
)
fleets = st.builds(Fleet, nodes, pods, requests)


def decided(fleet: Fleet) -> dict[Request, Decision]:
    found = schedule(fleet, WEIGHTS, NOW)
    return {key: found.explained(key) for key in found}


def what(decisions: dict[Request, Decision]) -> dict[Request, tuple[object, ...]]:
    """Who gets which places, and why not."""
    return {
        key: (
            [(a.accelerator, a.node, why.cost) for a, why in decision.explained],
            (decision.pending.reason, decision.pending.final) if decision.pending else None,
        )
        for key, decision in decisions.items()
    }


def free_after(fleet: Fleet, decisions: dict[Request, Decision]) -> dict[str, dict[str, int]]:
    """What is free once every assignment is a pod."""
    free = free_amounts(fleet.nodes, fleet.pods)
    for request in fleet.requests:
        requirements = {option.accelerator: option.requirements for option in request.options}
        for assignment in decisions[request.key].assignments:
            subtract(free[assignment.node], requirements[assignment.accelerator].amounts)
    return free


@given(fleets)
def test_no_node_is_given_more_than_it_has(fleet: Fleet) -> None:
    before, after = free_amounts(fleet.nodes, fleet.pods), free_after(fleet, decided(fleet))

    for name, free in after.items():
        for resource, amount in free.items():
            assert amount >= min(0, before[name][resource])


@given(fleets)
def test_every_place_is_fit_for_its_worker(fleet: Fleet) -> None:
    by_name = {node.name: node for node in fleet.nodes}
    decisions = decided(fleet)

    for request in fleet.requests:
        for assignment in decisions[request.key].assignments:
            (option,) = [o for o in request.options if o.accelerator == assignment.accelerator]
            assert filters.unfit(by_name[assignment.node], option.requirements) is None


@given(fleets)
def test_every_need_is_answered_and_what_is_missing_has_a_reason(fleet: Fleet) -> None:
    decisions = decided(fleet)

    assert set(decisions) == {request.key for request in fleet.requests}
    for request in fleet.requests:
        decision = decisions[request.key]
        assert (decision.uid, decision.revision) == (request.uid, request.revision)
        assert len(decision.assignments) <= request.workers
        assert (decision.pending is None) == (len(decision.assignments) == request.workers)
        assert decision.pending is None or decision.pending.message


@given(fleets, st.integers(0, 10))
def test_the_order_of_the_snapshot_does_not_matter(fleet: Fleet, seed: int) -> None:
    assert what(decided(shuffled(fleet, seed))) == what(decided(fleet))


def shuffled(fleet: Fleet, seed: int) -> Fleet:
    dice = random.Random(seed)
    return Fleet(
        tuple(dice.sample(fleet.nodes, len(fleet.nodes))),
        tuple(dice.sample(fleet.pods, len(fleet.pods))),
        tuple(dice.sample(fleet.requests, len(fleet.requests))),
    )


def test_the_order_of_the_snapshot_does_not_matter_for_alternatives_and_words() -> None:
    many = tuple(a_node(f"node-{i}") for i in range(8))
    fleet = Fleet(many, (), (a_request(),))

    assert decided(shuffled(fleet, 1)) == decided(fleet)


@given(fleets)
def test_late_work_never_displaces_work_that_can_be_on_time(fleet: Fleet) -> None:
    on_time = tuple(request for request in fleet.requests if not is_late(request, NOW))
    alone, together = decided(replace(fleet, requests=on_time)), decided(fleet)

    assert all(what(alone)[request.key] == what(together)[request.key] for request in on_time)


@given(fleets)
def test_firm_work_that_can_not_be_on_time_never_gets_a_place(fleet: Fleet) -> None:
    decisions = decided(fleet)

    for request in fleet.requests:
        if request.firm and is_late(request, NOW):
            decision = decisions[request.key]
            assert decision.assignments == ()
            assert decision.pending is not None and decision.pending.final


@given(fleets)
def test_a_lower_priority_never_takes_from_a_higher_one_that_can_be_on_time(fleet: Fleet) -> None:
    high = tuple(request for request in fleet.requests if request.priority > 0 and not is_late(request, NOW))
    alone, together = decided(replace(fleet, requests=high)), decided(fleet)

    assert all(what(alone)[request.key] == what(together)[request.key] for request in high)


impossible = st.sampled_from(
    [
        a_request("impossible", an_option(cpu="1000"), priority=1000, deadline_in=60),
        a_request("impossible", an_option(node_selector={"no": "where"}), priority=1000, workers=100),
        a_request("impossible", priority=1000, deadline_in=-1, firm=True),
    ]
)


@given(fleets, impossible)
def test_an_impossible_job_changes_nobody_elses_answer(fleet: Fleet, extra: PlacementRequest) -> None:
    alone, together = decided(fleet), decided(replace(fleet, requests=(extra, *fleet.requests)))

    assert together[extra.key].pending is not None
    assert {key: decision for key, decision in together.items() if key != extra.key} == alone


@given(fleets)
def test_nobody_waits_while_there_is_room_unless_waiting_is_cheaper(fleet: Fleet) -> None:
    decisions = decided(fleet)
    free = free_after(fleet, decisions)
    nodes_by_name = {node.name: node for node in fleet.nodes}

    for request in fleet.requests:
        decision = decisions[request.key]
        if decision.pending is None or (request.firm and is_late(request, NOW)):
            continue
        for option in request.options:
            in_vain = option.estimate.measured and not cost.in_time(option, request.deadline, NOW)
            if in_vain and not is_late(request, NOW):
                continue
            open_ = [n for n, node in nodes_by_name.items() if filters.unfit(node, option.requirements) is None]
            if any(all(free[n].get(r, 0) >= v for r, v in option.requirements.amounts) for n in open_):
                assert cost_of_waiting(request, decision.pending) <= cost_of(request, option) + 1e-6


def cost_of(request: PlacementRequest, option: Option) -> float:
    timed = request.deadline is not None and not is_late(request, NOW)
    return cost.total_cost(option, WEIGHTS, WEIGHTS.early if timed else 1.0)


def cost_of_waiting(request: PlacementRequest, pending: PendingReason) -> float:
    """What the place costs that is waited for, with the wait; endless where none is."""
    if pending.start is None or pending.done is None:
        return inf
    seconds = (pending.done - pending.start).total_seconds()
    timed = request.deadline is not None and not is_late(request, NOW)
    wait = (WEIGHTS.early if timed else 1.0) * (pending.start - NOW).total_seconds()
    return min(cost_of(request, o) for o in request.options if abs(o.estimate.cautious_seconds - seconds) < 1e-3) + wait


@given(fleets)
def test_alternatives_never_hold_the_place_taken_and_are_few(fleet: Fleet) -> None:
    for decision in decided(fleet).values():
        for assignment, why in decision.explained:
            places = [(a.accelerator, a.node) for a in why.alternatives]
            assert (assignment.accelerator, assignment.node) not in places
            assert len(places) == len(set(places)) <= 4
            assert all(a.reason for a in why.alternatives)


# Numbers that users and clusters can come up with.

KNOWN = (
    "place.py completion: an estimate beyond datetime's range raises: schedule() fails, SchedulingLoop.run ends, the operator ends"
)


@pytest.mark.parametrize("seconds", [1e12, 1e300, float("inf")])
def test_work_of_ages_is_late_and_nothing_else(seconds: float) -> None:
    age = replace(an_option(), estimate=Estimate(2.0, seconds, measured=True))
    decisions = decided(Fleet((a_node(),), (), (a_request("ages", age, deadline_in=60), a_request("other"))))

    assert decisions[job_request(Key("default", "other"))].assignments


@pytest.mark.parametrize("year", [1, 9999])
def test_deadlines_of_any_age_are_decided(year: int) -> None:
    request = replace(a_request(), deadline=datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC))

    assert decided(Fleet((a_node(),), (), (request,)))[request.key].assignments


def looks_at_nodes(monkeypatch: pytest.MonkeyPatch, requests: int) -> int:
    """How often a pass compares what is wanted with what one of twenty nodes has; twenty requests get a place."""
    looks = 0

    def counted(wanted: Sequence[tuple[str, int]], there: Mapping[str, int]) -> str | None:
        nonlocal looks
        looks += 1
        return shortage(wanted, there)

    fleet = Fleet(tuple(a_node(f"node-{i}", cpu="1") for i in range(20)), (), tuple(a_request(f"n{i:04}") for i in range(requests)))
    with monkeypatch.context() as patched:
        for module in (filters, node_capacity):
            patched.setattr(module, "shortage", counted)
        decisions = schedule(fleet, WEIGHTS, NOW)
    assert sum(bool(decision.assignments) for decision in decisions.values()) == 20
    return looks


def test_a_request_without_room_is_not_looked_at_node_by_node_again(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = looks_at_nodes(monkeypatch, 20)

    # Each node is seen empty and as it is now, and each place that is given is taken from one.
    assert 2 * 20 <= placed <= 20 * (20 + 8)
    # Those that wait have one look in common, by which they are told why.
    assert looks_at_nodes(monkeypatch, 120) <= placed + 20
    assert looks_at_nodes(monkeypatch, 1120) == looks_at_nodes(monkeypatch, 120)

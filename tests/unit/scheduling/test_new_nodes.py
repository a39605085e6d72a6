"""New nodes: who waits for one, for whom one is asked, and what that means for deadlines."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import msgspec

from inference_operator.accelerators import Provisioning, default_classes
from inference_operator.api.conditions import Reason
from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.scheduling.node_groups import node_groups
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, NodeGroup, Option, PlacementRequest, RunningWork
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node, Placeholder, Pod, PodPhase
from tests.builders import GPU, NOW, a_node, a_request, a_running_work, a_tenants_pod, an_option, somebodys_pod

CPU_ONLY = a_node("cpu-1")
GPU_NODE = a_node("gpu-1", gpu=1)
ON_GPU = an_option("gpu", seconds=12, gpu=1)
ON_CPU = an_option("cpu", seconds=300)
GROUP = NodeGroup(a_node("new-gpu", gpu=1), seconds=95.0, most=2)


def wants(name: str = "n", *options: Option, **more: object) -> PlacementRequest:
    made = a_request(name, *(options or (ON_GPU,)), **more)  # type: ignore[arg-type]
    return replace(made, grows=frozenset({"gpu"}))


def decided(
    *requests: PlacementRequest,
    nodes: Sequence[Node] = (CPU_ONLY,),
    pods: Sequence[Pod] = (),
    running: Sequence[RunningWork] = (),
    group: NodeGroup = GROUP,
    limits: NamespaceLimits | None = None,
) -> dict[str, Decision]:
    fleet = Fleet(tuple(nodes), tuple(pods), requests, tuple(running), node_groups={"gpu": group})
    found = schedule(fleet, CostWeights(), NOW, limits or NamespaceLimits())
    return {key.name: found[key] for key in found}


def asked(found: dict[str, Decision]) -> dict[str, tuple[str, ...]]:
    return {name: decision.new_nodes for name, decision in sorted(found.items()) if decision.new_nodes}


def a_placeholder(*, age: float, node: str | None = None, uid: str = "uid-of-n", name: str = "n-new-1") -> Pod:
    return Pod(
        key=Key("default", name),
        uid=f"uid-of-{name}",
        resource_version="1",
        node=node,
        requests={GPU: 1},
        phase=PodPhase.PENDING,
        deleting=False,
        placeholder=Placeholder(uid, "gpu"),
        created=NOW - timedelta(seconds=age),
    )


# Who asks.


def test_work_that_fits_no_node_asks_for_a_new_one_and_says_when_it_is_there() -> None:
    decision = decided(wants())["n"]

    assert decision.new_nodes == ("gpu",)
    assert decision.pending is not None
    assert decision.pending.reason is Reason.PROVISIONING
    assert "waits for a new node of class gpu, which takes some 95 s; gpu: 0/1 nodes" in decision.pending.message
    assert decision.pending.start == NOW + timedelta(seconds=95)
    assert decision.pending.done == NOW + timedelta(seconds=107)


def test_nobody_asks_where_a_node_has_room() -> None:
    decision = decided(wants(), nodes=(GPU_NODE,))["n"]

    assert (decision.assignments[0].node, decision.new_nodes) == ("gpu-1", ())


def test_what_a_new_node_could_not_take_either_asks_for_none() -> None:
    decision = decided(wants("n", an_option("gpu", gpu=2)))["n"]

    assert (decision.new_nodes, decision.pending and decision.pending.reason) == ((), Reason.NO_NODE_FITS)


def test_a_class_that_does_not_grow_is_as_it_was() -> None:
    decision = decided(replace(wants(), grows=frozenset()))["n"]

    assert (decision.new_nodes, decision.pending and decision.pending.reason) == ((), Reason.NO_NODE_FITS)


def test_work_waits_for_what_ends_before_a_node_would_be_there() -> None:
    soon = a_running_work("r", node="gpu-1", option=ON_GPU, left=30.0)
    late = a_running_work("r", node="gpu-1", option=ON_GPU, left=300.0)

    def with_(running: RunningWork) -> dict[str, Decision]:
        return decided(wants(), nodes=(GPU_NODE,), pods=(a_tenants_pod(running),), running=(running,))

    assert asked(with_(soon)) == {}
    assert asked(with_(late)) == {"n": ("gpu",)}


def test_the_first_in_order_ask_and_no_more_than_the_class_allows() -> None:
    found = decided(*(wants(name, deadline_in=seconds) for name, seconds in (("a", 400), ("b", 200), ("c", 300))))

    assert asked(found) == {"b": ("gpu",), "c": ("gpu",)}
    assert found["a"].pending is not None
    assert "of which 2 are asked for at a time" in found["a"].pending.message
    # It comes after one of them, on the same node.
    assert found["a"].pending.start == NOW + timedelta(seconds=107)


def test_a_service_asks_for_each_of_its_workers() -> None:
    found = decided(replace(wants("s", workers=3), holds=True), group=replace(GROUP, most=5))

    assert asked(found) == {"s": ("gpu", "gpu", "gpu")}


def test_a_cap_of_the_namespace_holds_for_new_nodes_too() -> None:
    limits = NamespaceLimits(default=Limits(max_devices={"gpu": 1}))
    found = decided(wants("a", created_ago=9), wants("b"), wants("c"), limits=limits)

    assert asked(found) == {"b": ("gpu",)}


def test_namespaces_take_turns_in_asking() -> None:
    mine = [wants(f"mine-{number}", namespace="a", created_ago=99.0) for number in range(3)]
    found = decided(*mine, wants("theirs", namespace="b", created_ago=1.0))

    assert asked(found) == {"mine-0": ("gpu",), "theirs": ("gpu",)}


def test_work_goes_to_the_cpu_where_that_is_in_time() -> None:
    assert decided(wants("n", ON_CPU, ON_GPU, deadline_in=400))["n"].assignments[0].accelerator == "cpu"
    assert asked(decided(wants("n", ON_CPU, ON_GPU, deadline_in=200))) == {"n": ("gpu",)}


def test_who_goes_to_the_cpu_is_told_why_not_to_a_new_node() -> None:
    fleet = Fleet((CPU_ONLY,), (), (wants("n", ON_CPU, ON_GPU, deadline_in=400),), node_groups={"gpu": GROUP})
    found = schedule(fleet, CostWeights(), NOW)
    ((_, why),) = found.explained(next(iter(found))).explained

    assert (why.alternatives[0].accelerator, why.alternatives[0].node) == ("gpu", None)
    assert "a new node of class gpu, which takes some 95 s: costs more with the wait" in why.alternatives[0].reason


# What is on its way.


def test_a_node_that_is_on_its_way_is_there_sooner_and_is_asked_for_again_as_long_as_it_is_needed() -> None:
    found = decided(wants(), group=replace(GROUP, coming=(20.0,)))

    assert asked(found) == {"n": ("gpu",)}
    assert found["n"].pending is not None
    assert found["n"].pending.start == NOW + timedelta(seconds=20)


def test_the_room_of_a_placeholder_is_free_for_whoever_is_first() -> None:
    found = decided(wants(), nodes=(GPU_NODE,), pods=(a_placeholder(age=90, node="gpu-1"),))

    assert found["n"].assignments[0].node == "gpu-1"


def test_a_node_that_is_overdue_may_take_as_long_again() -> None:
    grows = Provisioning(allocatable={"cpu": "8", "memory": "32Gi", GPU: "1"}, node_seconds=100.0)
    classes = default_classes()
    classes["gpu"] = msgspec.structs.replace(classes["gpu"], provisioning=grows)
    placeholders = tuple(a_placeholder(age=age, name=f"p-{age}") for age in (0, 30, 98, 150, 500))
    bound = a_placeholder(age=50, node="gpu-1", name="bound")

    groups = node_groups(classes, (*placeholders, bound, somebodys_pod()), {}, NOW)

    assert list(groups) == ["gpu"]
    assert groups["gpu"].coming == (1.0, 10.0, 50.0, 70.0, 100.0, 400.0)
    assert groups["gpu"].seconds == 500.0
    assert node_groups(classes, (), {"gpu": 42.0}, NOW)["gpu"].seconds == 42.0


# Deadlines count the time that a node takes.


def test_a_firm_deadline_is_infeasible_only_where_even_a_new_node_is_too_late() -> None:
    late = decided(wants(deadline_in=100, firm=True))["n"].pending
    in_time = decided(wants(deadline_in=110, firm=True))["n"]
    sooner = decided(wants(deadline_in=100, firm=True), group=replace(GROUP, coming=(80.0,)))["n"]

    assert late is not None
    assert (late.reason, late.final) == (Reason.DEADLINE_INFEASIBLE, True)
    assert "even if it starts on a new node of class gpu, which takes some 95 s" in late.message
    assert late.possible == NOW + timedelta(seconds=107)
    assert in_time.new_nodes == sooner.new_nodes == ("gpu",)


def test_a_soft_deadline_that_a_new_node_misses_waits_behind_what_is_on_time() -> None:
    group = replace(GROUP, most=1)
    found = decided(wants("late", deadline_in=100), wants("on-time", deadline_in=200), group=group)

    assert asked(found) == {"on-time": ("gpu",)}


def test_a_node_that_has_no_room_now_is_no_reason_to_shed() -> None:
    running = a_running_work("r", node="gpu-1", option=ON_GPU, left=300.0)
    found = decided(wants(deadline_in=60, firm=True), nodes=(GPU_NODE,), pods=(a_tenants_pod(running),), running=(running,))

    assert found["n"].pending is None or not found["n"].pending.final

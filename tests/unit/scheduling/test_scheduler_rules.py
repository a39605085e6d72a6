"""The fleet-wide decision, rule by rule as its docstring gives them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.scheduling.node_capacity import free_amounts
from inference_operator.scheduling.ranking import is_late
from inference_operator.scheduling.requirements import pod_requirements
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest, Usage, WarmWorker
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node, Pod, PodPhase, Taint
from inference_operator.state.topology import NodeSelectorRequirement
from tests.builders import GPU, NOW, a_job, a_node, a_pod, a_request, an_option, somebodys_pod, whole

WEIGHTS = CostWeights()
ONE_SLOT = a_node(cpu="1")
ONE_GPU = a_node("gpu-1", cpu="4", gpu=1)

CPU = an_option("cpu", seconds=40)
FAST_GPU = an_option("gpu", seconds=12, gpu=1)
SLOW_CPU = an_option("cpu", seconds=300)


def decisions(*requests: PlacementRequest, nodes: Sequence[Node] = (ONE_SLOT,), pods: Sequence[Pod] = ()) -> dict[str, Decision]:
    found = schedule(Fleet(tuple(nodes), tuple(pods), requests), WEIGHTS, NOW)
    return {key.name: found.explained(key) for key in found}


def placed(*requests: PlacementRequest, nodes: Sequence[Node] = (ONE_SLOT,), pods: Sequence[Pod] = ()) -> list[str]:
    return sorted(name for name, decision in decisions(*requests, nodes=nodes, pods=pods).items() if decision.assignments)


def only(request: PlacementRequest, *nodes: Node, pods: Sequence[Pod] = ()) -> Decision:
    return decisions(request, nodes=nodes, pods=pods)[request.key.name]


# Who goes first.


def test_the_earlier_deadline_goes_first() -> None:
    assert placed(a_request("late", deadline_in=90), a_request("early", deadline_in=60)) == ["early"]


def test_a_higher_priority_goes_before_an_earlier_deadline() -> None:
    assert placed(a_request("early", deadline_in=60), a_request("high", deadline_in=90, priority=1)) == ["high"]


def test_a_deadline_goes_before_none() -> None:
    assert placed(a_request("open", created_ago=99), a_request("due", deadline_in=60)) == ["due"]


def test_among_equals_the_older_goes_first() -> None:
    assert placed(a_request("new", created_ago=1), a_request("old", created_ago=99)) == ["old"]


def test_late_work_yields_to_work_that_can_be_on_time_whatever_its_priority() -> None:
    assert placed(a_request("late", deadline_in=10, priority=1000), a_request("on-time", deadline_in=60)) == ["on-time"]


def test_late_soft_work_runs_when_nobody_else_needs_the_place() -> None:
    assert placed(a_request("late", deadline_in=10)) == ["late"]
    assert placed(a_request("passed", deadline_in=-10)) == ["passed"]


def test_late_firm_work_is_told_so_before_it_touches_a_device() -> None:
    decision = only(a_request("late", deadline_in=10, firm=True), ONE_SLOT)

    assert decision.assignments == ()
    assert decision.pending is not None
    assert (decision.pending.reason, decision.pending.final) == (Reason.DEADLINE_INFEASIBLE, True)
    assert decision.pending.possible == NOW + timedelta(seconds=30)
    assert "20 s after the deadline" in decision.pending.message and "Soft" in decision.pending.message


@pytest.mark.parametrize(("speed", "told"), [(9.8123, "9.81"), (105_263.2, "105263")])
def test_the_speed_that_a_deadline_is_judged_by_is_told_in_digits(speed: float, told: str) -> None:
    option = an_option(seconds=30)
    measured = replace(option, estimate=replace(option.estimate, items_per_second=speed, work_seconds=30.0))
    decision = only(a_request("late", measured, deadline_in=10, firm=True), ONE_SLOT)

    assert decision.pending is not None
    assert f"items at {told} a second" in decision.pending.message


def test_the_deadline_that_is_proposed_is_one_that_can_be_met() -> None:
    # Asked for: 12:00:30; possible: 12:00:30.654321, in an API that keeps whole seconds.
    decision = only(replace(a_request("late", firm=True), deadline=whole(NOW + timedelta(seconds=30))), ONE_SLOT)

    assert decision.pending is not None
    assert "1 s after the deadline; set deadline to 2026-04-02T12:00:31Z or later" in decision.pending.message


def test_assumptions_do_not_make_work_late() -> None:
    guess = an_option(seconds=3000, measured=False)

    assert placed(a_request("guessed", guess, deadline_in=10, firm=True)) == ["guessed"]


def test_work_is_late_only_when_no_class_is_in_time() -> None:
    assert not is_late(a_request("n", SLOW_CPU, FAST_GPU, deadline_in=60), NOW)
    assert not is_late(a_request("n", SLOW_CPU, an_option("gpu", seconds=900, measured=False, gpu=1), deadline_in=60), NOW)
    assert is_late(a_request("n", SLOW_CPU, FAST_GPU, deadline_in=11), NOW)
    assert is_late(a_request("n", an_option(measured=False), deadline_in=0), NOW)
    assert not is_late(a_request("n", SLOW_CPU), NOW)


# Which class and node.


def test_auto_goes_to_cpu_when_cpu_is_in_time() -> None:
    decision = only(a_request("n", CPU, FAST_GPU, deadline_in=60), ONE_GPU)

    assert [a.accelerator for a in decision.assignments] == ["cpu"]


def test_auto_goes_to_gpu_when_only_gpu_is_in_time() -> None:
    decision = only(a_request("n", SLOW_CPU, FAST_GPU, deadline_in=60), ONE_GPU)

    assert [a.accelerator for a in decision.assignments] == ["gpu"]


def test_auto_goes_to_gpu_when_cpu_is_in_time_and_full() -> None:
    cpu_node = a_node("cpu-1", labels={"kind": "cpu"})
    cpu = an_option("cpu", seconds=40, node_selector={"kind": "cpu"})
    full = somebodys_pod(node="cpu-1", cpu="8")

    decision = only(a_request("n", cpu, FAST_GPU, deadline_in=60), cpu_node, ONE_GPU, pods=[full])

    assert [a.accelerator for a in decision.assignments] == ["gpu"]


def test_where_workers_with_other_requirements_have_taken_the_room_the_other_class_is_taken() -> None:
    node = a_node(cpu="2", gpu=1)
    wide = a_request("wide", an_option("cpu", seconds=10, cpu="2"), FAST_GPU, created_ago=5)

    assert placed(a_request("narrow", created_ago=9), wide, nodes=[node]) == ["narrow", "wide"]


def test_work_that_can_be_on_time_waits_for_a_place_where_it_is() -> None:
    taken = somebodys_pod(node="gpu-1", gpu=1)
    decision = only(a_request("n", SLOW_CPU, FAST_GPU, deadline_in=60), ONE_GPU, pods=[taken])

    assert decision.assignments == ()
    assert decision.pending is not None and decision.pending.reason is Reason.NO_FREE_CAPACITY
    assert "cpu: would finish after the deadline" in decision.pending.message
    assert "1 Insufficient nvidia.com/gpu (1 requested, 0 of 1 free)" in decision.pending.message


def test_work_that_is_late_takes_what_there_is() -> None:
    taken = somebodys_pod(node="gpu-1", gpu=1)
    decision = only(a_request("n", SLOW_CPU, FAST_GPU, deadline_in=5), ONE_GPU, pods=[taken])

    assert [a.accelerator for a in decision.assignments] == ["cpu"]


def test_without_a_deadline_the_cost_alone_decides() -> None:
    # 40 s and 0.6 s of energy against 12 s and 3.6 s.
    assert only(a_request("n", CPU, FAST_GPU), ONE_GPU).assignments[0].accelerator == "gpu"
    assert only(a_request("n", an_option(seconds=14), FAST_GPU), ONE_GPU).assignments[0].accelerator == "cpu"


def test_late_work_goes_where_it_costs_least() -> None:
    assert only(a_request("n", SLOW_CPU, FAST_GPU, deadline_in=5), ONE_GPU).assignments[0].accelerator == "gpu"


def test_the_least_full_node_is_taken_and_equals_go_by_name() -> None:
    nodes = (a_node("b"), a_node("a"), a_node("c"))

    assert only(a_request(), *nodes).assignments[0].node == "a"
    assert only(a_request(), *nodes, pods=[somebodys_pod(node="a", cpu="1")]).assignments[0].node == "b"


def test_workers_of_one_job_are_spread() -> None:
    decision = only(a_request(workers=3), a_node("a"), a_node("b"), a_node("c"))

    assert sorted(a.node for a in decision.assignments) == ["a", "b", "c"]


# Why not.


def test_a_full_cluster_is_waited_for() -> None:
    decision = only(a_request(), ONE_SLOT, pods=[somebodys_pod(cpu="1")])

    assert decision.pending is not None
    assert (decision.pending.reason, decision.pending.final) == (Reason.NO_FREE_CAPACITY, False)
    assert "0/1 nodes are available: 1 Insufficient cpu (1 requested, 0 of 1 free)" in decision.pending.message


def test_a_cluster_that_never_could_says_so_with_counts() -> None:
    nodes = (a_node("a"), a_node("b"), a_node("c", gpu=1, taints=[Taint("k", "", "NoSchedule")]))
    decision = only(a_request("n", an_option("gpu", gpu=1)), *nodes)

    assert decision.pending is not None and decision.pending.reason is Reason.NO_NODE_FITS
    assert "0/3 nodes are available: 2 Insufficient nvidia.com/gpu (1 requested, 0 allocatable), " in decision.pending.message
    assert ", 1 node(s) had untolerated taint {k: };" in decision.pending.message


def test_an_empty_cluster_says_so() -> None:
    decision = only(a_request())

    assert decision.pending is not None and "no nodes available to schedule pods" in decision.pending.message


def test_part_of_the_workers_get_a_place_and_the_rest_a_reason() -> None:
    decision = only(a_request(workers=3), a_node(cpu="2"))

    assert len(decision.assignments) == 2
    assert decision.pending is not None and decision.pending.reason is Reason.NO_FREE_CAPACITY


@pytest.mark.parametrize(
    ("asked", "class_", "words"),
    [
        (a_request("n", CPU, FAST_GPU, deadline_in=60), "gpu", "draws 300 W; cpu is on time too, and draws 15 W"),
        (a_request("n", SLOW_CPU, FAST_GPU, deadline_in=60), "cpu", "after the deadline"),
        (a_request("n", CPU, FAST_GPU), "cpu", "s more"),
    ],
)
def test_the_other_class_is_told_with_its_reason_and_cost(asked: PlacementRequest, class_: str, words: str) -> None:
    (other,) = [a for a in only(asked, ONE_GPU).explanations[0].alternatives if a.accelerator == class_]

    assert words in other.reason
    assert other.cost is not None


def test_a_reason_that_names_many_nodes_is_cut_to_what_the_api_takes() -> None:
    here = NodeSelectorRequirement("metadata.name", "In", ("node-1", *[f"node-{i}" for i in range(100, 200)]))
    local = replace(CPU, requirements=pod_requirements((("cpu", 1000),), volumes=(("data", ((here,),)),)))

    (other,) = only(a_request("n", local), a_node("node-1"), a_node("node-2")).explanations[0].alternatives

    assert other.reason.startswith("node(s) had volume node affinity conflict (claim data: metadata.name In (node-1, node-100, ")
    assert len(other.reason) == 512


# Capacity is counted anew.


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_ended_pods_take_no_room(phase: PodPhase) -> None:
    pod = somebodys_pod(phase=phase, cpu="8")

    assert free_amounts([a_node()], [pod])["node-1"] == dict(a_node().allocatable)


@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.RUNNING, PodPhase.UNKNOWN])
def test_all_others_do(phase: PodPhase) -> None:
    assert free_amounts([a_node()], [somebodys_pod(phase=phase, cpu="3")])["node-1"]["cpu"] == 5000


def test_our_own_pod_takes_its_room_before_it_is_bound() -> None:
    job = a_job()
    unbound = a_pod(job, phase=PodPhase.PENDING, node=None)

    assert unbound.node is None
    assert free_amounts([a_node()], [unbound])["node-1"]["cpu"] == 7500
    assert free_amounts([a_node()], [a_pod(job, deleting=True)])["node-1"]["cpu"] == 7500


def test_pods_of_unknown_nodes_and_unknown_resources_do_no_harm() -> None:
    gone, strange = somebodys_pod("a", node="gone", cpu="1"), somebodys_pod("b", gpu=1)

    assert free_amounts([a_node()], [gone, strange])["node-1"]["cpu"] == 8000
    assert GPU not in free_amounts([a_node()], [gone, strange])["node-1"]


# A service's workers keep apart.

SERVED = replace(a_request("s", workers=1), holds=True)


def zoned(name: str, zone: str, *, cpu: str = "4") -> Node:
    return a_node(name, cpu=cpu, labels={"topology.kubernetes.io/zone": zone})


def given(request: PlacementRequest, *nodes: Node) -> list[str]:
    return [assignment.node for assignment in only(request, *nodes).assignments]


def test_a_services_workers_go_to_different_zones_then_nodes_though_one_node_has_more_room() -> None:
    nodes = [zoned("a-1", "a", cpu="64"), zoned("a-2", "a"), zoned("b-1", "b")]

    assert given(replace(SERVED, workers=3), *nodes) == ["a-1", "b-1", "a-2"]
    assert given(replace(SERVED, beside=("a-1",)), *nodes) == ["b-1"]
    assert given(replace(SERVED, beside=("a-1", "b-1")), *nodes) == ["a-2"]


def test_workers_share_a_node_rather_than_wait() -> None:
    assert given(replace(SERVED, workers=2), a_node(cpu="4")) == ["node-1", "node-1"]
    assert given(replace(SERVED, beside=("a-1", "gone")), zoned("a-1", "a"), zoned("b-1", "b", cpu="0")) == ["a-1"]


def test_batches_fill_the_roomiest_node_whatever_else_runs_there() -> None:
    nodes = [zoned("a-1", "a", cpu="64"), zoned("b-1", "b")]

    assert given(replace(a_request("b"), beside=("a-1",)), *nodes) == ["a-1"]


def test_work_goes_to_the_node_where_it_failed_only_if_no_other_has_room() -> None:
    nodes = [zoned("a-1", "a", cpu="64"), zoned("a-2", "a"), zoned("b-1", "b")]
    batch = replace(a_request("b"), failed_on=("a-1",))

    assert given(batch, *nodes) == ["a-2"]
    assert given(replace(batch, failed_on=("a-1", "a-2")), *nodes) == ["b-1"]
    assert given(batch, nodes[0], zoned("a-2", "a", cpu="0")) == ["a-1"]
    # A node with another worker is better than one where workers fail; its zone is as good as any other.
    assert given(replace(SERVED, beside=("b-1",), failed_on=("a-1", "a-2")), *nodes) == ["b-1"]
    assert given(replace(SERVED, beside=("b-1",), failed_on=("a-1",)), *nodes) == ["a-2"]


def test_the_node_where_it_failed_is_told_with_the_places_not_taken() -> None:
    decision = only(replace(a_request("b"), failed_on=("a",)), a_node("a", cpu="64"), a_node("b"))

    assert [(one.node, one.reason) for one in decision.explained[0][1].alternatives] == [("a", "the last worker failed there")]


# How nodes are used besides.


def where(request: PlacementRequest, *nodes: Node, usage: dict[str, Usage]) -> str:
    (given,) = schedule(Fleet(nodes, (), (request,), usage=usage), WEIGHTS, NOW)[request.key].assignments
    return given.node


TWO_GPUS = (a_node("gpu-1", gpu=2), a_node("gpu-2", gpu=2))


def test_of_two_nodes_the_one_whose_devices_are_not_in_unmanaged_use() -> None:
    request = a_request("g", FAST_GPU)

    assert where(request, *TWO_GPUS, usage={}) == "gpu-1"
    assert where(request, *TWO_GPUS, usage={"gpu-1": Usage(GPU, unmanaged_usage=0.5)}) == "gpu-2"
    assert (
        where(request, *TWO_GPUS, usage={"gpu-1": Usage(GPU, unmanaged_usage=0.5), "gpu-2": Usage(GPU, unmanaged_usage=0.6)})
        == "gpu-1"
    )


def test_a_node_that_was_passed_over_for_its_unmanaged_usage_says_so() -> None:
    request = a_request("g", FAST_GPU)
    fleet = Fleet(TWO_GPUS, (), (request,), usage={"gpu-1": Usage(GPU, unmanaged_usage=0.5)})
    (given,) = schedule(fleet, WEIGHTS, NOW).explained(request.key).explanations

    (other,) = given.alternatives
    assert (other.node, other.reason) == ("gpu-1", f"has 0.5 {GPU} in use outside Kubernetes")


def test_a_node_that_unmanaged_usage_use_is_better_than_none() -> None:
    assert where(a_request("g", FAST_GPU), ONE_GPU, usage={"gpu-1": Usage(GPU, unmanaged_usage=1.0)}) == "gpu-1"


def test_unmanaged_usage_on_devices_are_nothing_to_work_on_cpus() -> None:
    assert where(a_request("c", CPU), *TWO_GPUS, usage={"gpu-1": Usage(GPU, unmanaged_usage=2.0)}) == "gpu-1"


def test_of_two_equal_nodes_the_one_whose_workers_compute_less() -> None:
    assert where(a_request("c", CPU), *TWO_GPUS, usage={"gpu-1": Usage(busy=1.5), "gpu-2": Usage(busy=0.5)}) == "gpu-2"


def test_an_emptier_node_is_taken_however_busy_its_workers_are() -> None:
    small = a_node("b-small", cpu="2")

    assert where(a_request("c", CPU), small, TWO_GPUS[1], usage={"gpu-2": Usage(busy=9.0)}) == "gpu-2"


def test_only_so_many_tasks_are_handed_to_a_warm_worker_ahead() -> None:
    pool, pod = Key("default", "m"), Key("default", "m-1")
    warm = WarmWorker(pool, pod, "node-1", "cpu", wait=0.0, tasks=0, ready=True)
    requests = tuple(replace(a_request(f"j{n}", an_option(seconds=2.001)), pool=pool) for n in range(40))
    decisions = schedule(Fleet((a_node("node-1", cpu="0"),), (), requests, warm_workers=(warm,)), CostWeights(), NOW)
    handed = [d for d in decisions.values() if d.assignments]

    assert 1 < len(handed) <= 16

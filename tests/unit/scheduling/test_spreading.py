"""A service whose workers are all on one node is given another node's room, if nobody else wants it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Assignment, Decision, Fleet, PlacementRequest
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Node, Pod
from inference_operator.state.topology import ZONE_LABEL
from tests.builders import NOW, a_node, a_request, a_running_work, a_tenants_pod, a_worker, an_option

A, B = a_node("a", cpu="4"), a_node("b", cpu="1")


def spreading(name: str = "service", *beside: str) -> PlacementRequest:
    return replace(a_request(name), holds=True, spreads=True, beside=beside or ("a", "a"))


def decided(*requests: PlacementRequest, nodes: tuple[Node, ...] = (A, B), pods: tuple[Pod, ...] = ()) -> dict[str, Decision]:
    found = schedule(Fleet(nodes, pods, requests), CostWeights(), NOW)
    return {key.name: found.explained(key) for key in found}


def test_it_gets_the_node_that_has_none_of_its_workers() -> None:
    found = decided(spreading())["service"]

    assert found.assignments == (Assignment("cpu", "b"),)
    (why,) = found.explanations
    usual = decided(replace(a_request("service"), holds=True), nodes=(B,))["service"]
    assert why.cost == usual.explanations[0].cost
    assert [(one.node, one.reason) for one in why.alternatives] == [("a", "has a worker of this service already")]


def test_it_waits_for_nothing_and_is_not_counted_among_those_who_wait() -> None:
    found = decided(spreading(), a_request("waits"), nodes=(replace(A, ready=False), replace(B, unschedulable=True)))

    assert (found["service"].assignments, found["service"].pending) == ((), None)
    assert found["waits"].pending is not None


def test_all_others_go_first_whatever_their_priority() -> None:
    found = decided(replace(spreading(), priority=9), replace(a_request("batch"), priority=-9), nodes=(B,))

    assert (found["service"].assignments, found["batch"].assignments) == ((), (Assignment("cpu", "b"),))


def test_nobody_makes_room_for_it() -> None:
    work = replace(a_running_work("low", node="b"), priority=-9)
    fleet = Fleet((A, B), (a_tenants_pod(work),), (replace(spreading(), priority=9),), (work,))

    found = schedule(fleet, CostWeights(), NOW)

    assert [decision.preemption for decision in found.values()] == [None]


def test_a_cap_of_its_namespace_holds_for_it() -> None:
    limits = NamespaceLimits(default=Limits(max_replicas=2))
    pods = (a_worker("one", node="a"), a_worker("two", node="a"))

    (found,) = schedule(Fleet((A, B), pods, (spreading(),)), CostWeights(), NOW, limits).values()

    assert found.assignments == ()


def test_two_of_a_namespace_share_what_its_cap_leaves() -> None:
    limits = NamespaceLimits(default=Limits(max_replicas=3))
    pods = (a_worker("one", node="a"), a_worker("two", node="a"))
    nodes = (A, a_node("b", cpu="4"))

    found = schedule(Fleet(nodes, pods, (spreading("first"), spreading("second"))), CostWeights(), NOW, limits)

    assert sorted(len(one.assignments) for one in found.values()) == [0, 1]


def test_it_takes_the_cheapest_class_that_a_cap_leaves_it() -> None:
    dear, cheap = an_option("gpu", gpu=1, watts=900.0), an_option("cpu", watts=1.0)
    request = replace(a_request("service", dear, cheap), holds=True, spreads=True, beside=("a", "a"))
    fleet = Fleet((A, a_node("b", cpu="4", gpu=1)), (), (request,))
    none_cheap = NamespaceLimits(default=Limits(max_devices={"cpu": 0}))

    found = [schedule(fleet, CostWeights(), NOW, limits)[request.key].assignments for limits in (NamespaceLimits(), none_cheap)]

    assert found == [(Assignment("cpu", "b"),), (Assignment("gpu", "b"),)]


def test_it_goes_to_another_zone_if_it_can_though_a_nearer_node_is_roomier() -> None:
    here, near, far = (
        a_node(name, cpu=cpu, labels={ZONE_LABEL: zone})
        for name, cpu, zone in (("a", "4", "z1"), ("b", "8", "z1"), ("c", "2", "z2"))
    )

    assert decided(spreading(), nodes=(here, near, far))["service"].assignments == (Assignment("cpu", "c"),)


def test_it_takes_no_room_that_is_kept_for_large_work() -> None:
    """It would hold for good what the other waits for."""
    large = a_request("large", an_option(cpu="4"))
    work = a_running_work("small", node="b", option=an_option(cpu="2"))
    nodes = (a_node("a", cpu="1"), a_node("b", cpu="4"))

    found = schedule(Fleet(nodes, (a_tenants_pod(work),), (spreading(), large), (work,)), CostWeights(), NOW)

    assert [found[request.key].assignments for request in (spreading(), large)] == [(), ()]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), st.integers(0, 3))
def test_it_is_never_given_a_node_that_has_one(beside: list[str], others: int) -> None:
    nodes = tuple(a_node(name, cpu="1") for name in "abc")
    requests = [a_request(f"other-{number}") for number in range(others)]

    found = decided(spreading("service", *beside), *requests, nodes=nodes)["service"].assignments

    assert not {one.node for one in found} & set(beside)
    assert not found or others < len(nodes)

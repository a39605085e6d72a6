"""Access modes of claims: two workers are never spread over two nodes that one disk can't reach (kserve/kserve#3409)."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.conditions import Reason
from inference_operator.scheduling import filters
from inference_operator.scheduling.requirements import PodRequirements, pod_requirements
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Fleet, Option, PlacementRequest
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node, Pod, PodPhase
from inference_operator.state.volumes import Access
from tests.builders import NOW, a_node, a_request, a_worker, an_option, somebodys_pod

ONE_NODE, ONE_POD = Access.ONE_NODE, Access.ONE_POD
DATA = Key("default", "data")


def with_claim(access: Access, *, cpu: str = "1", claim: Key = DATA) -> Option:
    option = an_option(cpu=cpu)
    return replace(option, requirements=pod_requirements(option.requirements.amounts, claims=((claim, access),)))


def user_of(claim: Key = DATA, *, node: str = "a", name: str = "user", phase: PodPhase = PodPhase.RUNNING) -> Pod:
    return replace(somebodys_pod(name, node=node, phase=phase, cpu="1"), key=Key(claim.namespace, name), claims=(claim.name,))


def nodes_of(nodes: tuple[Node, ...], *requests: PlacementRequest, pods: tuple[Pod, ...] = ()) -> list[str]:
    decided = schedule(Fleet(nodes, pods, requests), CostWeights(), NOW)
    return [assignment.node for request in requests for assignment in decided[request.key].assignments]


def why(nodes: tuple[Node, ...], request: PlacementRequest, *pods: Pod) -> tuple[Reason, str]:
    pending = schedule(Fleet(nodes, pods, (request,)), CostWeights(), NOW)[request.key].pending
    assert pending is not None
    return pending.reason, pending.message


TWO = (a_node("a", cpu="4"), a_node("b", cpu="8"))


def test_all_workers_of_a_service_on_one_disk_are_on_one_node() -> None:
    request = replace(a_request("web", with_claim(ONE_NODE), workers=3), holds=True)

    assert nodes_of(TWO, request) == ["b", "b", "b"]


def test_two_jobs_on_one_disk_are_on_one_node() -> None:
    first, second = a_request("first", with_claim(ONE_NODE)), a_request("second", with_claim(ONE_NODE, cpu="2"))

    assert len(set(nodes_of(TWO, first, second))) == 1


def test_a_worker_goes_where_the_disk_is_in_use_whoever_uses_it() -> None:
    assert nodes_of(TWO, a_request("next", with_claim(ONE_NODE)), pods=(user_of(node="a"),)) == ["a"]


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_pod_that_has_ended_holds_no_disk(phase: PodPhase) -> None:
    assert nodes_of(TWO, a_request("next", with_claim(ONE_NODE)), pods=(user_of(node="a", phase=phase),)) == ["b"]


def test_a_claim_of_the_same_name_elsewhere_is_another_disk() -> None:
    elsewhere = user_of(Key("other", "data"), node="a")

    assert nodes_of(TWO, a_request("next", with_claim(ONE_NODE)), pods=(elsewhere,)) == ["b"]


def test_a_disk_on_a_node_that_nobody_reaches_holds_nobody_back() -> None:
    nodes = (replace(TWO[0], reachable=False, ready=False), TWO[1])

    assert nodes_of(nodes, a_request("next", with_claim(ONE_NODE)), pods=(user_of(node="a"),)) == ["b"]
    assert nodes_of(nodes, a_request("next", with_claim(ONE_POD)), pods=(user_of(node="a"),)) == ["b"]


def test_who_waits_for_the_disks_node_is_told_which_claim_and_where() -> None:
    reason, text = why(TWO, a_request("next", with_claim(ONE_NODE, cpu="4")), user_of(node="a"))

    assert reason is Reason.NO_FREE_CAPACITY
    assert "1 node(s) unavailable due to claim data with ReadWriteOnce access mode, in use on a" in text
    assert "ReadWriteMany" in text


def test_the_second_of_one_pass_is_told_the_same() -> None:
    request = replace(a_request("web", with_claim(ONE_NODE, cpu="3"), workers=3), holds=True)
    decided = schedule(Fleet(TWO, (), (request,)), CostWeights(), NOW)[request.key]

    assert [one.node for one in decided.assignments] == ["b", "b"]
    assert decided.pending is not None and "in use on b" in decided.pending.message


def test_one_pod_at_a_time_has_a_claim_of_one_pod() -> None:
    first, second = a_request("first", with_claim(ONE_POD)), a_request("second", with_claim(ONE_POD))

    assert len(nodes_of(TWO, first, second)) == 1
    reason, text = why(TWO, first, user_of(node="a"))
    assert reason is Reason.NO_FREE_CAPACITY
    assert "2 node(s) unavailable due to claim data with ReadWriteOncePod access mode, in use by user" in text


def test_who_waits_for_a_claim_is_not_told_that_it_waits_for_its_share() -> None:
    """Its namespace has more than its share, and room; another namespace's work waits, too."""
    pods = (a_worker("w", node="b", option=an_option(cpu="6")), user_of(node="a"))
    waits, other = a_request("waits", with_claim(ONE_POD)), a_request("other", an_option(cpu="8"), namespace="other")
    pending = schedule(Fleet(TWO, pods, (waits, other)), CostWeights(), NOW)[waits.key].pending

    assert pending is not None and pending.reason is Reason.NO_FREE_CAPACITY
    assert "ReadWriteOncePod" in pending.message and "its fair share is 50%" in pending.message


def test_work_that_waits_for_a_claim_is_not_refused_for_it() -> None:
    request = a_request("firm", with_claim(ONE_POD), deadline_in=600, firm=True)

    assert why(TWO, request, user_of(node="a"))[0] is Reason.NO_FREE_CAPACITY


def test_a_node_that_could_never_hold_it_is_no_matter_of_the_claim() -> None:
    reason, _ = why(TWO, a_request("large", with_claim(ONE_NODE, cpu="99")), user_of(node="a"))

    assert reason is Reason.NO_NODE_FITS


def test_jobs_with_claims_of_their_own_share_one_look_at_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three thousand of them took nine seconds a pass, and now a tenth of one."""
    looked: list[str] = []

    def unfit(node: Node, requirements: PodRequirements) -> str | None:
        looked.append(node.name)
        return filters.unfit(node, requirements)

    monkeypatch.setattr("inference_operator.scheduling.node_capacity.filters", SimpleNamespace(**{**vars(filters), "unfit": unfit}))
    requests = [a_request(f"r{n}", with_claim(ONE_NODE, claim=Key("default", f"c{n}"))) for n in range(50)]

    assert len(nodes_of(TWO, *requests)) == 12
    assert len(looked) == len(TWO)


claims = st.sampled_from([Key("default", name) for name in "de"])
wants = st.tuples(claims, st.sampled_from([ONE_NODE, ONE_POD]), st.sampled_from(["1", "2", "3"]), st.integers(1, 3))


@given(st.lists(wants, min_size=1, max_size=8), st.lists(st.tuples(claims, st.sampled_from("abc")), max_size=2))
def test_no_pass_ever_spreads_a_disk(asked: list[tuple[Key, Access, str, int]], users: list[tuple[Key, str]]) -> None:
    nodes = tuple(a_node(name, cpu="6") for name in "abc")
    pods = tuple(user_of(claim, node=node, name=f"user-{n}") for n, (claim, node) in enumerate(users))
    requests = tuple(
        replace(a_request(f"r{n}", with_claim(access, cpu=cpu, claim=claim), workers=count), created=NOW - timedelta(seconds=n))
        for n, (claim, access, cpu, count) in enumerate(asked)
    )
    decided = schedule(Fleet(nodes, pods, requests), CostWeights(), NOW)

    for claim in {claim for claim, *_ in asked}:
        there = {node for known, node in users if known == claim}
        given_places = [
            (one.node, access)
            for request, (known, access, _, _) in zip(requests, asked, strict=True)
            if known == claim
            for one in decided[request.key].assignments
        ]
        mine = {node for node, _ in given_places}
        assert mine <= there if there and mine else len(mine) <= 1
        if any(access is ONE_POD for _, access in given_places):
            assert not there

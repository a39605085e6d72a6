"""Who is sent requests: the EndpointSlices of a service, from what is seen."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.state.endpoints import EndpointSlice, EndpointsObserved, parse_slice
from inference_operator.state.objects import Key, Pod, PodPhase
from inference_operator.workers.actions import ApplySlice, DeleteSlice, EndpointsAction, TakeSelector
from inference_operator.workers.endpoints import desired, plan_endpoints
from tests.builders import a_job, a_pod

JOB = a_job(serve=True)
SERVICE = Key(JOB.key.namespace, JOB.key.name)


def a_worker(number: int, *, ready: bool = True, deleting: bool = False, address: str | None = None, node: str = "n") -> Pod:
    pod = a_pod(JOB, number, ready=ready, deleting=deleting, node=node, uid=f"w{number}")
    return replace(pod, address=address or f"10.0.{number // 250}.{number % 250}", ready=ready)


def seen(
    *pods: Pod, suspected: str = "", heard: str = "", selecting: str | None = None, slices: tuple[EndpointSlice, ...] = ()
) -> EndpointsObserved:
    doubted, answering = frozenset(suspected.split()), frozenset(heard.split())
    return EndpointsObserved(JOB, SERVICE, selecting, pods, doubted, answering, {"n": "zone-1"}, slices)


def written(actions: tuple[EndpointsAction, ...]) -> tuple[EndpointSlice, ...]:
    """The slices that an API server has once these actions were carried out."""
    found = []
    for action in actions:
        if isinstance(action, ApplySlice):
            metadata = {**action.manifest["metadata"], "uid": f"uid-of-{action.manifest['metadata']['name']}"}
            found.append(parse_slice({**action.manifest, "metadata": metadata}))
    return tuple(one for one in found if one is not None)


def kubernetes_slice(writer: str = "endpointslice-controller.k8s.io") -> EndpointSlice:
    return EndpointSlice(Key(SERVICE.namespace, "job-x7k2p"), "theirs", "1", SERVICE.name, writer, "IPv4", (), ())


def ready(world: EndpointsObserved) -> set[str]:
    return {one.uid for _, _, endpoints in desired(world).values() for one in endpoints if one.ready}


def test_the_last_workers_that_were_told_to_go_take_requests_until_another_does() -> None:
    leaving = a_worker(1, ready=False, deleting=True)

    assert ready(seen(leaving)) == ready(seen(leaving, a_worker(2, ready=False))) == {"w1"}
    assert ready(seen(leaving, a_worker(2))) == {"w2"}


def test_while_nobody_is_ready_those_who_answer_the_operator_take_requests() -> None:
    """A kubelet that restarts says of its pods for a moment that they aren't ready (kubernetes#100277)."""
    answering, starting = a_worker(1, ready=False), a_worker(2, ready=False)

    assert ready(seen(answering, starting, heard="w1")) == {"w1"}
    assert ready(seen(answering, a_worker(3), heard="w1 w3")) == {"w3"}
    assert ready(seen(answering, a_worker(3, deleting=True), heard="w1 w3")) == {"w1"}
    assert ready(seen(answering, starting)) == set()


def test_nobody_takes_requests_of_a_service_that_wants_no_workers() -> None:
    assert JOB.spec is not None
    suspended = replace(JOB, spec=replace(JOB.spec, suspend=True))

    assert ready(replace(seen(a_worker(1, deleting=True)), job=suspended)) == set()


def test_of_workers_that_were_told_to_go_the_silent_ones_take_no_requests() -> None:
    assert ready(seen(a_worker(1, deleting=True), a_worker(2, deleting=True), suspected="w1")) == {"w2"}


def test_a_slice_has_all_that_callers_need() -> None:
    (action,) = plan_endpoints(seen(a_worker(1)))
    assert isinstance(action, ApplySlice)
    manifest = action.manifest

    assert manifest["metadata"]["labels"]["kubernetes.io/service-name"] == SERVICE.name
    assert manifest["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "inference-operator.inference.myorg"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == JOB.uid
    assert manifest["addressType"] == "IPv4"
    assert [(port["name"], port["port"], port["appProtocol"]) for port in manifest["ports"]] == [
        ("http", 8000, "http"),
        ("grpc", 8001, "kubernetes.io/h2c"),
    ]
    assert manifest["endpoints"] == [
        {
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": SERVICE.namespace, "name": a_worker(1).key.name, "uid": "w1"},
            "nodeName": "n",
            "zone": "zone-1",
        }
    ]


def test_what_is_written_is_not_written_again() -> None:
    world = seen(a_worker(1), a_worker(2, ready=False), a_worker(3, deleting=True))

    assert plan_endpoints(replace(world, slices=written(plan_endpoints(world)))) == ()


def test_where_all_are_suspected_those_that_answer_again_take_the_requests() -> None:
    """A worker that was frozen speaks again, and the node of the other one dies before it is trusted."""
    world = replace(seen(a_worker(1), a_worker(2), suspected="w1 w2"), recovering=frozenset({"w2"}))
    assert ready(world) == {"w2"}
    # One that is trusted goes before them.
    assert ready(replace(world, suspected=frozenset({"w2"}))) == {"w1"}
    going = replace(seen(a_worker(1, deleting=True), a_worker(2, deleting=True), suspected="w1 w2"), recovering=frozenset({"w1"}))
    assert ready(going) == {"w1"}


def test_a_suspected_worker_leaves_and_its_slice_alone_is_written() -> None:
    world = seen(a_worker(1), a_worker(2), a_worker(201))
    slices = written(plan_endpoints(world))
    (action,) = plan_endpoints(replace(world, slices=slices, suspected=frozenset({"w1"})))

    assert isinstance(action, ApplySlice) and action.uid == "uid-of-job-ipv4-0"
    assert [one["conditions"] for one in action.manifest["endpoints"]] == [
        {"ready": False, "serving": False, "terminating": False},
        {"ready": True, "serving": True, "terminating": False},
    ]


def test_a_draining_worker_serves_and_takes_nothing_new() -> None:
    world = seen(a_worker(1), a_worker(2, deleting=True))
    ((_, _, (_, second)),) = desired(world).values()

    assert (second.ready, second.serving, second.terminating) == (False, True, True)


def test_suspicion_alone_never_empties_a_service() -> None:
    assert ready(seen(a_worker(1), a_worker(2), suspected="w1 w2")) == {"w1", "w2"}
    # One that drains is nobody to go to.
    assert ready(seen(a_worker(1), a_worker(2, deleting=True), suspected="w1")) == {"w1"}
    assert ready(seen(a_worker(1), a_worker(2, ready=False), suspected="w1")) == {"w1"}
    assert ready(seen(a_worker(1), a_worker(2), a_worker(3), suspected="w1 w2")) == {"w3"}


def test_pods_that_have_no_address_or_ended_are_nowhere() -> None:
    starting = replace(a_worker(1), address=None)
    ended = replace(a_worker(2), phase=PodPhase.SUCCEEDED)

    assert desired(seen(starting, ended)) == {}


def test_a_worker_whose_node_nobody_knows_keeps_no_other_from_its_callers() -> None:
    ((_, _, endpoints),) = desired(seen(a_worker(1, node="gone"), a_worker(2))).values()

    assert [(one.node, one.zone, one.ready) for one in endpoints] == [("gone", None, True), ("n", "zone-1", True)]


def test_both_families_have_their_slices() -> None:
    found = desired(seen(a_worker(1), a_worker(2, address="fd00::2")))

    assert {name: family for name, (family, _, _) in found.items()} == {"job-ipv4-0": "IPv4", "job-ipv6-0": "IPv6"}


def test_a_slice_with_nobody_left_in_it_goes() -> None:
    slices = written(plan_endpoints(seen(a_worker(1))))
    (action,) = plan_endpoints(seen(slices=slices))

    assert action == DeleteSlice(slices[0].key, slices[0].uid, "nobody is left in it")


def test_what_kubernetes_wrote_goes_once_ours_is_there_and_the_selector_is_gone() -> None:
    world = seen(a_worker(1), selecting="uid-of-service", slices=(kubernetes_slice(),))

    assert [type(action) for action in plan_endpoints(world)] == [ApplySlice, TakeSelector, DeleteSlice]
    # What a copier has made of the Endpoints since is taken away in the same way, whoever was interrupted before.
    copied = seen(slices=(kubernetes_slice("endpointslicemirroring-controller.k8s.io"),))
    assert [type(action) for action in plan_endpoints(copied)] == [TakeSelector, DeleteSlice]


def test_a_slice_that_somebody_else_adds_to_the_service_is_theirs() -> None:
    assert plan_endpoints(seen(slices=(kubernetes_slice("somebody.example.com"),))) == ()


def test_a_slice_that_only_says_that_it_is_ours_is_not() -> None:
    (action,) = plan_endpoints(seen(a_worker(1)))
    assert isinstance(action, ApplySlice)
    metadata = {**action.manifest["metadata"], "uid": "forged", "ownerReferences": []}
    forged = parse_slice({**action.manifest, "metadata": metadata})

    assert forged is not None and not forged.ours


WORKERS = st.lists(
    st.tuples(st.integers(1, 500), st.booleans(), st.booleans(), st.booleans()), max_size=12, unique_by=lambda one: one[0]
)


@given(WORKERS, st.randoms(use_true_random=False))
def test_slices_follow_from_what_is_seen_in_whatever_order(workers: list[tuple[int, bool, bool, bool]], dice: object) -> None:
    pods = [a_worker(number, ready=up, deleting=going) for number, up, going, _ in workers]
    suspected = " ".join(f"w{number}" for number, _, _, doubted in workers if doubted)
    shuffled = list(pods)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    world = seen(*pods, suspected=suspected)

    assert desired(world) == desired(replace(world, pods=tuple(shuffled)))
    assert plan_endpoints(replace(world, slices=written(plan_endpoints(world)))) == ()
    # Suspicion takes nobody's last worker, and lets nobody in.
    trusted = ready(replace(world, suspected=frozenset()))
    assert ready(world) <= trusted
    assert bool(ready(world)) == bool(trusted)
    assert all(len(endpoints) <= 100 for _, _, endpoints in desired(world).values())

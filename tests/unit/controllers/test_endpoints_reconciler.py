"""Carrying out what is decided about endpoints: created once, never taken from somebody else, the selector only after ours is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inference_operator.controllers.endpoints_reconciler import EndpointsReconciler
from inference_operator.errors import RefusedError
from inference_operator.kube.ports import Raw
from inference_operator.state.endpoints import parse_slice
from inference_operator.state.objects import PodPhase
from inference_operator.state.store import Store
from tests.builders import a_job, a_pod
from tests.clock import Clock
from tests.unit.autoscaling.metricsapi.kube import FakeKube

JOB = a_job(serve=True)
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/job"


class Kube(FakeKube):
    """With merges of Services, told in order with all else."""

    async def merge(self, path: str, body: Raw) -> Raw:
        self._note("merge", path, body)
        return {}


class Bench:
    """A service with two workers, and an API server."""

    def __init__(self) -> None:
        self.kube, self.store = Kube(), Store()
        self.store.put_job(JOB)
        self.store.services[JOB.key] = JOB.uid
        for number in (1, 2):
            self.store.put_pod(replace(a_pod(JOB, number, uid=f"w{number}"), address=f"10.0.0.{number}"))
        self.clock = Clock()
        self.reconciler = EndpointsReconciler(self.store, self.kube, self.clock)

    async def look(self) -> list[tuple[str, str]]:
        """The writes of one look."""
        self.kube.asked.clear()
        await self.reconciler.reconcile(JOB.key)
        return [(verb, path) for verb, path, _ in self.kube.asked if verb != "get"]

    def ready(self) -> list[bool]:
        return [one["conditions"]["ready"] for one in self.kube.objects[f"{SLICES}/job-ipv4-0"]["endpoints"]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_slice_is_made_once_and_changed_when_a_worker_is_suspected(bench: Bench) -> None:
    assert await bench.look() == [("create", SLICES)]
    assert await bench.look() == []

    bench.store.suspected = frozenset({"w1"})
    assert await bench.look() == [("apply", f"{SLICES}/job-ipv4-0")]
    assert bench.ready() == [False, True]

    bench.store.suspected = frozenset()
    await bench.look()
    assert bench.ready() == [True, True]


async def test_ours_that_no_watch_has_shown_yet_is_brought_up_to_date(bench: Bench) -> None:
    await bench.look()
    bench.store.slices.put(JOB.key._replace(name="job-ipv4-0"), None)
    bench.store.suspected = frozenset({"w2"})

    assert await bench.look() == [("create", SLICES), ("apply", f"{SLICES}/job-ipv4-0")]
    assert bench.ready() == [True, False]


async def test_a_slice_of_somebody_else_is_left_alone_and_the_selector_stays(bench: Bench) -> None:
    bench.kube.put(f"{SLICES}/job-ipv4-0", {"metadata": {"name": "job-ipv4-0", "namespace": "default"}, "endpoints": []})
    bench.store.selecting[JOB.key] = "uid-of-service"

    with pytest.raises(RefusedError, match="of somebody else"):
        await bench.look()
    assert bench.kube.objects[f"{SLICES}/job-ipv4-0"]["endpoints"] == []
    assert bench.kube.did("merge", "apply", "delete") == []


async def test_what_kubernetes_wrote_goes_after_ours_is_there(bench: Bench) -> None:
    labels: dict[str, Any] = {
        "kubernetes.io/service-name": "job",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    theirs = bench.kube.put(f"{SLICES}/x7k2p", {"metadata": {"name": "x7k2p", "namespace": "default", "labels": labels}})
    bench.kube.put(ENDPOINTS, {"metadata": {"name": "job", "namespace": "default"}})
    found = parse_slice(theirs)
    assert found is not None
    bench.store.slices.put(found.key, found)
    bench.store.selecting[JOB.key] = "uid-of-service"

    assert await bench.look() == [
        ("create", SLICES),
        ("merge", "/api/v1/namespaces/default/services/job"),
        ("delete", ENDPOINTS),
        ("delete", f"{SLICES}/x7k2p"),
    ]
    assert list(bench.kube.objects) == [f"{SLICES}/job-ipv4-0"]
    assert await bench.look() == []


async def test_a_job_without_a_service_has_no_endpoints(bench: Bench) -> None:
    bench.store.services.clear()

    assert await bench.look() == []


async def test_a_headless_service_has_the_same_endpoints(bench: Bench) -> None:
    bench.store.services[JOB.key._replace(name="job-headless")] = JOB.uid

    assert await bench.look() == [("create", SLICES), ("create", SLICES)]
    plain, headless = (bench.kube.objects[f"{SLICES}/{name}-ipv4-0"] for name in ("job", "job-headless"))
    assert plain["endpoints"] == headless["endpoints"]
    assert headless["metadata"]["labels"]["kubernetes.io/service-name"] == "job-headless"


async def test_a_slice_that_is_refused_keeps_no_dead_worker_in_another(bench: Bench) -> None:
    """One name that was taken, and the headless Service led to dead workers for ever."""
    bench.store.services[JOB.key._replace(name="job-headless")] = JOB.uid
    bench.kube.put(f"{SLICES}/job-ipv4-0", {"metadata": {"name": "job-ipv4-0", "namespace": "default"}, "endpoints": []})
    bench.store.put_pod(replace(a_pod(JOB, 120, uid="w120"), address="10.0.0.120"))

    with pytest.raises(RefusedError, match="of somebody else"):
        await bench.look()

    assert {name.removeprefix(f"{SLICES}/") for name in bench.kube.objects} == {
        "job-ipv4-0",
        "job-ipv4-1",
        "job-headless-ipv4-0",
        "job-headless-ipv4-1",
    }


async def test_a_slice_that_nobody_is_left_in_goes_although_another_is_refused(bench: Bench) -> None:
    bench.store.put_pod(replace(a_pod(JOB, 120, uid="w120"), address="10.0.0.120"))
    await bench.look()
    for number, version in ((1, "2"), (2, "2")):
        bench.store.put_pod(replace(a_pod(JOB, number, uid=f"w{number}", phase=PodPhase.FAILED), resource_version=version))
    bench.store.suspected = frozenset({"w120"})
    bench.store.put_pod(replace(a_pod(JOB, 121, uid="w121"), address="10.0.0.121"))
    bench.kube.before[f"apply {SLICES}/job-ipv4-1"] = denied

    with pytest.raises(RefusedError, match="not today"):
        await bench.look()

    assert bench.kube.did("delete") == [f"{SLICES}/job-ipv4-0"]


def denied() -> None:
    raise RefusedError(403, "Forbidden", "not today")


async def test_what_a_webhook_changes_is_applied_ever_more_seldom_and_a_new_word_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was applied at each look, and each had the next: eighty requests a second, for one job."""
    apply, stamps = bench.kube.apply, iter(range(1000))

    async def stamped(path: str, body: Raw) -> Raw:
        return await apply(path, {**body, "endpoints": [{**one, "zone": f"z{next(stamps)}"} for one in body["endpoints"]]})

    await bench.look()
    monkeypatch.setattr(bench.kube, "apply", stamped)
    bench.store.suspected = frozenset({"w1"})
    applied = 0
    for _ in range(600):
        with pytest.raises(RefusedError, match="an admission webhook changes it"):
            await bench.look()
        applied += len(bench.kube.did("apply"))
        bench.clock.seconds += 1.0
    assert 10 <= applied <= 20

    bench.store.suspected = frozenset({"w2"})
    with pytest.raises(RefusedError, match="an admission webhook changes it"):
        await bench.look()
    assert bench.ready() == [True, False]

    monkeypatch.setattr(bench.kube, "apply", apply)
    bench.clock.seconds += 60.0
    assert await bench.look() == [("apply", f"{SLICES}/job-ipv4-0")]
    assert await bench.look() == []

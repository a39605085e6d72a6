"""Batches in queues of the real Kueue. `make test-kueue`.

Real: API server, controller manager, Kueue with its webhooks, the operator with the chart's rights. Simulated: nodes and workers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dev.cluster import Layout, api_only_control_plane, start_api_only, stop_api_only
from dev.kueue import API, Kueue, crds
from tests.cluster import kueue
from tests.cluster.client import Client, Raw, jobs, models, pods
from tests.cluster.conftest import REPOSITORY, Cluster, free_row, make_namespace
from tests.cluster.objects import a_batch, a_model, condition, reason
from tests.cluster.operators import NODE, SUCCESS, Installed, Release, install, make_node, start, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.skipif(os.environ.get("INFERENCE_KUEUE") != "all", reason="make test-kueue")

RELEASE = Release(values=("kueue.enabled=true",))
ONE = {"cpu": "500m", "memory": "2Gi"}


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane, and Kueue."""
    folder = tmp_path_factory.mktemp("kueue")
    base = free_row(8)
    plane = api_only_control_plane(Layout(folder / "state"), port_base=base)
    process = None
    try:
        kubeconfig = start_api_only(plane, crds())
        cluster = Cluster(Client(kubeconfig), kubeconfig, plane.layout.audit_log)
        cluster.kubectl("apply", "-f", str(REPOSITORY / "crds"))
        manager = Kueue(plane.layout, folder, webhook_port=base + 6, health_port=base + 7)
        process = manager.start(kubeconfig)
        kueue.wait_ready(process, manager)
        kueue.install_webhooks(cluster.client, manager)
        make_node(cluster.client, NODE, {"zone": "a"})
        make_node(cluster.client, "node-2", {"zone": "b"})
        kueue.make_flavor(cluster.client, "any")
        kueue.make_flavor(cluster.client, "zone-b", zone="b")
        yield cluster
    finally:
        if process is not None:
            process.terminate()
            process.wait(timeout=30)
        stop_api_only(plane)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operator")


@pytest.fixture(scope="module")
def operator(queued: Cluster, folder: Path) -> Iterator[list[Installed]]:
    """The operator that runs now; a test that replaces it puts the next one here."""
    running = [install(queued, folder, RELEASE)]
    yield running
    running[0].stop()


@pytest.fixture
def space(queued: Cluster) -> str:
    namespace = make_namespace(queued.client)
    queued.client.create(models(namespace), a_model())
    return namespace


def words(job: Raw) -> str:
    return str(condition(job, "Placed").get("message", ""))


def waiting(operator: list[Installed], namespace: str, name: str) -> Raw:
    return operator[0].wait_reason(namespace, "WaitingForQuota", name=name, kind="Placed")


def ended(operator: list[Installed], namespace: str, name: str, *, number: int = 1) -> Raw:
    """Play an attempt to its end; the job then."""
    operator[0].play(namespace, SUCCESS, name=name, number=number)
    return operator[0].wait_reason(namespace, "Succeeded", name=name, kind="Succeeded")


def workload_of(cluster: Cluster, namespace: str, name: str) -> Raw:
    found = [one for one in kueue.workloads(cluster.client, namespace) if one["metadata"]["ownerReferences"][0]["name"] == name]
    assert len(found) == 1, found
    return found[0]


def test_of_two_batches_with_quota_for_one_the_second_waits_with_kueues_words(
    queued: Cluster, operator: list[Installed], space: str
) -> None:
    kueue.make_queue(queued.client, space, f"two-{space}", {"any": ONE})
    for name in ("first", "second"):
        queued.client.create(jobs(space), a_batch(name, queueName=f"two-{space}"))
        if name == "first":
            operator[0].worker(space, name="first")
    second = until(lambda: (job := operator[0].job(space, "second")) and "insufficient unused quota" in words(job) and job, "words")

    assert reason(second, "Ready") == "WaitingForQuota"
    assert second["status"]["phase"] == "Waiting"
    assert not queued.client.get(f"{pods(space)}?labelSelector=inference.myorg/job=second")["items"]

    ended(operator, space, "first")
    until(lambda: kueue.holds(workload_of(queued, space, "first"), "Finished"), "the end of the first Workload")
    ended(operator, space, "second")
    until(lambda: kueue.holds(workload_of(queued, space, "second"), "Finished"), "the end of the second Workload")


def test_a_preempted_batch_stops_and_goes_on_later_and_no_attempt_is_counted(
    queued: Cluster, operator: list[Installed], space: str
) -> None:
    kueue.make_queue(queued.client, space, f"prio-{space}", {"any": ONE}, preempts=True)
    queued.client.create(jobs(space), a_batch("low", queueName=f"prio-{space}", maxAttempts=1))
    operator[0].run(operator[0].worker(space, name="low"))
    operator[0].wait_reason(space, "Running", name="low")
    until(lambda: kueue.holds(workload_of(queued, space, "low"), "PodsReady"), "the word that the worker runs")

    queued.client.create(jobs(space), a_batch("high", queueName=f"prio-{space}", priority=9))
    pod = operator[0].worker(space, name="low")
    path = f"{pods(space)}/{pod['metadata']['name']}"
    until(lambda: "deletionTimestamp" in queued.client.get(path)["metadata"], "the end of the low worker")
    # Nothing is given to the other before the worker has stopped.
    assert not kueue.holds(workload_of(queued, space, "high"), "QuotaReserved")
    queued.client.delete(path, {"gracePeriodSeconds": 0})

    ended(operator, space, "high")
    low = ended(operator, space, "low", number=2)
    assert low["status"].get("failedAttempts", 0) == 0
    assert low["status"]["preemptions"] == 1


def test_a_flavor_with_labels_narrows_the_nodes(queued: Cluster, operator: list[Installed], space: str) -> None:
    kueue.make_queue(queued.client, space, f"flavor-{space}", {"zone-b": ONE})
    queued.client.create(jobs(space), a_batch(queueName=f"flavor-{space}"))
    pod = operator[0].worker(space)

    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [value for one in term["matchFields"] for value in one["values"]] == ["node-2"]
    assert pod["spec"]["nodeSelector"] == {"zone": "b"}


def test_a_queue_that_does_not_exist_is_waited_for(queued: Cluster, operator: list[Installed], space: str) -> None:
    queued.client.create(jobs(space), a_batch(queueName=f"later-{space}"))
    until(lambda: f"LocalQueue later-{space} doesn't exist" in words(operator[0].job(space)), "Kueue's words")

    kueue.make_queue(queued.client, space, f"later-{space}", {"any": ONE})
    operator[0].worker(space)


def test_an_operator_that_is_restarted_in_between_makes_no_second_workload(
    queued: Cluster, operator: list[Installed], folder: Path, space: str
) -> None:
    kueue.make_queue(queued.client, space, f"again-{space}", {"any": ONE})
    for name in ("runs", "waits"):
        queued.client.create(jobs(space), a_batch(name, queueName=f"again-{space}"))
        if name == "runs":
            operator[0].run(operator[0].worker(space, name="runs"))
            operator[0].wait_reason(space, "Running", name="runs")
    waiting(operator, space, "waits")
    before = {one["metadata"]["uid"] for one in kueue.workloads(queued.client, space)}
    operator[0].process.kill()
    operator[0].process.wait(timeout=30)

    operator[0] = start(queued, folder, RELEASE)
    pod = operator[0].worker(space, name="runs")
    operator[0].end(pod, SUCCESS)
    operator[0].wait_reason(space, "Succeeded", name="runs", kind="Succeeded")
    ended(operator, space, "waits")
    assert {one["metadata"]["uid"] for one in kueue.workloads(queued.client, space)} == before
    assert operator[0].job(space, "runs")["status"]["attempts"] == 1


def test_a_suspended_batch_frees_its_quota_and_queues_again(queued: Cluster, operator: list[Installed], space: str) -> None:
    kueue.make_queue(queued.client, space, f"stop-{space}", {"any": ONE})
    queued.client.create(jobs(space), a_batch("stops", queueName=f"stop-{space}"))
    pod = operator[0].worker(space, name="stops")
    queued.client.create(jobs(space), a_batch("next", queueName=f"stop-{space}"))
    waiting(operator, space, "next")

    queued.client.merge(f"{jobs(space)}/stops", {"spec": {"suspend": True}})
    path = f"{pods(space)}/{pod['metadata']['name']}"
    until(lambda: queued.client.call("GET", path).code == 404, "the end of a pod that nobody had started")
    ended(operator, space, "next")

    queued.client.merge(f"{jobs(space)}/stops", {"spec": {"suspend": False}})
    ended(operator, space, "stops", number=2)


def test_a_workload_that_somebody_deletes_is_an_eviction(queued: Cluster, operator: list[Installed], space: str) -> None:
    kueue.make_queue(queued.client, space, f"gone-{space}", {"any": ONE})
    queued.client.create(jobs(space), a_batch(queueName=f"gone-{space}"))
    operator[0].run(operator[0].worker(space))
    operator[0].wait_reason(space, "Running")
    workload = workload_of(queued, space, "job")
    queued.client.delete(f"{API}/namespaces/{space}/workloads/{workload['metadata']['name']}")

    pod = operator[0].worker(space)
    path = f"{pods(space)}/{pod['metadata']['name']}"
    until(lambda: "deletionTimestamp" in queued.client.get(path)["metadata"], "the end of the worker")
    queued.client.delete(path, {"gracePeriodSeconds": 0})
    job = ended(operator, space, "job", number=2)
    assert job["status"].get("failedAttempts", 0) == 0
    assert workload_of(queued, space, "job")["metadata"]["uid"] != workload["metadata"]["uid"]


def test_a_deleted_batch_leaves_no_workload(queued: Cluster, operator: list[Installed], space: str) -> None:
    queued.client.create(jobs(space), a_batch(queueName="nowhere"))
    until(lambda: kueue.workloads(queued.client, space), "the Workload")
    queued.client.delete(f"{jobs(space)}/job")

    until(lambda: not kueue.workloads(queued.client, space), "the Workload's end")


def test_a_workload_that_the_operator_may_not_make_is_refused_by_its_policy(
    queued: Cluster, operator: list[Installed], space: str
) -> None:
    """Whoever has the operator's token admits nothing."""
    queued.client.create(jobs(space), a_batch(queueName="nowhere"))
    (found,) = until(lambda: kueue.workloads(queued.client, space), "the Workload")
    thief = Client(queued.kubeconfig, token=operator[0].token)
    path = f"{API}/namespaces/{space}/workloads/{found['metadata']['name']}"
    admission = {"clusterQueue": "all", "podSetAssignments": [{"name": "worker"}]}
    admits = {"type": "Admitted", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    merge = "application/merge-patch+json"

    def tried(target: str, body: Raw) -> str:
        return thief.call("PATCH", target, body, kind=merge).message

    assert "reserves no quota" in tried(f"{path}/status", {"status": {"admission": admission}})
    assert "admits no Workload" in tried(f"{path}/status", {"status": {"conditions": [admits]}})
    assert "neither the pods nor the queue" in tried(path, {"spec": {"queueName": "other"}})
    assert "only what has its labels" in tried(path, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}})
    assert "only what has its labels" in thief.call("POST", f"{API}/namespaces/{space}/workloads", {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "mine"}, "spec": found["spec"],
    }).message  # fmt: skip

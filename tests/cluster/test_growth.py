"""A cluster of no GPU node, which the real Karpenter grows for one job with a deadline and shrinks again. `make test-growth`.

Real: API server, controller manager, kube-scheduler, Karpenter, the operator with the chart's rights. Simulated: the kubelets of the
nodes that Karpenter's kwok provider makes, and so the worker.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.cluster import Layout, api_only_control_plane, start_api_only, stop_api_only
from tests.cluster import karpenter
from tests.cluster.client import Client, Raw, jobs, models, pods
from tests.cluster.conftest import REPOSITORY, Cluster, free_row, make_namespace
from tests.cluster.karpenter import SimulatedKubelet
from tests.cluster.objects import DIGEST, a_batch, a_model, condition, reason
from tests.cluster.operators import Installed, Release, install, make_node, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.environ.get("INFERENCE_GROWTH") != "all", reason="make test-growth")

REGISTERS_SECONDS, BOOT_SECONDS, WORK_SECONDS, EMPTY_SECONDS = 15, 5.0, 8.0, 10
# What the administrator says; a busy machine takes less.
SAID_SECONDS = 300
PROVISIONING = "accelerators.gpu.provisioning"
VALUES = (
    f"{PROVISIONING}.allocatable.cpu=7",
    f"{PROVISIONING}.allocatable.memory=30Gi",
    rf"{PROVISIONING}.allocatable.nvidia\.com/gpu=1",
    f"{PROVISIONING}.nodeSeconds={SAID_SECONDS}",
    f"{PROVISIONING}.timeoutSeconds=90",
)
SHOWN = Path(os.environ.get("INFERENCE_GROWTH_STORY", "/dev/null"))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane with a scheduler, and Karpenter."""
    folder = tmp_path_factory.mktemp("growth")
    base = free_row(8)
    plane = replace(api_only_control_plane(Layout(folder / "state"), port_base=base), has_scheduler=True)
    process = kubelet = None
    try:
        kubeconfig = start_api_only(plane, karpenter.crds())
        cluster = Cluster(Client(kubeconfig), kubeconfig, plane.layout.audit_log)
        cluster.kubectl("apply", "-f", str(REPOSITORY / "crds"))
        process = karpenter.start(kubeconfig, folder, metrics_port=base + 6, health_port=base + 7)
        make_node(cluster.client, "cpu-1")
        kubelet = SimulatedKubelet(Client(kubeconfig), BOOT_SECONDS, WORK_SECONDS)
        yield cluster
    finally:
        if kubelet is not None:
            kubelet.stop()
        if process is not None:
            process.terminate()
            process.wait(timeout=30)
        stop_api_only(plane)


@pytest.fixture(scope="module")
def installed(grown: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    made = install(grown, tmp_path_factory.mktemp("operator"), Release(values=VALUES))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def space(grown: Cluster, installed: Installed) -> str:
    """A namespace with a model that is known to answer an item in four seconds."""
    namespace = make_namespace(grown.client)
    grown.client.create(models(namespace), a_model(versions=[{"name": "1", "uri": "file:///models/m.onnx", "digest": DIGEST}]))
    profile = {
        "digest": DIGEST, "accelerator": "gpu", "backend": "onnx", "batchSize": 1, "samples": 9,
        "itemsPerSecond": 0.25, "loadSeconds": 1.0, "observedTime": _in(0),
    }  # fmt: skip
    grown.client.merge(f"{models(namespace)}/digits/status", {"status": {"profiles": [profile]}})
    return namespace


def _in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Story:
    """What is seen of a job and the cluster, step by step, in seconds from the job's birth."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._began = datetime.now(UTC)
        self.steps: list[tuple[float, str, str]] = []
        self._last: dict[str, str] = {}

    def look(self) -> Raw:
        """Note what is new; return the job."""
        job = self._client.get(f"{jobs(self._namespace)}/{self._name}")
        status = job.get("status", {})
        due, queue = status.get("deadline", {}), status.get("queue", {})
        expected = f", expected to start {self._seconds(queue['expectedStartTime'])}" if "expectedStartTime" in queue else ""
        slack = f", slack {due['slackSeconds']} s" if "slackSeconds" in due else ""
        self._note("job", f"{status.get('phase')}/{status.get('reason')}: {due.get('outlook')}{slack}{expected}")
        for pod in self._client.get(pods(self._namespace))["items"]:
            labels = pod["metadata"]["labels"]
            kind = "placeholder" if "inference.myorg/placeholder-for" in labels else "worker"
            self._note(f"{kind} pod", f"{pod['status']['phase']}, {'on a node' if pod['spec'].get('nodeName') else 'no node'}")
        claims = self._client.get("/apis/karpenter.sh/v1/nodeclaims")["items"]
        nodes = [n for n in self._client.get("/api/v1/nodes")["items"] if n["metadata"]["name"] != "cpu-1"]
        ready = sum(any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", ())) for n in nodes)
        self._note("cluster", f"{len(claims)} NodeClaims, {len(nodes)} GPU nodes, {ready} ready")
        return job

    def _seconds(self, instant: str) -> str:
        return f"at {(datetime.fromisoformat(instant) - self._began).total_seconds():.0f} s"

    def _note(self, who: str, what: str) -> None:
        if self._last.get(who) != what:
            self._last[who] = what
            self.steps.append(((datetime.now(UTC) - self._began).total_seconds(), who, what))

    def until(self, holds: Callable[[Raw], bool], what: str, *, seconds: float) -> Raw:
        found: Raw = until(lambda: (job := self.look()) and holds(job) and job, what, seconds=seconds)
        return found

    def __str__(self) -> str:
        return "\n".join(f"| {at:.1f} | {who} | {what} |" for at, who, what in self.steps)


def nodes(cluster: Cluster) -> set[str]:
    return {node["metadata"]["name"] for node in cluster.client.get("/api/v1/nodes")["items"]}


def test_karpenter_grows_the_cluster_for_a_job_with_a_deadline_and_shrinks_it_again(
    grown: Cluster, installed: Installed, space: str
) -> None:
    story = Story(grown.client, space, "due")
    grown.client.create(jobs(space), a_batch("due", accelerator="gpu", deadline=_in(2 * SAID_SECONDS)))
    waits = story.until(lambda job: reason(job, "Placed") == "Provisioning", "the wait for a node", seconds=60)
    assert waits["status"]["deadline"]["outlook"] == "OnTime"
    # Nobody has made a pool yet: a placeholder is Pending, and no more.
    for path, body in karpenter.node_pool(registration_seconds=REGISTERS_SECONDS, empty_seconds=EMPTY_SECONDS):
        grown.client.create(path, body)
    done = story.until(lambda job: reason(job, "Succeeded") == "Succeeded", "the end of the work", seconds=SAID_SECONDS)
    story.until(lambda _: nodes(grown) == {"cpu-1"}, "the end of the node", seconds=SAID_SECONDS)
    SHOWN.write_text(f"{story}\n\n{_events(grown, space)}\n")

    assert done["status"]["deadline"]["outlook"] == "Met"
    (entry,) = done["status"]["provisioning"]
    assert entry["node"].startswith("kwok-gpu-")
    assert REGISTERS_SECONDS + BOOT_SECONDS <= entry["seconds"] < SAID_SECONDS
    assert done["status"]["placement"]["node"] == entry["node"]
    assert [pod["metadata"]["name"] for pod in grown.client.get(pods(space))["items"]] in ([], [entry_pod(done)])


def entry_pod(job: Raw) -> str:
    return str(job["status"]["lastAttempt"]["pod"])


def test_what_that_node_took_counts_for_the_next_deadline(grown: Cluster, installed: Installed, space: str) -> None:
    """It took some 25 s, much less than the administrator has said."""
    grown.client.create(jobs(space), a_batch("next", accelerator="gpu", deadline=_in(10), deadlinePolicy="Firm"))
    job = installed.wait_reason(space, "DeadlineInfeasible", name="next")
    message = condition(job, "Ready")["message"]

    assert "even if it starts on a new node of class gpu, which takes some " in message
    assert int(message.partition("which takes some ")[2].partition(" s")[0]) < SAID_SECONDS


def test_a_job_that_is_deleted_takes_its_placeholder_along(grown: Cluster, installed: Installed, space: str) -> None:
    grown.client.create(jobs(space), a_batch("gone", accelerator="gpu", nodeSelector={"zone": "nowhere"}))
    until(lambda: reason(installed.job(space, "gone"), "Placed") == "NoNodeFits", "the refusal of a node that there can't be")
    grown.client.create(jobs(space), a_batch("asks", accelerator="gpu"))
    placeholders = f"{pods(space)}?labelSelector=inference.myorg/job=asks,app.kubernetes.io/name=inference-placeholder"
    until(lambda: grown.client.get(placeholders)["items"], "the placeholder")
    grown.client.delete(f"{jobs(space)}/asks")

    until(lambda: not grown.client.get(placeholders)["items"], "the placeholder's end")
    until(lambda: nodes(grown) == {"cpu-1"}, "the end of the node", seconds=SAID_SECONDS)


def _events(cluster: Cluster, namespace: str) -> str:
    found = cluster.client.get("/api/v1/events")["items"]
    told = [
        (one.get("eventTime") or one.get("firstTimestamp") or "", one["involvedObject"]["kind"], one["reason"], one["message"])
        for one in found
        if one["involvedObject"]["kind"] in ("InferenceJob", "Pod", "NodeClaim", "Node")
    ]
    return "\n".join(f"| {at} | {kind} | {why} | {message} |" for at, kind, why, message in sorted(told))

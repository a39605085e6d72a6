"""The operator against the real API server, with the rights that the chart gives it; and the parts that no node plays here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dev.tools import ensure
from inference_protocol.messages import Latency, ModelFacts, Progress, TerminationReport, encode_report
from inference_protocol.reasons import WorkerReason
from tests.cluster.client import Client, Raw, jobs, pods
from tests.cluster.objects import DIGEST, reason
from tests.component.operators import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.conftest import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
RELEASE_NAMESPACE = "inference-system"
ACCOUNT = "inference-operator"
USER = f"system:serviceaccount:{RELEASE_NAMESPACE}:{ACCOUNT}"
NODE = "node-1"
# Long enough for a busy machine; a test waits this long only when it is about to fail.
PATIENCE_SECONDS = 60.0
_FACTS = ModelFacts(
    digest=DIGEST,
    provider="CPUExecutionProvider",
    load_seconds=0.2,
    warmup_seconds=0.1,
    batch_size=1,
    memory_bytes=1 << 26,
    items_per_second=100.0,
)
SUCCESS = TerminationReport(
    outcome="Succeeded",
    message="2 items",
    model=_FACTS,
    progress=Progress(total=2, completed=2),
    latency=Latency(p50=1.0, p95=2.0, p99=3.0, count=2),
    output='{"y": 1}\n{"y": 2}',
)
FAILURE = TerminationReport(outcome="Failed", message="there is no such file", reason=WorkerReason.MODEL_NOT_FOUND)
PROBLEM = TerminationReport(outcome="Failed", message="the network was away", reason=WorkerReason.MODEL_UNREACHABLE)


def until(condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE_SECONDS) -> Any:
    """Poll until it holds, and return what it gave; the limit is only there so that a broken operator fails a test."""
    give_up = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)
    return found


def writes_of(cluster: Cluster) -> Counter[tuple[str, str]]:
    """How often the operator has written the status of each job, by namespace and name."""
    seen = [e["objectRef"] for e in cluster.audited() if e["user"]["username"] == USER and e["verb"] == "patch"]
    return Counter((one["namespace"], one["name"]) for one in seen if one["resource"] == "inferencejobs")


@dataclass
class Installed:
    """A running operator."""

    process: subprocess.Popen[bytes]
    log_file: Path
    token: str
    client: Client

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def job(self, namespace: str, name: str = "job") -> Raw:
        return self.client.get(f"{jobs(namespace)}/{name}")

    def wait_reason(
        self, namespace: str, wanted: str, *, name: str = "job", kind: str = "Ready", seconds: float = PATIENCE_SECONDS
    ) -> Raw:
        """The job, once a condition has a reason."""

        def look() -> Raw | None:
            job = self.job(namespace, name)
            return job if reason(job, kind) == wanted else None

        try:
            found: Raw = until(look, f"{kind} {wanted} of {namespace}/{name}", seconds=seconds)
        except TimeoutError as error:
            error.add_note(f"its conditions: {self.job(namespace, name).get('status', {}).get('conditions')}")
            raise
        return found

    def worker(self, namespace: str, number: int = 1, *, name: str = "job", seconds: float = PATIENCE_SECONDS) -> Raw:
        """The pod of an attempt, once it is there."""
        query = f"{pods(namespace)}?labelSelector=inference.myorg/job={name},inference.myorg/attempt={number}"
        found: list[Raw] = until(lambda: self.client.get(query)["items"], f"worker {number} of {name}", seconds=seconds)
        return found[0]

    def run(self, pod: Raw) -> None:
        """Bind a pod and have it running and ready."""
        path = f"{pods(pod['metadata']['namespace'])}/{pod['metadata']['name']}"
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": {"name": NODE}}
        self.client.create(f"{path}/binding", binding)
        ready = {"type": "Ready", "status": "True"}
        # An address that an EndpointSlice may have and that no packet is sent to: TCP knows no multicast.
        address = f"239.255.0.{pod['metadata']['labels']['inference.myorg/attempt']}"
        state = {"name": "worker", "state": {"running": {"startedAt": _now()}}, **_CONTAINER}
        status = {
            "phase": "Running",
            "conditions": [ready],
            "containerStatuses": [state],
            "podIP": address,
            "podIPs": [{"ip": address}],
        }
        self.client.merge(f"{path}/status", {"status": status})

    def end(self, pod: Raw, report: TerminationReport) -> None:
        """The worker's end, as its kubelet would tell it."""
        code = 0 if report.outcome == "Succeeded" else 1
        last = {"exitCode": code, "startedAt": _now(), "finishedAt": _now(), "message": encode_report(report).decode()}
        state = {"name": "worker", "state": {"terminated": last}, **_CONTAINER}
        status = {"phase": "Succeeded" if code == 0 else "Failed", "conditions": [], "containerStatuses": [state]}
        path = f"{pods(pod['metadata']['namespace'])}/{pod['metadata']['name']}"
        self.client.merge(f"{path}/status", {"status": status})

    def play(self, namespace: str, report: TerminationReport, *, name: str = "job", number: int = 1) -> None:
        """One attempt from its pod's birth to its end."""
        pod = self.worker(namespace, number, name=name)
        self.run(pod)
        self.wait_reason(namespace, "Running", name=name)
        self.end(pod, report)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=PATIENCE_SECONDS)
        finally:
            self.process.kill()


_CONTAINER = {"image": "worker", "imageID": "", "ready": True, "restartCount": 0}


RIGHTS = ("rbac.yaml", "serviceaccount.yaml", "custom-metrics-rbac.yaml", "secrets.yaml", "admission-policies.yaml")
"""The templates that say what the operator may do."""


@dataclass(frozen=True)
class Release:
    """One of the chart's, by its namespace and values; `account` is the name of all that it makes."""

    namespace: str = RELEASE_NAMESPACE
    account: str = ACCOUNT
    values: tuple[str, ...] = ()
    # Nobody runs it here: `auto` takes it for no job.
    triton: str = "nvcr.io/nvidia/tritonserver:25.01-py3"

    def render(self, *templates: str) -> str:
        """Templates of the chart, as `helm install` would make them."""
        helm = ensure("helm") / "helm"
        shown = [part for name in templates for part in ("-s", f"templates/{name}")]
        values = [part for value in self.values for part in ("--set", value)]
        command = [str(helm), "template", self.account, "charts/inference-operator", "--namespace", self.namespace, *shown]
        command += ["--set", f"fullnameOverride={self.account}", "--set", f"backends.triton.image={self.triton}", *values]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def install(cluster: Cluster, folder: Path, release: Release = Release()) -> Installed:
    """Apply what the chart has of rights, policies and Secrets, and start the operator."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=release.render(*RIGHTS))
    return start(cluster, folder, release)


def start(cluster: Cluster, folder: Path, release: Release = Release()) -> Installed:
    """Start the operator with the token of the release's account, which is there."""
    path = f"/api/v1/namespaces/{release.namespace}/serviceaccounts/{release.account}/token"
    token = cluster.client.create(path, {"spec": {"expirationSeconds": 7200}})["status"]["token"]
    log = folder / "operator.log"
    with log.open("wb") as target:
        process = subprocess.Popen(
            [sys.executable, "-m", "inference_operator"],
            env={**environment(), **_variables(cluster, folder, token, release)},
            stdout=target,
            stderr=target,
        )
    made = Installed(process, log, token, cluster.client)
    try:
        until(lambda: "leading as" in made.log or process.poll() is not None, "the operator")
        assert process.poll() is None, made.log
    except BaseException:
        process.kill()
        raise
    return made


def render(*templates: str) -> str:
    """Templates of the chart, as `helm install inference-operator` would make them."""
    return Release().render(*templates)


def _variables(cluster: Cluster, folder: Path, token: str, release: Release) -> dict[str, str]:
    document = json.loads(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    kubeconfig, config = folder / "kubeconfig", folder / "config.yaml"
    kubeconfig.write_text(json.dumps(document))
    settings = yaml.safe_load(yaml.safe_load(release.render("configmap.yaml"))["data"]["config.yaml"])
    # Nothing comes through the aggregator to where this runs.
    quick = {"httpPort": 0, "backoffSeconds": 0.1, "telemetrySeconds": 3600, "customMetrics": {"enabled": False}}
    config.write_text(json.dumps(settings | quick))
    return {
        "KUBECONFIG": str(kubeconfig),
        "INFERENCE_OPERATOR_CONFIG": str(config),
        "POD_NAMESPACE": release.namespace,
    }


def make_node(client: Client, name: str, labels: dict[str, str] | None = None) -> None:
    """A node that has room and no kubelet."""
    client.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}}})
    # Admission taints a new node as not ready, and nobody here takes the taint away.
    client.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastTransitionTime": _now()}
    room = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    client.merge(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": room, "capacity": room, "conditions": [ready]}})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

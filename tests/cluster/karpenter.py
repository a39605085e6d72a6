"""The real Karpenter with its kwok provider, and what no kubelet plays on the nodes that it makes. Workers there are simulated."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml

from dev.tools import ensure, share
from inference_protocol.messages import encode_report
from tests.cluster.client import Client, Raw
from tests.cluster.operators import SUCCESS
from tests.component.operators import environment

if TYPE_CHECKING:
    from pathlib import Path

GPU = "nvidia.com/gpu"
TYPES = [
    {
        "name": "one-gpu",
        "offerings": [
            {
                "Price": 1.0,
                "Available": True,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
                ],
            }
        ],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110", GPU: "1"},
    }
]


def crds() -> list[Raw]:
    """Karpenter's CustomResourceDefinitions, and those of its provider."""
    files = [*share("karpenter", "crds").glob("*.yaml"), *share("karpenter", "kwok-crds").glob("*.yaml")]
    return [yaml.safe_load(path.read_text()) for path in sorted(files)]


def node_pool(*, registration_seconds: int, empty_seconds: int, gpus: int = 10) -> tuple[tuple[str, Raw], ...]:
    """The paths and bodies of a NodePool of GPU nodes: how long a machine takes to register, and how long an empty node stays."""
    requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["one-gpu"]}]
    template = {
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": requirements,
            "taints": [{"key": GPU, "effect": "NoSchedule"}],
            "expireAfter": "Never",
        }
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": f"{empty_seconds}s"}
    pool = {"template": template, "disruption": disruption, "limits": {GPU: str(gpus)}}
    return (
        ("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", _object("KWOKNodeClass", "karpenter.kwok.sh/v1alpha1", "default",
            {"nodeRegistrationDelay": f"{registration_seconds}s"})),
        ("/apis/karpenter.sh/v1/nodepools", _object("NodePool", "karpenter.sh/v1", "gpu", pool)),
    )  # fmt: skip


def _object(kind: str, version: str, name: str, spec: Raw) -> Raw:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def start(kubeconfig: Path, folder: Path, *, metrics_port: int, health_port: int) -> subprocess.Popen[bytes]:
    """Start Karpenter as the administrator; it ends with the test that has begun it."""
    types = folder / "instance-types.json"
    types.write_text(json.dumps(TYPES))
    variables = {
        "KUBECONFIG": str(kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "kube-system",
        "METRICS_PORT": str(metrics_port),
        "HEALTH_PROBE_PORT": str(health_port),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "KUBERNETES_MIN_VERSION": "1.19.0-0",
    }
    with (folder / "karpenter.log").open("wb") as log:
        program = str(ensure("karpenter") / "karpenter")
        return subprocess.Popen([program], env={**environment(), **variables}, stdout=log, stderr=log)


@dataclass
class SimulatedKubelet:
    """Nodes of Karpenter turn ready, pods there run and end: what kubelets would tell, in a thread of its own until it is stopped."""

    client: Client
    # From the node's registration to its being ready, and how long a worker's work takes.
    boot_seconds: float
    work_seconds: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            nodes = self.client.get("/api/v1/nodes")["items"]
            ours = {node["metadata"]["name"] for node in nodes if node["spec"].get("providerID", "").startswith("kwok://")}
            for node in nodes:
                if node["metadata"]["name"] in ours:
                    self._boot(node)
            for pod in self.client.get("/api/v1/pods")["items"]:
                if pod["spec"].get("nodeName") in ours:
                    self._play(pod)

    def _age(self, raw: Raw) -> float:
        now = datetime.now(UTC).timestamp()
        return now - self._since.setdefault(raw["metadata"]["uid"], now)

    def _boot(self, node: Raw) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        kinds = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions") or ()}
        if kinds.get("Ready") == "True" or self._age(node) < self.boot_seconds:
            return
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastTransitionTime": _now()}
        self.client.call("PATCH", f"{path}/status", {"status": {"conditions": [ready]}}, kind="application/merge-patch+json")
        # The node lifecycle controller, which would take admission's taint away, does not run here: nobody renews leases.
        kept = [taint for taint in node["spec"].get("taints", ()) if taint["key"] != "node.kubernetes.io/not-ready"]
        self.client.call("PATCH", path, {"spec": {"taints": kept}}, kind="application/merge-patch+json")

    def _play(self, pod: Raw) -> None:
        meta, status = pod["metadata"], pod["status"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if "deletionTimestamp" in meta:
            self.client.delete(path, {"gracePeriodSeconds": 0})
        elif status["phase"] == "Pending":
            self._age(pod)
            self._tell(path, "Running", {"running": {"startedAt": _now()}})
        elif status["phase"] == "Running" and "inference.myorg/attempt" in meta["labels"] and self._age(pod) >= self.work_seconds:
            begun = status["containerStatuses"][0]["state"]["running"]["startedAt"]
            last = {"exitCode": 0, "startedAt": begun, "finishedAt": _now(), "message": encode_report(SUCCESS).decode()}
            self._tell(path, "Succeeded", {"terminated": last})

    def _tell(self, path: str, phase: str, state: Raw) -> None:
        running = phase == "Running"
        container = {"image": "", "imageID": "", "ready": running, "restartCount": 0, "name": "worker", "state": state}
        kinds = ("Ready", "ContainersReady") if running else ()
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in kinds]
        body: dict[str, Any] = {"phase": phase, "containerStatuses": [container], "conditions": conditions}
        self.client.call("PATCH", f"{path}/status", {"status": body}, kind="application/strategic-merge-patch+json")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

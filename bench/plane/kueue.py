"""Kueue's manager as shipped, with its webhooks, beside a control plane that has no Services: they are called at a loopback URL.

What Kueue has no word for is emulated as well as it can be (`deadlines`); what it is given here is one flavor a device class.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.plane.furnish import served
from bench.plane.measure import read_tail
from bench.plane.objects import LABEL_CLASS, NAMESPACE, Manifest
from bench.plane.stage import Stage, until
from dev.cluster.pki import Identity, encoded, make_identity
from dev.console import DevError
from dev.tools import ensure, share
from inference_operator.errors import OperatorError

QUEUE = "bench"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
PRIORITIES = 20
_API = "/apis/kueue.x-k8s.io/v1beta2"
_WEBHOOK_PORT, _HEALTH_PORT = 17453, 17454
_RESOURCES = frozenset({"jobs", "workloads", "clusterqueues", "resourceflavors", "cohorts"})
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
# The manager looks for a certificate of its metrics there and nowhere else. An /etc of its own leaves this machine's alone.
_IN_OWN_ETC = 'mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && ln -s "$1" /etc/kueue/metrics/certs && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Flavor:
    """A device class, and how much of one resource it has."""

    device: str
    resource: str
    quota: int


def crds() -> list[Manifest]:
    """Kueue's kinds; without the conversion between their versions, since only one is used."""
    return [yaml.safe_load(path.read_text()) for path in sorted(share("kueue", "crds").glob("*.yaml"))]


@asynccontextmanager
async def kueue(at: Stage, flavors: tuple[Flavor, ...], *, preempts: bool) -> AsyncIterator[int]:
    """Run the manager with one ClusterQueue over the flavors; its pid. The stage has its CRDs."""
    await served(at.kube, f"{_API}/workloads")
    certificates = _certificates(at)
    log = at.folder / "kueue.log"
    process = _start(at, certificates, log)
    try:
        await _ready(process, log)
        await _install_webhooks(at)
        await _queue(at, flavors, preempts=preempts)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(at: Stage, certificates: Path, log: Path) -> subprocess.Popen[bytes]:
    config = at.folder / "kueue.yaml"
    config.write_text(yaml.safe_dump(_configuration(at, certificates)))
    command = [str(ensure("kueue") / "kueue"), f"--config={config}", "--zap-log-level=error"]
    inside = ["unshare", "--mount", "sh", "-c", _IN_OWN_ETC, "sh", str(certificates), *command]
    with log.open("wb") as out:
        return subprocess.Popen(inside, env={**os.environ, "KUBECONFIG": str(at.plane.kubeconfig)}, stdout=out, stderr=out)


def _configuration(at: Stage, certificates: Path) -> Manifest:
    """The shipped configuration less what has no place here: other frameworks, metrics, leader election, visibility."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{_HEALTH_PORT}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": _WEBHOOK_PORT, "host": "127.0.0.1", "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Workload.kueue.x-k8s.io": 5,
                "LocalQueue.kueue.x-k8s.io": 1,
                "ClusterQueue.kueue.x-k8s.io": 1,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": at.limits.kueue.rate, "burst": at.limits.kueue.burst},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }


def _certificates(at: Stage) -> Path:
    pki, folder = at.plane.control.layout.pki, at.folder / "kueue-certificates"
    folder.mkdir()
    make_identity(pki, Identity("kueue", "kueue-webhook", usage="serverAuth", alternative_names=("IP:127.0.0.1",)))
    for ending in ("crt", "key"):
        (folder / f"tls.{ending}").write_bytes((pki / f"kueue.{ending}").read_bytes())
    return folder


async def _install_webhooks(at: Stage) -> None:
    authority = encoded(at.plane.control.layout.pki / "ca.crt")
    for document in yaml.safe_load_all((share("kueue", "webhooks") / "manifests.yaml").read_text()):
        kind = {"MutatingWebhookConfiguration": "mutating", "ValidatingWebhookConfiguration": "validating"}[document["kind"]]
        document["webhooks"] = [hook for hook in document["webhooks"] if _wanted(hook)]
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{_WEBHOOK_PORT}{path}", "caBundle": authority}
        await at.kube.create(f"{_HOOKS}/{kind}webhookconfigurations", document)


def _wanted(hook: Mapping[str, Any]) -> bool:
    return all(
        set(rule["apiGroups"]) <= {"batch", "kueue.x-k8s.io"} and {r.split("/")[0] for r in rule["resources"]} <= _RESOURCES
        for rule in hook["rules"]
    )


async def _ready(process: subprocess.Popen[bytes], log: Path) -> None:
    async with aiohttp.ClientSession() as session:

        async def answers() -> bool:
            if process.poll() is not None:
                raise DevError(f"Kueue's manager ended:\n{read_tail(log)}")
            try:
                async with session.get(f"http://127.0.0.1:{_HEALTH_PORT}/readyz") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(answers, "Kueue's manager", seconds=60, every=0.1)


async def _queue(at: Stage, flavors: tuple[Flavor, ...], *, preempts: bool) -> None:
    for name in dict.fromkeys(flavor.device for flavor in flavors):
        await _create(at, "resourceflavors", "ResourceFlavor", name, {"nodeLabels": {LABEL_CLASS: name}})
    groups = [
        {
            "coveredResources": [resource],
            "flavors": [
                {"name": f.device, "resources": [{"name": resource, "nominalQuota": f.quota}]}
                for f in flavors
                if f.resource == resource
            ],
        }
        for resource in dict.fromkeys(flavor.resource for flavor in flavors)
    ]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority" if preempts else "Never"},
    }
    await _create(at, "clusterqueues", "ClusterQueue", QUEUE, spec)
    await _create(at, f"namespaces/{NAMESPACE}/localqueues", "LocalQueue", QUEUE, {"clusterQueue": QUEUE})
    for number in range(PRIORITIES):
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": priority_class(number)},
            "value": (PRIORITIES - number) * 100,
        }
        await at.kube.create(f"{_API}/workloadpriorityclasses", body)

    async def active() -> bool:
        queue = await at.kube.get(f"{_API}/clusterqueues/{QUEUE}")
        conditions = queue.get("status", {}).get("conditions", ())
        return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)

    await until(active, "the ClusterQueue", seconds=60, every=0.2)


async def _create(at: Stage, collection: str, kind: str, name: str, spec: Manifest) -> None:
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
    # The webhook of a new configuration may be called a moment before the API server has read it.
    for attempt in range(20):
        try:
            await at.kube.create(f"{_API}/{collection}", body)
            return
        except OperatorError:
            if attempt == 19:
                raise
            await asyncio.sleep(0.25)


def priority_class(number: int) -> str:
    """The name of one of the classes; 0 is the most urgent."""
    return f"by-{number:02d}"


def labels(number: int | None = None) -> dict[str, str]:
    """What puts a Job into the queue, at a priority."""
    return {LABEL_QUEUE: QUEUE, **({LABEL_PRIORITY: priority_class(number)} if number is not None else {})}


def bucket(deadline: float, horizon: float) -> int:
    """Deadlines cut into as many classes as there are, the earliest first."""
    return min(PRIORITIES - 1, max(0, int(deadline / horizon * PRIORITIES)))

"""Kueue's manager as shipped, with its webhooks (`dev/kueue.py`), and the queue of a comparison.

What Kueue has no word for is emulated as well as it can be (`deadlines`); what it is given here is one flavor a device class.
"""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from bench.plane.furnish import served
from bench.plane.measure import read_tail
from bench.plane.objects import LABEL_CLASS, NAMESPACE, Manifest
from bench.plane.stage import Stage, until
from dev.console import DevError
from dev.kueue import API, VERSION, Kueue, body, cluster_queue
from inference_operator.errors import OperatorError

QUEUE = "bench"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_PRIORITY = "kueue.x-k8s.io/priority-class"
PRIORITIES = 20
_WEBHOOK_PORT, _HEALTH_PORT = 17453, 17454
_RESOURCES = frozenset({"jobs", "workloads", "clusterqueues", "resourceflavors", "cohorts"})


@dataclass(frozen=True, slots=True)
class Flavor:
    """A device class, and how much of one resource it has."""

    device: str
    resource: str
    quota: int


@asynccontextmanager
async def kueue(at: Stage, flavors: tuple[Flavor, ...], *, preempts: bool) -> AsyncIterator[int]:
    """Run the manager with one ClusterQueue over the flavors; its pid. The stage has its CRDs."""
    await served(at.kube, f"{API}/workloads")
    manager = Kueue(at.plane.control.layout, at.folder, _WEBHOOK_PORT, _HEALTH_PORT)
    process = manager.start(at.plane.kubeconfig, level="error", more=_pace(at))
    try:
        await _ready(process, manager)
        for collection, configuration in manager.webhooks(_RESOURCES):
            await at.kube.create(collection, configuration)
        await _queue(at, flavors, preempts=preempts)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pace(at: Stage) -> Manifest:
    """How many at a time, and how many requests a second."""
    return {
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
    }


async def _ready(process: subprocess.Popen[bytes], manager: Kueue) -> None:
    async with aiohttp.ClientSession() as session:

        async def answers() -> bool:
            if process.poll() is not None:
                raise DevError(f"Kueue's manager ended:\n{read_tail(manager.log)}")
            try:
                async with session.get(manager.ready_url) as answer:
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
    await _create(at, "clusterqueues", "ClusterQueue", QUEUE, cluster_queue(groups, preempts=preempts))
    await _create(at, f"namespaces/{NAMESPACE}/localqueues", "LocalQueue", QUEUE, {"clusterQueue": QUEUE})
    for number in range(PRIORITIES):
        made = {
            "apiVersion": VERSION,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": priority_class(number)},
            "value": (PRIORITIES - number) * 100,
        }
        await at.kube.create(f"{API}/workloadpriorityclasses", made)

    async def active() -> bool:
        queue = await at.kube.get(f"{API}/clusterqueues/{QUEUE}")
        conditions = queue.get("status", {}).get("conditions", ())
        return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)

    await until(active, "the ClusterQueue", seconds=60, every=0.2)


async def _create(at: Stage, collection: str, kind: str, name: str, spec: Manifest) -> None:
    # The webhook of a new configuration may be called a moment before the API server has read it.
    for attempt in range(20):
        try:
            await at.kube.create(f"{API}/{collection}", body(kind, name, spec))
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

"""A service with two workers on two nodes, and beside it what Kubernetes alone does with the same worker."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np

from bench.autoscaling.load import Plan
from bench.autoscaling.watch import Api
from dev.cluster import NODES, Layout, default_layout, kill_node, start_api, start_node
from dev.cluster.layout import Node
from dev.cluster.network import silence
from dev.console import say
from examples.demo import steps
from examples.demo.cluster import RELEASE, ROOT, SYSTEM, Kubectl, Manifest, build_images, copy_tree, install, local, wait_for
from examples.demo.steps import service_address
from examples.models.index import build_all
from examples.models.magika_features import default_trees

SAFE, DYING = (node.name for node in NODES)
SERVICE, PLAIN, ALONE = "served", "plain", "alone"
# Work for CPUs may go to the node of the GPUs: it is the other one that there is.
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
# So many requests a second, each on a connection of its own; one without an answer after so long has failed.
RATE, PATIENCE_SECONDS = 40.0, 1.0
_BUILT = ROOT / "build" / "examples"
# The kubelet waits twice as long each time before it starts a killed operator again. The grace period is Kubernetes' default.
_OPTIONS = ("--max-container-restart-period", "10s", "--node-monitor-grace-period", "50s")
_PATIENT_SECONDS = 180.0
_ROWS = 60_000


@dataclass(frozen=True)
class Stage:
    """The namespace of one run."""

    kube: Kubectl
    api: Api
    layout: Layout
    volume: Path
    folder: Path

    @property
    def system(self) -> Kubectl:
        """Where the operator is."""
        return replace(self.kube, namespace=SYSTEM)

    @property
    def jobs(self) -> str:
        """The path of the namespace's InferenceJobs."""
        return f"/apis/inference.myorg/v1/namespaces/{self.kube.namespace}/inferencejobs"

    def leader(self) -> str:
        """The pod that leads."""
        lease = self.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{RELEASE}")
        return str((lease or {})["spec"]["holderIdentity"]).rpartition("-")[0]

    def operators(self) -> dict[str, str]:
        """The operator's pods that are ready, with their nodes."""
        return _places(_listed(self.api, SYSTEM, f"app.kubernetes.io/name={RELEASE}"))

    def workers(self, job: str) -> list[Manifest]:
        """A job's pods."""
        return _listed(self.api, self.kube.namespace, f"inference.myorg/job={job}")

    def places(self, job: str) -> dict[str, str]:
        """A job's ready pods, with their nodes."""
        return _places(self.workers(job))

    def warm_workers(self) -> dict[str, str]:
        """The ready workers of magika's warm pool, with their nodes."""
        return _places(_listed(self.api, self.kube.namespace, "inference.myorg/model=magika"))

    def create(self, manifest: Manifest) -> None:
        """Create a job at once: kubectl would take a tenth of a second of what is measured."""
        self.api.create(self.jobs, manifest)

    def plan(self, name: str, seconds: float, label: str) -> Plan:
        """Callers of a Service, once it answers."""
        host = service_address(self.kube, name)
        wait_for(lambda: _model(host) is not None, f"{name} answers")
        (tensor,) = (_model(host) or {})["inputs"]
        shape = [1, *tensor["shape"][1:]]
        data = [0.0] * int(shape[1])
        body = json.dumps({"inputs": [{"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "data": data}]})
        result = str(self.folder / f"{label}.answers")
        return Plan(host, "/v2/models/digits/infer", body, [(seconds, RATE)], result, patience_seconds=PATIENCE_SECONDS)


@contextmanager
def calling(at: Stage, *plans: Plan) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Callers, each a process of its own, that are ended with the block."""
    started = []
    try:
        for number, plan in enumerate(plans):
            file = at.folder / f"plan-{number}.json"
            plan.save(file)
            started.append(subprocess.Popen([sys.executable, "-m", "bench.autoscaling.load", str(file)], cwd=ROOT))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def stage(folder: Path, *, plain: bool, options: Sequence[str] = _OPTIONS) -> Iterator[Stage]:
    """Cluster, operator, namespace, service; whatever was broken is whole again at the end. Without `options` the cluster stays."""
    build_all(_BUILT, default_trees())
    subprocess.run([sys.executable, "-m", "dev.cluster", "up", *options], cwd=ROOT, check=True)
    install(local(), build_images())
    kube = replace(local(), namespace=f"bench-{uuid.uuid4().hex[:6]}")
    kube.create_namespace()
    try:
        volume = kube.volume("data")
        copy_tree(_BUILT, volume)
        models = list(steps.pinned_models(_BUILT))
        for model in models:
            model["metadata"]["namespace"] = kube.namespace
        kube.apply(*models, a_job(SERVICE, serve={"minReplicas": 2, "maxReplicas": 2}))
        at = Stage(kube, Api(kube), default_layout(), volume, folder)
        settle(at)
        if plain:
            kube.apply(*_plain(at))
            kube.run("rollout", "status", f"deployment/{PLAIN}", "--timeout=120s")
        yield at
    finally:
        restore()
        kube.delete("namespace", kube.namespace, "--wait=false")


def restore() -> None:
    """API server, nodes and cordons as they were."""
    layout = default_layout()
    start_api(layout)
    for node in NODES:
        start_node(layout, node)
        local().run("uncordon", node.name)


def a_job(name: str, **spec: Any) -> Manifest:
    """A job of digits on CPUs."""
    given = {"model": "digits", "accelerator": "cpu", "tolerations": TOLERATIONS, **spec}
    return {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "metadata": {"name": name}, "spec": given}


def a_long_batch(at: Stage, name: str, *, pooled: bool = False) -> Manifest:
    """A batch of minutes. One that is `pooled` asks for nothing of its own, so that a warm worker may run it."""
    items = at.volume / "rows.npy"
    if not items.exists():
        np.save(items, np.tile(np.load(at.volume / "magika" / "files.npy"), (64, 1))[:_ROWS])
    given = {"batchSize": 8, "input": {"uri": f"pvc://data/{items.name}"}, "output": {"uri": f"pvc://data/out/{name}"}}
    job = a_job(name, model="magika", **given)
    if pooled:
        del job["spec"]["tolerations"]
    return job


def settle(at: Stage) -> None:
    """Wait for an operator and a worker on each node, and for both workers in the endpoints."""
    spread("operators", at.system, at.operators)
    spread("workers", at.kube, lambda: _places(at.workers(SERVICE)))
    wait_for(lambda: _taking(at) == 2, "both workers in the endpoints")


def spread(what: str, kube: Kubectl, places: Callable[[], dict[str, str]]) -> None:
    """Have one on each node, and no more.

    Whatever comes next goes where none is. To cordon a node would help, and have the workers of services move.
    """
    give_up = time.monotonic() + _PATIENT_SECONDS
    while set((found := places()).values()) != {SAFE, DYING} or len(found) > 2:
        if time.monotonic() > give_up:
            raise RuntimeError(f"{what} are not on both nodes after {_PATIENT_SECONDS:.0f} s: {found}")
        if len(found) > 1:
            newest = max(found)
            say(f"  {time.strftime('%T')} {newest} is deleted, so that {what} are on both nodes")
            kube.run("delete", "pod", newest)
        time.sleep(1.0)


def lead_on(at: Stage, node: str) -> None:
    """Have the operator on this node lead: the other is told to end, gives the Lease back, and stands by again."""
    name = at.leader()
    if at.operators().get(name) != node:
        with restarting(at, name):
            signal_operator(name, signal.SIGTERM)
        wait_for(lambda: at.operators().get(at.leader()) == node, f"a leader on {node}")


def end_node(at: Stage, name: str) -> float:
    """Let a node die silent: its packets are dropped, and then all that it ran is killed. Return when (time.time())."""
    node = _node(name)
    silence(node)
    begun = time.time()
    kill_node(at.layout, node)
    return begun


def revive_node(at: Stage, name: str) -> None:
    """Start it again."""
    start_node(at.layout, _node(name))


def _node(name: str) -> Node:
    return next(node for node in NODES if node.name == name)


@contextmanager
def restarting(at: Stage, pod: str) -> Iterator[None]:
    """Wait at the end until the operator in this pod is another, and ready: its status is old for a moment."""
    before = _container(at, pod)
    yield
    wait_for(lambda: pod in at.operators() and _container(at, pod) != before, f"another operator in {pod}", seconds=90)


def _container(at: Stage, pod: str) -> str:
    found = at.api.get(f"/api/v1/namespaces/{SYSTEM}/pods/{pod}") or {}
    return str(found["status"]["containerStatuses"][0]["containerID"])


def signal_operator(pod: str, number: signal.Signals) -> None:
    """Signal the operator's process in this pod."""
    if not _signal(pod, "INFERENCE_OPERATOR_CONFIG", number):
        raise RuntimeError(f"no operator runs in {pod}")


def running_leader(at: Stage) -> str:
    """The pod that leads. One that died with its node is named by the Lease until another one leads."""
    found: list[str] = []

    def runs() -> bool:
        found.append(at.leader())
        return _process_of(found[-1], "INFERENCE_OPERATOR_CONFIG") is not None

    wait_for(runs, "a leader that runs", seconds=90)
    return found[-1]


def signal_worker(pod: str, number: signal.Signals) -> bool:
    """Signal a worker's process; False where it has ended."""
    return _signal(pod, "INFERENCE_WORKER_CONFIG", number)


def _signal(hostname: str, variable: str, number: signal.Signals) -> bool:
    pid = _process_of(hostname, variable)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


def _process_of(hostname: str, variable: str) -> int | None:
    """The process that runs under this host name and has this variable."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = set((entry / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue
        names = {item.partition(b"=")[0] for item in environment}
        if f"HOSTNAME={hostname}".encode() in environment and variable.encode() in names:
            return int(entry.name)
    return None


def _plain(at: Stage) -> tuple[Manifest, Manifest]:
    """The same worker under a Deployment, on both nodes, behind a Service with a selector."""
    spec = copy.deepcopy(at.workers(SERVICE)[0]["spec"])
    for given in ("nodeName", "nodeSelector", "affinity", "priority", "hostname", "subdomain"):
        spec.pop(given, None)
    labels = {"app": PLAIN}
    spec["restartPolicy"] = "Always"
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    service = {"selector": labels, "ports": [{"name": "http", "port": 8000}]}
    return (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": PLAIN}, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": PLAIN}, "spec": service},
    )


def _listed(api: Api, namespace: str, selector: str) -> list[Manifest]:
    found = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")
    return list((found or {"items": []})["items"])


def _places(pods: list[Manifest]) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods if _is_ready(pod)}


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _taking(at: Stage) -> int:
    """How many workers the Service sends requests to."""
    of_service = f"?labelSelector=kubernetes.io/service-name={SERVICE}"
    path = f"/apis/discovery.k8s.io/v1/namespaces/{at.kube.namespace}/endpointslices{of_service}"
    slices = (at.api.get(path) or {"items": []})["items"]
    return sum(one["conditions"]["ready"] for found in slices for one in found.get("endpoints") or ())


def _model(host: str) -> Manifest | None:
    try:
        with urlopen(f"http://{host}:8000/v2/models/digits", timeout=2) as answer:
            found: Manifest = json.load(answer)
            return found
    except (URLError, TimeoutError, OSError):
        return None

"""How long a worker takes to start on the local cluster: with next to no model, and with 1 GiB from its node's cache."""

import hashlib
import subprocess
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.nodecache.origin import make_model, serve
from dev.tools import kubectl
from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, local
from inference_protocol.node_cache import model_digest

_MEBIBYTES = 1024
_START_SECONDS = 300.0
_MEMORY = "4Gi"
Manifest = dict[str, Any]


def measure(rounds: int) -> list[dict[str, float]] | None:
    """Starts, so many of each kind in turn; None where the local cluster is not there, or its nodes have no caches."""
    try:
        kube = local()
        system = replace(kube, namespace=SYSTEM)
        image = system.run("get", f"ds/{RELEASE}-node-cache", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return None
    name = f"bench-{uuid.uuid4().hex[:8]}"
    kube = replace(kube, namespace=name)
    kube.create_namespace()
    try:
        folder = kube.volume("data")
        for model, size in (("small", 1), ("large", _MEBIBYTES)):
            make_model(folder, model, size)
        url = serve(kube, image)
        kube.apply(*(_model(model, folder, url) for model in ("small", "large")))
        node = kube.run("get", "pod/origin", "-o", "jsonpath={.spec.nodeName}")
        # Until both are in the cache of the node.
        uncached = {model: _start(kube, model, node) for model in ("small", "large")}
        found = []
        for _ in range(rounds):
            bare, cached = (_start(kube, model, node) for model in ("small", "large"))
            found.append({"bareSeconds": bare, "cachedSeconds": cached})
        found[0]["uncachedSeconds"] = uncached["large"]
        return found
    finally:
        kube.delete("namespace", name, "--wait=false")


def _model(name: str, folder: Path, url: str) -> Manifest:
    files = {file: f"sha256:{_sha256(folder / file)}" for file in (f"{name}.onnx", f"{name}.bin")}
    version = {"name": "1", "uri": f"{url}/{name}.onnx", "digest": model_digest(files)}
    amounts = {"requests": {"cpu": "500m", "memory": _MEMORY}, "limits": {"memory": _MEMORY}}
    spec = {"versions": [version], "resources": [{"accelerator": "cpu", "resources": amounts}]}
    return {"apiVersion": "inference.myorg/v1", "kind": "InferenceModel", "metadata": {"name": name}, "spec": spec}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _start(kube: Kubectl, model: str, node: str) -> float:
    """Seconds from a worker's pod to its being ready."""
    name = f"{model}-{uuid.uuid4().hex[:6]}"
    spec = {"model": model, "accelerator": "cpu", "serve": {"minReplicas": 1}, "nodeSelector": {"kubernetes.io/hostname": node}}
    job = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "metadata": {"name": name}, "spec": spec}
    told = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}{"\\n"}'
    asked = ("get", "pods", "-l", f"inference.myorg/job={name}", "-w", "-o", told, f"--request-timeout={_START_SECONDS:g}s")
    command = [kubectl(), "--kubeconfig", str(kube.kubeconfig), "-n", kube.namespace, *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            kube.apply(job)
            begun: float | None = None
            # A line for each change of the pod, the first when it is there.
            for line in watching.stdout:
                begun = begun or time.monotonic()
                if line.strip() == "True":
                    return time.monotonic() - begun
            raise TimeoutError(f"{name} is not ready after {_START_SECONDS:g} s")
        finally:
            watching.terminate()
            kube.delete("ij", name, "--wait=true")

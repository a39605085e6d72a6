"""The service that is measured: a real model on workers with little CPU each, so that their number is what matters."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from bench.autoscaling.load import Plan
from examples.demo.cluster import ROOT, Kubectl, Manifest, wait_for
from examples.demo.steps import service_address
from inference_operator.api.quantity import parse_quantity

# A request takes some 12 ms of a core: a worker with 0.3 of one answers about 24 a second.
CPU = "300m"
TARGET_MILLISECONDS = 300
PATH = "/v2/models/magika/infer"


def job(
    name: str,
    *,
    mode: str = "HPA",
    least: int = 1,
    most: int = 6,
    target: int = TARGET_MILLISECONDS,
    cpu: str = CPU,
    asks: str = "50m",
) -> Manifest:
    """As a user would write it: without replicas. A worker may use `cpu`, and `asks` for so much of it."""
    resources = {"requests": {"cpu": asks, "memory": "192Mi"}, "limits": {"cpu": cpu, "memory": "512Mi"}}
    serve = {"minReplicas": least, "maxReplicas": most, "latencyTargetMilliseconds": target}
    spec: dict[str, Any] = {"model": "magika", "accelerator": "cpu", "resources": resources, "serve": serve}
    spec["autoscaling"] = {"mode": mode}
    return {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "metadata": {"name": name}, "spec": spec}


def plan(kube: Kubectl, name: str, rates: list[tuple[float, float]], folder: Path) -> Plan:
    """Callers of the job's Service; its answer is awaited first, since kube-proxy opens a Service a moment after its pods."""
    host = service_address(kube, name)

    def model() -> dict[str, Any] | None:
        done = subprocess.run(
            ["curl", "-sf", "-m", "2", f"http://{host}:8000/v2/models/magika"], capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    wait_for(lambda: model() is not None, "the Service answers")
    tensor = (model() or {})["inputs"][0]
    row = np.load(ROOT / "build" / "examples" / "magika" / "files.npy")[:1]
    value = {"name": tensor["name"], "datatype": tensor["datatype"], "shape": list(row.shape), "data": row.tolist()}
    return Plan(host, PATH, json.dumps({"inputs": [value]}), rates, str(folder / f"{name}.answers"))


def metric(kube: Kubectl, name: str, metric_name: str = "inference_latency_ms", selector: str = "") -> float | None:
    """What the metrics API says; None when it says nothing."""
    path = metric_path(kube.namespace, name, metric_name)
    try:
        found = json.loads(kube.run("get", "--raw", path + (f"?metricLabelSelector={selector}" if selector else "")))
    except RuntimeError:
        return None
    return metric_value(found)


def metric_path(namespace: str, name: str, metric_name: str) -> str:
    """Where the metrics API has it."""
    return f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/inferencejobs.inference.myorg/{name}/{metric_name}"


def metric_value(found: dict[str, Any]) -> float:
    """Of an answer of the metrics API."""
    return parse_quantity(found["items"][0]["value"], milli=True) / 1e3

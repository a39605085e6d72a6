"""Objects as users and clusters have them: each builder tells the difference only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.component.kinds import Raw

DIGEST = "sha256:" + "a" * 64
LATER = "2100-01-01T00:00:00Z"


def a_node(name: str = "node-1", *, cpu: str = "64", memory: str = "256Gi", **spec: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "5000"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_model(name: str = "digits", *, namespace: str = "default") -> Raw:
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceModel",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"versions": [{"name": "1", "uri": "pvc://data/model.onnx", "digest": DIGEST, "format": "onnx"}]},
    }


def a_batch(name: str = "job", *, namespace: str = "default", **spec: Any) -> Raw:
    given = {"model": "digits", "accelerator": "cpu", "input": {"data": '{"x": [1]}\n{"x": [2]}'}, **spec}
    return _job(name, namespace, given)


def a_server(name: str = "job", *, namespace: str = "default", **spec: Any) -> Raw:
    return _job(name, namespace, {"model": "digits", "accelerator": "cpu", **spec})


def a_pod(name: str, *, node: str = "node-1", cpu: str = "1", namespace: str = "default") -> Raw:
    """Somebody else's pod."""
    container = {"name": "main", "image": "other", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


def condition(job: Raw, kind: str) -> Raw | None:
    """A condition of a job, if it has it."""
    found = job.get("status", {}).get("conditions", [])
    return next((c for c in found if c["type"] == kind), None)


def reason(job: Raw, kind: str = "Ready") -> str:
    """A condition's reason; empty without the condition."""
    found = condition(job, kind)
    return found["reason"] if found is not None else ""


def succeeded(job: Raw) -> bool:
    found = condition(job, "Succeeded")
    return found is not None and found["status"] == "True"


def _job(name: str, namespace: str, spec: Raw) -> Raw:
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }

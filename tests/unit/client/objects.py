"""Jobs, models, pods and events as the API server shows them: a test states the difference only."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from inference_client.api import InferenceJob, InferenceModel
from inference_client.steps import decode

Raw = dict[str, Any]

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    """An instant, by its distance from now."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str, message: str = "", *, since: float = -60) -> Raw:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message or f"{kind} is {status}",
        "lastTransitionTime": at(since),
        "observedGeneration": 1,
    }


def a_job(*conditions: Raw, spec: Raw | None = None, name: str = "job", **status: Any) -> InferenceJob:
    """A batch on the model digits, with these conditions and fields of the status."""
    raw = {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "metadata": {
            "name": name,
            "namespace": "demo",
            "uid": "u-1",
            "generation": 1,
            "resourceVersion": "7",
            "creationTimestamp": at(-300),
        },
        "spec": {"model": "digits", "input": {"uri": "pvc://data/in.npz"}, "output": {"uri": "pvc://data/out"}, **(spec or {})},
        "status": {"observedGeneration": 1, "conditions": list(conditions), **status},
    }
    return decode(raw, InferenceJob)


def a_service(*conditions: Raw, spec: Raw | None = None, **status: Any) -> InferenceJob:
    """The same, serving."""
    job = a_job(*conditions, **status)
    raw = {"model": "digits", "serve": {"minReplicas": 2}, **(spec or {})}
    return decode({"metadata": _plain(job)["metadata"], "spec": raw, "status": _plain(job)["status"]}, InferenceJob)


def waiting(kind: str, reason: str, message: str) -> tuple[Raw, ...]:
    """The conditions of a job that waits: what is in the way, and all that repeats it."""
    before = [condition("Accepted", "True", "Accepted")] if kind != "Accepted" else []
    return (
        *before,
        condition(kind, "False", reason, message),
        *([] if kind == "Ready" else [condition("Ready", "False", reason, message)]),
        condition("Reconciling", "True", reason, message),
    )


def ended_badly(reason: str, message: str) -> tuple[Raw, ...]:
    return (
        condition("Accepted", "True", "Accepted"),
        condition("Ready", "False", reason, message),
        condition("Succeeded", "False", reason, message),
        condition("Stalled", "True", reason, message),
    )


def succeeded() -> tuple[Raw, ...]:
    kinds = ("Accepted", "Placed", "Ready", "Succeeded")
    return tuple(condition(kind, "True", kind if kind in {"Accepted", "Placed"} else "Succeeded") for kind in kinds)


def a_model(**spec: Any) -> InferenceModel:
    versions = [{"name": "1", "uri": "pvc://data/digits/model.onnx", "digest": "sha256:" + "0" * 64}]
    raw = {"metadata": {"name": "digits", "namespace": "demo"}, "spec": {"versions": versions, **spec}}
    return decode(raw, InferenceModel)


def _plain(one: InferenceJob) -> Raw:
    plain: Raw = msgspec.to_builtins(one)
    return plain

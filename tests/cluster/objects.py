"""Manifests as users write them, by their difference."""

from __future__ import annotations

from typing import Any

from tests.cluster.client import Raw

DIGEST = "sha256:" + "a" * 64
LATER = "2100-01-01T00:00:00Z"


def a_job(name: str = "job", **spec: Any) -> Raw:
    """A serving job unless `input` says otherwise; None takes a field away."""
    given = {"model": "digits", "accelerator": "cpu", **spec}
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "metadata": {"name": name},
        "spec": {key: value for key, value in given.items() if value is not None},
    }


def a_batch(name: str = "job", **spec: Any) -> Raw:
    return a_job(name, **{"input": {"data": '{"x": [1]}\n{"x": [2]}'}, **spec})


def a_model(name: str = "digits", **spec: Any) -> Raw:
    given = {"versions": [{"name": "1", "uri": "pvc://data/model.onnx", "digest": DIGEST}], **spec}
    return {"apiVersion": "inference.myorg/v1", "kind": "InferenceModel", "metadata": {"name": name}, "spec": given}


def a_condition(kind: str, status: str = "True", why: str = "Because") -> Raw:
    return {
        "type": kind,
        "status": status,
        "reason": why,
        "message": "so it is",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def condition(job: Raw, kind: str) -> Raw:
    """A condition of a job; empty when it has none of that type."""
    return next((c for c in job.get("status", {}).get("conditions", []) if c["type"] == kind), {})


def reason(job: Raw, kind: str = "Ready") -> str:
    return str(condition(job, kind).get("reason", ""))

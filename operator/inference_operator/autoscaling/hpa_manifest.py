"""The HorizontalPodAutoscaler of a serving job. It alone writes spec.replicas; we only make it, and answer its questions."""

from inference_operator.api import job as job_api
from inference_operator.api import names
from inference_operator.api.quantity import format_quantity
from inference_operator.api.schema import API_VERSION
from inference_operator.state.objects import Job
from inference_operator.workers.pod import Manifest, owner_reference

API = "autoscaling/v2"
KIND = "HorizontalPodAutoscaler"
METRIC = "inference_latency_ms"
# Which of the two series that go by the metric's name: the plain p95, or the number of workers put into the HPA's arithmetic.
SIGNAL, RECOMMENDED = "signal", "recommended"


def autoscaler(job: Job, *, minimum: int, maximum: int, target_milliseconds: int, scale_down_seconds: int) -> Manifest:
    """One Object metric with a target Value: the only form in which one latency for a whole job makes sense."""
    metric = {
        "type": "Object",
        "object": {
            "describedObject": _reference(job),
            "metric": {"name": METRIC, "selector": {"matchLabels": {SIGNAL: RECOMMENDED}}},
            "target": {"type": "Value", "value": format_quantity(target_milliseconds)},
        },
    }
    spec = {
        "scaleTargetRef": _reference(job),
        "minReplicas": minimum,
        "maxReplicas": maximum,
        "metrics": [metric],
        "behavior": behavior(scale_down_seconds),
    }
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {
            "name": job.key.name,
            "namespace": job.key.namespace,
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_NAME: names.WORKER_NAME,
                names.LABEL_JOB: names.label_value(job.key.name),
                names.LABEL_JOB_UID: job.uid,
            },
            "annotations": {names.ANNOTATION_AUTOSCALER: names.short_hash(repr(spec), 16)},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def behavior(scale_down_seconds: int) -> Manifest:
    """How quickly the HPA follows.

    Up: at once, since the number already counts what warms up and what chance alone would do; doubled at most (or four more, for
    small services) in a quarter of a minute, which is a period of the HPA and more than a worker's start, so that the effect of a
    step is seen before the next. Down: the most that was wanted in `scale_down_seconds`, so that a trough between two waves costs
    no restart; half at most in that time, since what is given up takes a start to come back.
    """
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 15},
                {"type": "Pods", "value": 4, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": scale_down_seconds,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 50, "periodSeconds": max(1, scale_down_seconds)},
                {"type": "Pods", "value": 1, "periodSeconds": max(1, scale_down_seconds)},
            ],
        },
    }


def _reference(job: Job) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": job_api.KIND, "name": job.key.name}

"""The HPA as the real API server stores it: what comes back is what the operator wants, until somebody else changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from inference_operator.api.job import Autoscaling, AutoscalingMode, Serve
from inference_operator.autoscaling.hpa import autoscaler_of, decide_hpa
from inference_operator.state.objects import MetricsApi, MetricsApiState
from inference_operator.state.parse import parse_autoscaler
from inference_operator.workers.actions import ApplyAutoscaler
from tests.builders import NOW, SETTINGS, a_job, a_pod, observed, some_scaling_metrics
from tests.cluster.client import APPLY, MERGE

if TYPE_CHECKING:
    from inference_operator.state.objects import Job
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

OPERATOR = "inference-operator"
SERVING = MetricsApi(MetricsApiState.SERVING)


def a_service(namespace: str, target: int = 250) -> Job:
    serve = Serve(min_replicas=1, max_replicas=4, latency_target_milliseconds=target)
    return a_job(namespace=namespace, serve=serve, autoscaling=Autoscaling(mode=AutoscalingMode.HPA))


def path_of(job: Job) -> str:
    return f"/apis/autoscaling/v2/namespaces/{job.key.namespace}/horizontalpodautoscalers/{job.key.name}"


def applied(cluster: Cluster, job: Job) -> Raw:
    manifest = hpa_of(job)
    # The job is not there: the garbage collector would take the HPA away as soon as it looks.
    owners = manifest["metadata"].pop("ownerReferences")
    answer = cluster.client.call("PATCH", path_of(job), manifest, kind=APPLY, fieldManager=OPERATOR, force="true")
    assert answer.ok, answer.message
    return owned(answer.body, owners)


def hpa_of(job: Job) -> Raw:
    assert job.spec is not None
    return autoscaler_of(job, job.spec, SETTINGS)


def owned(live: Raw, owners: object) -> Raw:
    return {**live, "metadata": {**live["metadata"], "ownerReferences": owners}}


def edited(cluster: Cluster, job: Job, change: dict[str, Any]) -> Raw:
    answer = cluster.client.call("PATCH", path_of(job), {"spec": change}, kind=MERGE, fieldManager="kubectl-edit")
    assert answer.ok, answer.message
    return owned(answer.body, hpa_of(job)["metadata"]["ownerReferences"])


def reasons(job: Job, live: Raw) -> list[str]:
    """Why the operator would write the HPA that it sees."""
    seen = observed(
        job, a_pod(job), autoscalers=(parse_autoscaler(live),), metrics_api=SERVING, scaling_metrics=some_scaling_metrics()
    )
    assert job.spec is not None
    actions = decide_hpa(seen, job.spec, SETTINGS, NOW, over=False, no_place=False).actions
    return [action.why for action in actions if isinstance(action, ApplyAutoscaler)]


@pytest.mark.parametrize("target", [1, 250, 1000, 1500, 60_000, 600_000])
def test_what_was_applied_comes_back_as_it_is_wanted(cluster: Cluster, namespace: str, target: int) -> None:
    job = a_service(namespace, target)

    assert reasons(job, applied(cluster, job)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"maxReplicas": 40},
        {"minReplicas": 2},
        {"behavior": None},
        {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}},
        {
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
            ]
        },
        {"scaleTargetRef": {"name": "another"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_somebody_else_changes_is_written_once_more(cluster: Cluster, namespace: str, change: dict[str, Any]) -> None:
    job = a_service(namespace)
    made = applied(cluster, job)

    assert reasons(job, edited(cluster, job, change)) == ["somebody else has changed the HPA"]
    assert applied(cluster, job)["spec"] == made["spec"]

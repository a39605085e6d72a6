"""Carrying out what a plan says about HPAs: made once, never taken from somebody else, deleted by uid."""

from unittest.mock import Mock

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Serve
from inference_operator.autoscaling.hpa import autoscaler_of
from inference_operator.controllers.apply import Applier, TaskClient
from inference_operator.kube.events import EventRecorder
from inference_operator.kube.ports import Raw
from inference_operator.runtime.clock import SystemClock
from inference_operator.state.objects import Job
from inference_operator.state.parse import parse_autoscaler
from inference_operator.state.request import job_request
from inference_operator.state.store import Store
from inference_operator.workers.actions import ApplyAutoscaler, DeleteAutoscaler
from tests.builders import SETTINGS, a_job
from tests.unit.autoscaling.metricsapi.kube import FakeKube

PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
JOB = a_job(serve=Serve(latency_target_milliseconds=100, max_replicas=4))


class Bench:
    """An applier with its store and API server."""

    def __init__(self) -> None:
        self.kube, self.store = FakeKube(), Store()
        self.applier = Applier(self.kube, self.store, Mock(spec=TaskClient), Mock(spec=EventRecorder), SystemClock())

    async def apply(self, uid: str | None = None, job: Job = JOB) -> None:
        assert job.spec is not None
        await self.applier.apply(job_request(job.key), (ApplyAutoscaler(autoscaler_of(job, job.spec, SETTINGS), uid, "test"),))


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_it_is_made_and_known_at_once(bench: Bench) -> None:
    await bench.apply()
    (known,) = bench.store.autoscalers_of(JOB.key)

    assert known.job_uid == JOB.uid and known.target == JOB.key
    assert bench.kube.did("create") == [PATH]


async def test_ours_that_is_there_already_is_brought_up_to_date(bench: Bench) -> None:
    await bench.apply()
    bench.store.autoscalers.clear()
    await bench.apply()

    assert len(bench.kube.objects) == 1
    assert bench.store.autoscalers_of(JOB.key)[0].job_uid == JOB.uid


async def test_one_of_somebody_else_that_has_just_come_is_left_alone(bench: Bench) -> None:
    mine = {"metadata": {"name": "job", "namespace": "default"}, "spec": {"maxReplicas": 2}, "kind": "HorizontalPodAutoscaler"}
    bench.kube.put(f"{PATH}/job", mine)
    await bench.apply()

    assert bench.kube.objects[f"{PATH}/job"]["spec"] == {"maxReplicas": 2}
    assert bench.store.autoscaler_failures[job_request(JOB.key)].reason is Reason.NAME_TAKEN
    # Workers are made all the same.
    assert job_request(JOB.key) not in bench.store.create_failures
    assert bench.kube.did("apply") == []


async def test_one_that_a_webhook_changes_is_applied_ever_more_seldom(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was applied at each look, and each had the next."""
    apply, request = bench.kube.apply, job_request(JOB.key)

    async def capped(path: str, body: Raw) -> Raw:
        return await apply(path, {**body, "spec": {**body["spec"], "maxReplicas": 2}})

    monkeypatch.setattr(bench.kube, "apply", capped)
    for count in (0, 1):
        await bench.apply()
        assert bench.store.autoscaler_failures[request].count == count

    monkeypatch.setattr(bench.kube, "apply", apply)
    await bench.apply()
    assert request not in bench.store.autoscaler_failures


async def test_what_is_deleted_is_the_very_one(bench: Bench) -> None:
    await bench.apply()
    (known,) = bench.store.autoscalers_of(JOB.key)
    await bench.applier.apply(job_request(JOB.key), (DeleteAutoscaler(known.key, "another", "test"),))
    assert f"{PATH}/job" in bench.kube.objects
    await bench.applier.apply(job_request(JOB.key), (DeleteAutoscaler(known.key, known.uid, "test"),))

    assert bench.kube.objects == {}
    assert bench.store.autoscalers == {}


def test_the_manifest_says_what_the_job_asks_for() -> None:
    job = a_job(serve=Serve(min_replicas=0, latency_target_milliseconds=250, max_replicas=9))
    assert job.spec is not None
    made = autoscaler_of(job, job.spec, SETTINGS)
    spec = made["spec"]
    (metric,) = spec["metrics"]

    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 9)
    assert metric["object"]["target"] == {"type": "Value", "value": "250"}
    assert metric["object"]["metric"] == {"name": "inference_latency_ms", "selector": {"matchLabels": {"signal": "recommended"}}}
    assert metric["object"]["describedObject"] == spec["scaleTargetRef"]
    assert spec["scaleTargetRef"] == {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": "job"}
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == SETTINGS.autoscaling.scale_down_seconds
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-of-job"


@pytest.mark.parametrize(
    ("kind", "api", "found"),
    [
        ("InferenceJob", "inference.myorg/v1", True),
        ("InferenceJob", "inference.myorg/v1alpha1", True),
        ("InferenceJob", "other.org/v1", False),
        ("Deployment", "apps/v1", False),
    ],
)
def test_an_hpa_is_read_by_what_it_scales(kind: str, api: str, *, found: bool) -> None:
    reference = {"kind": kind, "apiVersion": api, "name": "job"}
    labels = {"inference.myorg/job-uid": "forged", "scaledobject.keda.sh/name": "so"}
    metadata = {"name": "h", "namespace": "default", "uid": "u", "labels": labels}
    read = parse_autoscaler({"metadata": metadata, "spec": {"scaleTargetRef": reference}})

    assert (read.target is not None) == found
    # A label alone makes nothing ours.
    assert (read.job_uid, read.scaled_object) == (None, "so")

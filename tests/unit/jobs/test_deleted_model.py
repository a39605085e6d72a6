"""A job that has begun goes on with what it has read of its InferenceModel when that is deleted, and says so."""

from dataclasses import replace
from typing import Any

import pytest

from inference_operator.api.job_status import InferenceJobStatus, ResolvedModel
from inference_operator.api.model import AcceleratorResources
from inference_operator.api.resources import Resources
from inference_operator.state.objects import Job, PodPhase
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import CreatePod, WriteModelStatus
from inference_operator.workers.resolve import Refusal, resolve
from tests.builders import NOW, SETTINGS, a_fact, a_job, a_model, a_pod, a_reading, a_report, a_version, observed, resolved_of
from tests.unit.jobs.situation import on
from tests.unit.scheduling.support import Scheduler, after, decide, facts, kstatus, rewritten, settled, status_of

RESOURCES = [AcceleratorResources(accelerator="cpu", resources=Resources(requests={"memory": "3Gi"}))]
MODEL = a_model("m", a_version("1"), a_version("2", uri="pvc://models/m.onnx"), resources=RESOURCES)
SERVICE = a_job(model="m", serve=True, replicas=2, accelerator="cpu")
BATCH = a_job(model="m", items=10, accelerator="cpu")
KNOWN = ResolvedModel(name="m", version=a_version("2", uri="pvc://models/m.onnx"), resources=RESOURCES)


def begun(job: Job, *, model_is_there: bool = False, scheduler: Scheduler | None = None) -> Observed:
    """The job once its workers run, with the status that it wrote itself; then its InferenceModel goes."""
    workers = [a_pod(job, number, model=MODEL) for number in ((1, 2) if job is SERVICE else (1,))]
    seen = settled(observed(job, *workers, model=MODEL), scheduler, rounds=3)
    return seen if model_is_there else replace(seen, model=None)


def conditions(job: Job) -> dict[str, tuple[str, str]]:
    return facts(job.status.conditions)


@pytest.mark.parametrize("job", [SERVICE, BATCH], ids=["service", "batch"])
def test_a_job_that_has_begun_remembers_what_its_workers_are_made_of(job: Job) -> None:
    assert begun(job, model_is_there=True).job.status.resolved_model == KNOWN


def test_a_job_that_waits_remembers_nothing() -> None:
    assert status_of(decide(observed(BATCH, model=MODEL), None), observed(BATCH)).resolved_model is None


def test_what_makes_the_first_worker_is_remembered_with_it() -> None:
    """Between the pod and the next look the InferenceModel might go."""
    done = decide(observed(SERVICE, model=MODEL), on("a", "b"))

    assert any(isinstance(action, CreatePod) for action in done.actions)
    assert status_of(done).resolved_model == KNOWN


def test_a_model_by_uri_needs_no_memory() -> None:
    job = a_job(serve=True)

    assert settled(observed(job, a_pod(job)), rounds=3).job.status.resolved_model is None


def test_a_job_that_has_ended_forgets() -> None:
    report = a_report(model=a_fact())
    done = observed(BATCH, a_pod(BATCH, phase=PodPhase.SUCCEEDED, report=report, model=MODEL), model=MODEL)

    assert settled(done, rounds=3).job.status.resolved_model is None


@pytest.mark.parametrize("job", [SERVICE, BATCH], ids=["service", "batch"])
def test_a_deletion_rolls_nothing_and_is_said(job: Job) -> None:
    before = begun(job, model_is_there=True)
    seen = begun(job)

    assert resolved_of(seen).revisions == resolved_of(before).revisions
    done = decide(seen)
    assert [type(action).__name__ for action in done.actions] == ["WriteStatus"]
    now = after(seen, done).job
    assert conditions(now)["Accepted"] == ("True", "ModelDeleted")
    assert {**conditions(now), "Accepted": ()} == {**conditions(before.job), "Accepted": ()}
    assert kstatus(now) == kstatus(before.job)
    settled(seen, rounds=1)


def test_a_worker_that_dies_after_the_deletion_is_replaced_by_its_like() -> None:
    seen = begun(SERVICE)
    left, gone = seen.pods
    done = decide(replace(seen, pods=(left,)), on("a"))

    (made,) = [action for action in done.actions if isinstance(action, CreatePod)]
    assert made.assumed.worker is not None and gone.worker is not None
    assert made.assumed.worker.revision == gone.worker.revision
    assert made.manifest["spec"]["containers"][0]["resources"]["requests"]["memory"] == "3Gi"


def test_a_service_without_any_worker_is_brought_up_again() -> None:
    """All workers may go at once, with their node: only the status remembers then."""
    seen = replace(begun(SERVICE), pods=())

    assert len([action for action in decide(seen, on("a", "b")).actions if isinstance(action, CreatePod)]) == 2


def test_a_batch_whose_worker_is_lost_after_the_deletion_gets_another() -> None:
    seen = replace(begun(BATCH), pods=())
    told = after(seen, decide(seen))

    assert any(isinstance(action, CreatePod) for action in decide(told, on("a")).actions)


def test_nothing_is_written_to_a_model_that_is_gone() -> None:
    """A measurement of a deleted model has no object to stand in."""
    seen = begun(SERVICE)
    seen = replace(seen, readings={pod.uid: a_reading(model=a_fact(items_per_second=7.0)) for pod in seen.pods})

    assert not any(isinstance(action, WriteModelStatus) for action in decide(seen).actions)


@pytest.mark.parametrize("edit", [{"model_version": "1"}, {"model": "another"}], ids=["another version", "another model"])
def test_what_was_not_read_can_not_stand_in(edit: dict[str, Any]) -> None:
    seen = begun(SERVICE)
    assert seen.job.spec is not None
    spec = replace(seen.job.spec, **edit)
    found = resolve(replace(seen, job=replace(seen.job, spec=spec)), spec, SETTINGS)

    assert isinstance(found, Refusal) and found.reason == "ModelUnknown"


def test_the_version_that_runs_may_be_named() -> None:
    seen = begun(SERVICE)
    assert seen.job.spec is not None
    spec = replace(seen.job.spec, model_version="2")

    assert not isinstance(resolve(replace(seen, job=replace(seen.job, spec=spec)), spec, SETTINGS), Refusal)


def test_a_batch_that_waits_for_its_first_worker_waits_for_its_model() -> None:
    status = status_of(decide(observed(BATCH)))

    assert facts(status.conditions)["Accepted"] == ("False", "ModelUnknown")
    assert "create it and the job goes on" in status.conditions[0].message


def test_a_model_that_comes_back_is_followed() -> None:
    seen = replace(begun(SERVICE), model=a_model("m", a_version("3")))
    done = decide(seen, on("a", "b"))

    assert facts(status_of(done).conditions)["Accepted"] == ("True", "Accepted")
    assert len([action for action in done.actions if isinstance(action, CreatePod)]) == 2


def test_the_memory_survives_the_api_server() -> None:
    status = InferenceJobStatus(resolved_model=KNOWN, attempts=1)

    assert rewritten(a_job(model="m", created_ago=NOW.second), status).status == status

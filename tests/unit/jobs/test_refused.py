"""A job that may not run for now: what its user or its deadline says is done all the same, and what runs goes on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job import DeadlinePolicy, Serve
from inference_operator.api.job_status import InferenceJobStatus, Outlook, Phase, QueueStatus
from inference_operator.jobs.plan import plan
from inference_operator.jobs.refused import plan_refused
from inference_operator.jobs.state import job_state
from inference_operator.state.objects import Job
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import DeletePod, Plan
from inference_operator.workers.resolve import Refusal
from tests.builders import NOW, SETTINGS, TOKENS, a_job, a_model, a_pod, observed, whole
from tests.unit.scheduling.support import facts, in_seconds, status_of

MODEL = a_model("m")
BATCH = a_job(model="m", items=10)
SERVICE = a_job(model="m", serve=True, replicas=2)


def begun(job: Job, **spec: Any) -> Job:
    assert job.spec is not None
    status = InferenceJobStatus(attempts=1, start_time=whole(NOW), replicas=2, ready_replicas=2)
    return replace(job, spec=replace(job.spec, **spec), status=status)


def without_model(job: Job, *, lost: int | None = None) -> Observed:
    """The job with two workers that were made while there was a model."""
    pods = [a_pod(job, number, model=MODEL) for number in (1, 2)]
    return observed(job, *pods, lost=[pod for pod in pods if pod.number == lost])


def decided(seen: Observed) -> Plan:
    return plan(seen, job_state(seen, SETTINGS, NOW), None, SETTINGS, TOKENS, NOW)


def let_go(done: Plan) -> int:
    return sum(isinstance(action, DeletePod) for action in done.actions)


@pytest.mark.parametrize(("job", "phase"), [(BATCH, Phase.WAITING), (SERVICE, Phase.SERVING)], ids=["batch", "service"])
def test_what_runs_goes_on_while_the_model_is_missing(job: Job, phase: Phase) -> None:
    done = decided(without_model(begun(job)))

    assert (let_go(done), status_of(done).phase, status_of(done).reason) == (0, phase, Reason.MODEL_UNKNOWN)


@pytest.mark.parametrize(
    ("lost", "ready"), [(None, ("True", "ModelVersionUnknown")), (2, ("False", "ModelVersionUnknown"))], ids=["all", "half"]
)
def test_a_service_is_ready_while_its_workers_answer_though_its_version_is_gone(lost: int | None, ready: tuple[str, str]) -> None:
    """Ready=False while requests are answered would take an endpoint out of use that works."""
    seen = replace(without_model(SERVICE, lost=lost), job=begun(SERVICE, model_version="9"), model=MODEL)
    done = decided(seen)
    told = facts(status_of(done).conditions)

    assert (told["Accepted"], told["Ready"], told["Reconciling"][0]) == (("False", "ModelVersionUnknown"), ready, "True")
    assert let_go(done) == (lost is not None)


@pytest.mark.parametrize("job", [BATCH, SERVICE], ids=["batch", "service"])
def test_a_job_is_suspended_though_its_model_is_missing(job: Job) -> None:
    done = decided(without_model(begun(job, suspend=True)))

    assert (let_go(done), status_of(done).phase, status_of(done).replicas) == (2, Phase.SUSPENDED, 0)


def test_a_service_ends_when_its_time_is_over_though_its_model_is_missing() -> None:
    done = decided(without_model(begun(SERVICE, serve=Serve(until=in_seconds(-1)))))

    assert (let_go(done), status_of(done).phase, status_of(done).reason) == (2, Phase.SUCCEEDED, Reason.ENDED)


FIRM: dict[str, Any] = {"deadline": in_seconds(-1), "deadline_policy": DeadlinePolicy.FIRM}


@pytest.mark.parametrize("job", [BATCH, SERVICE], ids=["batch", "service"])
def test_a_firm_deadline_ends_a_job_though_its_model_is_missing(job: Job) -> None:
    done = decided(without_model(begun(job, **FIRM)))
    status = status_of(done)

    assert (let_go(done), status.phase, status.reason) == (2, Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert status.deadline is not None and status.deadline.outlook is Outlook.MISSED


def test_a_service_that_was_ready_outlives_its_firm_deadline() -> None:
    job = begun(SERVICE, **FIRM)
    job = replace(job, status=replace(job.status, ready_time=whole(NOW - timedelta(hours=1))))

    assert status_of(decided(without_model(job))).phase == Phase.SERVING


def test_a_firm_job_whose_model_never_came_fails_at_its_deadline() -> None:
    assert BATCH.spec is not None
    done = decided(observed(replace(BATCH, spec=replace(BATCH.spec, **FIRM))))

    assert (status_of(done).phase, status_of(done).reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({"deadline": in_seconds(60), "deadline_policy": DeadlinePolicy.FIRM}, 60),
        ({"deadline": in_seconds(60)}, 61),
        ({}, None),
        ({"serve": Serve(until=in_seconds(30)), "deadline": in_seconds(60), "deadline_policy": DeadlinePolicy.FIRM}, 30),
    ],
    ids=["firm", "soft", "never", "until"],
)
def test_it_is_looked_at_again_when_time_ends_it(spec: dict[str, Any], seconds: int | None) -> None:
    assert decided(without_model(begun(SERVICE, **spec))).recheck == (in_seconds(seconds) if seconds is not None else None)


def test_workers_out_of_reach_are_let_go_and_counted_no_more() -> None:
    done = decided(without_model(begun(SERVICE), lost=2))

    assert (let_go(done), status_of(done).replicas, status_of(done).ready_replicas) == (1, 1, 1)


def test_a_refusal_for_good_stops_all() -> None:
    refusal = Refusal(Reason.INVALID_SPEC, "no", final=True)
    outcome = plan_refused(without_model(begun(SERVICE, suspend=True)), refusal, NOW)

    assert (len(outcome.actions), outcome.phase) == (2, Phase.FAILED)


QUEUED = QueueStatus(position=1, expected_start_time=in_seconds(-5))


@pytest.mark.parametrize(("deadline", "outlook"), [(-1, Outlook.MISSED), (60, Outlook.UNKNOWN)])
def test_a_job_without_a_model_is_in_no_queue_and_misses_its_deadline_all_the_same(deadline: float, outlook: Outlook) -> None:
    assert BATCH.spec is not None
    job = replace(BATCH, spec=replace(BATCH.spec, deadline=in_seconds(deadline)), status=InferenceJobStatus(queue=QUEUED))
    status = status_of(decided(observed(job)))

    assert (status.reason, status.queue) == (Reason.MODEL_UNKNOWN, None)
    assert status.deadline is not None and status.deadline.outlook is outlook


def test_a_service_that_was_ready_in_time_has_met_its_deadline_though_its_model_is_gone() -> None:
    job = begun(SERVICE, deadline=in_seconds(-60))
    job = replace(job, status=replace(job.status, ready_time=in_seconds(-90)))
    status = status_of(decided(without_model(job)))

    assert status.deadline is not None and status.deadline.outlook is Outlook.MET


@pytest.mark.parametrize("job", [BATCH, SERVICE], ids=["batch", "service"])
def test_a_job_that_ends_in_the_queue_says_when_and_leaves_it(job: Job) -> None:
    assert job.spec is not None
    spec = replace(job.spec, **FIRM)
    status = status_of(decided(observed(replace(job, spec=spec, status=InferenceJobStatus(queue=QUEUED)), model=MODEL)))

    assert (status.phase, status.reason) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert (status.queue, status.completion_time) == (None, whole(NOW))

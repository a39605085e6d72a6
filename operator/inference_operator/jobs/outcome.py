"""What a decision about one job comes to, before it is dated and compared; and the outcomes that every kind of job shares."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from inference_operator.api.conditions import AnyReason, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import DeadlineStatus, InferenceJobStatus, Outlook
from inference_operator.jobs import admission
from inference_operator.jobs.demand import JobState
from inference_operator.jobs.status import deadline_status, model_status
from inference_operator.state.objects import Observed, Pod
from inference_operator.workers.actions import Action, DeletePod, StopTask
from inference_operator.workers.source import model_source


@dataclass(frozen=True, slots=True)
class Outcome:
    """Actions, findings, and the status they stand in. A silent outcome leaves the status as it is."""

    actions: tuple[Action, ...] = ()
    conditions: tuple[UndatedCondition, ...] = ()
    status: InferenceJobStatus = field(default_factory=InferenceJobStatus)
    phase: str = ""
    recheck: datetime | None = None
    silent: bool = False


ACCEPTED = UndatedCondition(ConditionType.ACCEPTED, Truth.TRUE, Reason.ACCEPTED, "the job is valid and its model is known")


def waiting(kind: ConditionType, reason: AnyReason, message: str) -> tuple[UndatedCondition, ...]:
    """Findings of work that has no place yet; `kind` is Accepted or Placed, whichever is in the way."""
    head = (ACCEPTED,) if kind is ConditionType.PLACED else ()
    return (
        *head,
        UndatedCondition(kind, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.READY, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, reason, message),
    )


def failed(reason: AnyReason, message: str, *, accepted: bool = True) -> tuple[UndatedCondition, ...]:
    """Findings of a job that will not come to anything. Stalled is what kstatus reads as failed."""
    return (
        *((ACCEPTED,) if accepted else (UndatedCondition(ConditionType.ACCEPTED, Truth.FALSE, reason, message),)),
        UndatedCondition(ConditionType.READY, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.SUCCEEDED, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.STALLED, Truth.TRUE, reason, message),
    )


# Succeeded, while it is open. What the job waits for stands in Ready and Placed, and moves there.
UNFINISHED = UndatedCondition(ConditionType.SUCCEEDED, Truth.UNKNOWN, Reason.RUNNING, "the work is not done yet")


def stop_all(observed: Observed, why: str) -> tuple[DeletePod | StopTask, ...]:
    """Stop every worker that lives; of a warm one only the job's own task, unless nobody could tell it."""
    live = (pod for pod in observed.pods if not pod.terminal and not pod.deleting)
    return tuple(stop(pod, why) for pod in live if pod.hosted_task is None or pod.uid not in observed.lost)


def stop(pod: Pod, why: str) -> DeletePod | StopTask:
    """Stop one worker, or the task that a warm one has of the job."""
    if pod.hosted_task is None or pod.worker is None:
        return DeletePod(pod.key, pod.uid, why)
    return StopTask(pod.key, pod.address or "", pod.worker.job_uid, pod.number, why)


def refused(observed: Observed, job_state: JobState) -> Outcome:
    """A job that may not run: for good, or until what it misses turns up."""
    refusal = job_state.refusal
    assert refusal is not None
    status = replace(observed.job.status, deadline=_unstarted_deadline(observed, refusal))
    if refusal.final:
        actions = stop_all(observed, refusal.message)
        return Outcome(actions, failed(refusal.reason, refusal.message, accepted=False), status, "Failed")
    # Workers that run are left alone: a model that is missing for a moment must not cost what is under way.
    return Outcome((), waiting(ConditionType.ACCEPTED, refusal.reason, refusal.message), status, "Waiting")


def _unstarted_deadline(observed: Observed, refusal: admission.Refusal) -> DeadlineStatus | None:
    spec = observed.job.spec
    if spec is None or spec.deadline is None:
        return None
    missed = refusal.reason is Reason.DEADLINE_EXCEEDED
    return DeadlineStatus(time=spec.deadline, outlook=Outlook.MISSED if missed else Outlook.UNKNOWN)


def suspended(observed: Observed, job_state: JobState) -> Outcome:
    """A job that its user has stopped: no worker, and no condition that asks for patience or alarm."""
    job = observed.job
    assert job.spec is not None
    live = stop_all(observed, "the job is suspended")
    text = "the job is suspended by spec.suspend; its committed work is kept"
    conditions = (ACCEPTED, UndatedCondition(ConditionType.SUSPENDED, Truth.TRUE, Reason.SUSPENDED, text))
    number = job_state.attempts.number if job_state.attempts is not None else job.status.attempts
    status = replace(
        job.status,
        attempts=number,
        deadline=deadline_status(job.spec.deadline, estimated=None, completed=None, before=None, now=_before(observed)),
        model=model_status(model_source(observed), None, job.status.model, asked=job.spec.backend),
        replicas=0,
        ready_replicas=0,
    )
    return Outcome(live, conditions, status, "Suspended")


def _before(observed: Observed) -> datetime:
    # A suspended job is nowhere on its way, so its outlook is unknown rather than missed; any instant before the deadline says so.
    deadline = observed.job.spec.deadline if observed.job.spec is not None else None
    return min(observed.job.created, deadline) if deadline is not None else observed.job.created

"""What a decision about one job comes to, before it is dated and compared; and the outcomes that every kind of job shares."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from inference_operator.api.conditions import AnyReason, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job_status import AttemptOutcome, InferenceJobStatus, Phase
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.status import deadline_look, deadline_status
from inference_operator.state.node_caches import Prefetch
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import Action, DeletePod, StopTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """Actions, conditions, and the status they stand in. A silent outcome leaves the status as it is."""

    actions: tuple[Action, ...] = ()
    conditions: tuple[UndatedCondition, ...] = ()
    status: InferenceJobStatus = field(default_factory=InferenceJobStatus)
    phase: Phase = Phase.WAITING
    recheck: datetime | None = None
    silent: bool = False
    # What nodes should have before the next workers start there.
    prefetch: Prefetch | None = None

    @property
    def ended(self) -> bool:
        """Whether the job has come to its end by this."""
        return any(one.type is ConditionType.SUCCEEDED and one.status is not Truth.UNKNOWN for one in self.conditions)

    @property
    def failed(self) -> bool:
        """Whether that end is a failure."""
        return any(one.type is ConditionType.SUCCEEDED and one.status is Truth.FALSE for one in self.conditions)


ACCEPTED = UndatedCondition(ConditionType.ACCEPTED, Truth.TRUE, Reason.ACCEPTED, "the job is valid and its model is known")


def soonest(now: datetime, *instants: datetime | None) -> datetime | None:
    """The first of these instants that is still to come: one that has passed was decided with."""
    return min((instant for instant in instants if instant is not None and instant > now), default=None)


def waiting(kind: ConditionType, reason: AnyReason, message: str) -> tuple[UndatedCondition, ...]:
    """Conditions of work that has no place yet; `kind` is Accepted or Placed, whichever is in the way."""
    head = (ACCEPTED,) if kind is ConditionType.PLACED else ()
    return (
        *head,
        UndatedCondition(kind, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.READY, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, reason, message),
    )


def stalled(kind: ConditionType, reason: AnyReason, message: str) -> tuple[UndatedCondition, ...]:
    """Conditions of work that waits for a change by its author; it has not ended, and goes on once that comes."""
    *head, _ = waiting(kind, reason, message)
    return (*head, UndatedCondition(ConditionType.STALLED, Truth.TRUE, reason, message))


def failed(reason: AnyReason, message: str, *, accepted: bool = True) -> tuple[UndatedCondition, ...]:
    """Conditions of a job that will not come to anything. Stalled is what kstatus reads as failed."""
    return (
        *((ACCEPTED,) if accepted else (UndatedCondition(ConditionType.ACCEPTED, Truth.FALSE, reason, message),)),
        UndatedCondition(ConditionType.READY, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.SUCCEEDED, Truth.FALSE, reason, message),
        UndatedCondition(ConditionType.STALLED, Truth.TRUE, reason, message),
    )


# Succeeded, while it is open. What the job waits for stands in Ready and Placed, and moves there.
UNFINISHED = UndatedCondition(ConditionType.SUCCEEDED, Truth.UNKNOWN, Reason.RUNNING, "the work is not done yet")


def stop_all(observed: Observed, why: str) -> tuple[DeletePod | StopTask, ...]:
    """Stop every worker that holds a place; of a warm one only the job's own task, unless nobody could tell it.

    A worker that has ended beside nothing that lingers is left to its kubelet: deleting it would take its log away.
    """
    holding = (pod for pod in observed.pods if not pod.terminal and not pod.deleting and (pod.lingering or not pod.over))
    pods = tuple(DeletePod(pod.key, pod.uid, why) for pod in holding)
    hosted = observed.hosted
    if hosted is None or hosted.terminal or hosted.leaving or hosted.pod.uid in observed.lost | observed.silent:
        return pods
    return (*pods, StopTask(hosted.pod.key, hosted.pod.address or "", observed.job.uid, hosted.number, why))


def released(observed: Observed) -> tuple[DeletePod, ...]:
    """Let go ended pods that nothing keeps: all but the newest, and those that keep a claim from going."""
    return (*release_older(observed), *release_claims(observed))


def release_claims(observed: Observed) -> tuple[DeletePod, ...]:
    """Let go ended pods for which a claim that its user has deleted can't go; the newest first once the status tells its end."""
    told = observed.job.status.last_attempt
    number = 0 if told is None else told.number - (told.outcome is AttemptOutcome.RUNNING)
    held = (pod for pod in observed.pods if observed.keeps_a_claim(pod) and (pod.number <= number or not observed.job.is_batch))
    return tuple(DeletePod(pod.key, pod.uid, "ended, and a claim that it names is being deleted") for pod in held)


def release_older(observed: Observed) -> tuple[DeletePod, ...]:
    """Let go ended pods but the newest, which keeps its log: however many attempts there were, and whatever becomes of the job."""
    ended = sorted((pod for pod in observed.pods if pod.terminal), key=lambda pod: pod.number)
    return tuple(DeletePod(pod.key, pod.uid, "ended, and not the newest") for pod in ended[:-1] if not pod.deleting)


def delete_lost(observed: Observed) -> tuple[DeletePod, ...]:
    """Let go the workers that nobody reaches."""
    gone = (pod for pod in observed.pods if pod.uid in observed.lost and not pod.terminal and not pod.deleting)
    return tuple(DeletePod(pod.key, pod.uid, f"node {pod.node} is out of reach") for pod in gone)


def ended(observed: Observed, until: datetime, status: InferenceJobStatus) -> Outcome:
    """A service that has come to the end which its user has set."""
    cure = "only a later serve.until starts workers again, whatever replicas is"
    text = f"served until {rfc3339(until)}, as spec.serve.until says; {cure}"
    conditions = (
        ACCEPTED,
        # No Ready: it does not answer, and it is where its author wants it. kstatus reads that as current.
        UndatedCondition(ConditionType.SUCCEEDED, Truth.TRUE, Reason.ENDED, text),
    )
    return Outcome(stop_all(observed, text), conditions, stopped(status, until), Phase.SUCCEEDED)


def stopped(status: InferenceJobStatus, end: datetime | None = None) -> InferenceJobStatus:
    """The status of a service that has no worker any more; for good, if it has come to an `end`."""
    completion = end.replace(microsecond=0) if end is not None else None
    return replace(status, replicas=0, ready_replicas=0, background_tasks=None, completion_time=completion)


def suspended(observed: Observed, status: InferenceJobStatus, now: datetime) -> Outcome:
    """A job that its user has stopped, with what is known of its work: no condition asks for patience or alarm."""
    job = observed.job
    deadline = job.spec.deadline if job.spec is not None else None
    text = "the job is suspended by spec.suspend; its committed work is kept"
    conditions = (ACCEPTED, UndatedCondition(ConditionType.SUSPENDED, Truth.TRUE, Reason.SUSPENDED, text))
    # It is nowhere on its way, so that nothing is expected of it; a deadline that passes is missed all the same.
    status = replace(status, queue=None, deadline=deadline_status(deadline, estimated=None, completed=None, before=None, now=now))
    look = deadline_look(deadline, now)
    return Outcome(stop_all(observed, "the job is suspended"), conditions, stopped(status), Phase.SUSPENDED, look)

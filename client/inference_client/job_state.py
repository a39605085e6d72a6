"""How a job stands, read from its conditions: pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from inference_client.api import Condition, InferenceJob


class Goal(StrEnum):
    """How far a job has to come. FINISHED is a batch that has succeeded, or a service that is ready."""

    FINISHED = "Finished"
    READY = "Ready"
    SUCCEEDED = "Succeeded"
    SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class Cause:
    """What is in the way: the word, and the operator's sentence."""

    reason: str
    message: str


# In this order: what keeps a job from being accepted keeps it from a place, and so on.
_CHAIN = ("Stalled", "Accepted", "Placed", "Ready")


def condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type, if it is there."""
    return next((one for one in conditions if one.type == kind), None)


def is_batch(job: InferenceJob) -> bool:
    """Whether the job has an end of its own."""
    return job.spec.input is not None


def is_current(job: InferenceJob) -> bool:
    """Whether the operator has seen the spec as it is now; before that the status tells of an older one."""
    return job.status.observed_generation >= job.metadata.generation


def reached(job: InferenceJob, goal: Goal) -> bool:
    """Whether the job has come so far, by its spec of now."""
    wanted = ("Succeeded" if is_batch(job) else "Ready") if goal is Goal.FINISHED else goal.value
    found = condition(job.status.conditions, wanted)
    return is_current(job) and found is not None and found.status == "True"


def failed(job: InferenceJob) -> Cause | None:
    """Why the job can't go on without a change; none while it may still end well.

    Flux, Argo CD and `helm --wait` read the same: what kstatus calls Failed. A batch has ended then. A service looks for a change
    now and then, but nothing else cures it.
    """
    if not is_current(job) or _has(job, "Reconciling", "True"):
        return None
    ended = _found(job, "Succeeded", "False") or _found(job, "Stalled", "True")
    return None if ended is None else cause(job) or Cause(ended.reason, ended.message)


def hopeless(job: InferenceJob, goal: Goal) -> Cause | None:
    """Why the job never comes so far without a change; none while it may. A job that has failed can still be suspended."""
    if goal is not Goal.SUSPENDED and (why := failed(job)) is not None:
        return why
    # Success stays: a service that has ended at serve.until is never ready again, and what has ended is not suspended.
    ended = _found(job, "Succeeded", "True")
    if ended is None or not is_current(job) or reached(job, goal):
        return None
    return Cause(ended.reason, ended.message)


def _found(job: InferenceJob, kind: str, status: str) -> Condition | None:
    one = condition(job.status.conditions, kind)
    return one if one is not None and one.status == status else None


def _has(job: InferenceJob, kind: str, status: str) -> bool:
    return _found(job, kind, status) is not None


def cause(job: InferenceJob) -> Cause | None:
    """What is in the way of a job that is not where it should be; none of one that is."""
    found = {one.type: one for one in job.status.conditions}
    for kind in _CHAIN:
        one = found.get(kind)
        if one is not None and one.status == ("True" if kind == "Stalled" else "False"):
            return Cause(one.reason, one.message)
    return None

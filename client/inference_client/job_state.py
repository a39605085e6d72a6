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
    """Why the job has ended badly; none while it may still end well. A service that tries again has not ended."""
    ended = condition(job.status.conditions, "Succeeded")
    if not is_current(job) or ended is None or ended.status != "False":
        return None
    return cause(job) or Cause(ended.reason, ended.message)


def cause(job: InferenceJob) -> Cause | None:
    """What is in the way of a job that is not where it should be; none of one that is."""
    found = {one.type: one for one in job.status.conditions}
    for kind in _CHAIN:
        one = found.get(kind)
        if one is not None and one.status == ("True" if kind == "Stalled" else "False"):
            return Cause(one.reason, one.message)
    return None

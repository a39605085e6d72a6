"""Whether a job has ended for good."""

from inference_operator.api.conditions import ConditionType, Truth, find
from inference_operator.state.objects import Job


def is_finished(job: Job) -> bool:
    """Whether the job has ended for good. One that was refused before it started is looked at anew when its spec changes."""
    succeeded = find(job.status.conditions, ConditionType.SUCCEEDED)
    if succeeded is None or succeeded.status is Truth.UNKNOWN:
        return False
    return job.status.start_time is not None or job.status.observed_generation == job.generation

"""Whether a job has ended for good.

One rule for all ends: a job that has failed runs anew when its spec is edited, whatever it failed of, and so does a service that
was over. A batch that has succeeded stays as it is; the API server takes no edit of it (`api/crd.py`). `ttlSecondsAfterFinished`
may be edited at any time and runs nothing.
"""

from dataclasses import replace

import msgspec

from inference_operator.api import names
from inference_operator.api.conditions import ConditionType, Truth, find
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.job_status import AttemptOutcome
from inference_operator.state.objects import Job
from inference_protocol.reasons import WorkerReason

_MESSAGE = 4096


def is_finished(job: Job) -> bool:
    """Whether nothing is left to do for the job, or for this spec of it."""
    return _has_ended(job) and not is_reopened(job)


def is_reopened(job: Job) -> bool:
    """Whether the job has ended with another spec than the one that it has now, and runs anew with this."""
    status = job.status
    if not _has_ended(job) or status.observed_generation == job.generation:
        return False
    succeeded = find(status.conditions, ConditionType.SUCCEEDED)
    if job.is_batch and succeeded is not None and succeeded.status is Truth.TRUE:
        return False
    return status.ended_spec is None or job.spec is None or status.ended_spec != spec_hash(job.spec)


def reopened(job: Job) -> Job:
    """The job, its past put behind it if it runs anew: attempts count from zero, and the last one was another spec's."""
    if not is_reopened(job):
        return job
    status, last = job.status, job.status.last_attempt
    if last is not None and last.outcome is not AttemptOutcome.RUNNING:
        text = f"the spec has changed, and the work starts again with the new one (before: {last.reason}: {last.message})"
        last = replace(last, outcome=AttemptOutcome.DISRUPTED, reason=WorkerReason.TERMINATED.value, message=text[:_MESSAGE])
    # The deadline that a failed job has missed may still be met by the one that runs anew; that of a ready service is decided.
    due = status.deadline if status.ready_time is not None else None
    status = replace(status, failed_attempts=0, last_attempt=last, completion_time=None, deadline=due, ended_spec=None)
    return replace(job, status=status)


def spec_hash(spec: InferenceJobSpec) -> str:
    """A hash of all that decides what runs."""
    plain = replace(spec, ttl_seconds_after_finished=None)
    return names.short_hash(msgspec.json.encode(plain, order="deterministic").decode())


def _has_ended(job: Job) -> bool:
    succeeded = find(job.status.conditions, ConditionType.SUCCEEDED)
    return succeeded is not None and succeeded.status is not Truth.UNKNOWN

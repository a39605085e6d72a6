"""The events of one job: one for each transition, none for each look.

A transition is seen by comparing the status as it was with the status to be, and by the actions that lead from one to the other.
Each event names its occasion (an attempt, a generation), so that a transition that is decided twice is told once.
"""

from collections.abc import Iterator

from inference_operator.api.conditions import ConditionType, Reason, Truth, find, is_true
from inference_operator.api.events import EventReason, EventType
from inference_operator.api.job_status import AttemptOutcome, InferenceJobStatus
from inference_operator.jobs.state import BatchState, JobState, ServiceState
from inference_operator.state.objects import Job
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import EmitEvent


def job_events(observed: Observed, state: JobState, after: InferenceJobStatus) -> tuple[EmitEvent, ...]:
    """Return what to tell of the step from a job's status to the one that comes after it."""
    job, found = observed.job, list(_suspended_or_resumed(observed.job, after))
    match state:
        case BatchState():
            found += _of_batch(observed, state, after)
        case ServiceState():
            found += _of_service(job, state, after)
        case _:
            pass
    return (*found, *_provisioning(job, after), *_succeeded(job, after), *_warnings(job, after))


def _provisioning(job: Job, after: InferenceJobStatus) -> Iterator[EmitEvent]:
    """A new node is asked for, or has not come."""
    before = {one.accelerator: one for one in job.status.provisioning or ()}
    for one in after.provisioning or ():
        old = before.get(one.accelerator)
        if one.retry_time is not None and (old is None or one.timeouts > old.timeouts):
            text = f"No new node of class {one.accelerator}: {one.message}"
            yield _event(job, EventReason.NODE_TIMEOUT, f"{one.accelerator} {one.timeouts} {job.generation}", text)
        elif one.request_time is not None and one.seconds is None and (old is None or old.request_time != one.request_time):
            text = f"Asked for a new node of class {one.accelerator}"
            yield _event(job, EventReason.PROVISIONING, f"{one.accelerator} {one.request_time}", text)


def _event(job: Job, reason: EventReason, occasion: str, message: str) -> EmitEvent:
    return EmitEvent(job.key, job.uid, reason.event_type, reason.value, message, occasion)


def _suspended_or_resumed(job: Job, after: InferenceJobStatus) -> Iterator[EmitEvent]:
    """A job that its user stops, and a service that serves again: a batch resumes with the attempt that goes on."""
    before, occasion = job.status, f"generation {job.generation}"
    was, found = is_true(before.conditions, ConditionType.SUSPENDED), find(after.conditions, ConditionType.SUSPENDED)
    if found is not None and not was:
        yield _event(job, EventReason.SUSPENDED, occasion, "Suspended by spec.suspend")
    stopped = was or is_true(before.conditions, ConditionType.SUCCEEDED)
    goes_on = found is None and find(after.conditions, ConditionType.SUCCEEDED) is None
    if stopped and goes_on and not job.is_batch and before.ready_time is not None:
        yield _event(job, EventReason.RESUMED, occasion, "Resumed: workers start again")


def _of_batch(observed: Observed, state: BatchState, after: InferenceJobStatus) -> Iterator[EmitEvent]:
    job, before = observed.job, observed.job.status
    attempt, occasion, place = after.last_attempt, f"attempt {after.attempts}", after.placement
    if attempt is None:
        return
    if after.attempts > before.attempts and place is not None:
        slack = f", in the slack of service {place.slack.service}" if place.slack is not None else ""
        text = f"Placed attempt {after.attempts}: {place.accelerator} on node {place.node}{slack}"
        yield _event(job, EventReason.PLACED, occasion, text)
    if place is not None and _begins(job, state, after):
        if _continues(observed, state):
            yield _event(job, EventReason.RESUMED, occasion, f"Resumed with attempt {after.attempts} on node {place.node}")
        else:
            yield _event(job, EventReason.STARTED, occasion, f"Started attempt {after.attempts} on node {place.node}")
    if after.preemptions > before.preemptions:
        yield _event(job, EventReason.PREEMPTED, occasion, f"Preempted attempt {attempt.number}: {attempt.message}")


def _begins(job: Job, state: BatchState, after: InferenceJobStatus) -> bool:
    """Whether a status tells first that the newest attempt works, or that one which was never seen at work has done all of it."""
    if _ready_reason(job.status) == Reason.RUNNING and job.status.attempts == after.attempts:
        return False
    ended_well = state.attempts.succeeded and state.attempts.untold_by(job.status.last_attempt)
    return _ready_reason(after) == Reason.RUNNING or ended_well


def _continues(observed: Observed, state: BatchState) -> bool:
    """Whether the newest attempt goes on with what earlier ones have committed: by its own word, else by what is known of those."""
    attempt, known = state.attempts.newest, observed.job.status.progress
    if state.attempts.number > 1 and attempt is not None:
        reading = observed.readings.get(attempt.pod.uid)
        hosted = attempt.hosted.state if attempt.hosted is not None else None
        words = (attempt.report, hosted, reading.telemetry if reading is not None and hosted is None else None)
        told = next((each.progress for each in words if each is not None and each.progress is not None), None)
        return told.resumed > 0 if told is not None else known is not None and known.completed > 0
    return False


def _of_service(job: Job, state: ServiceState, after: InferenceJobStatus) -> Iterator[EmitEvent]:
    for pod in state.replicas.current:
        # By what exists, not by what is to be made: the next one may be refused, and the plan with its events would end there.
        worker = pod.worker
        if worker is not None and worker.placement is not None and worker.number > job.status.attempts:
            text = f"Placed worker {worker.number}: {worker.placement.accelerator} on node {worker.placement.node}"
            yield _event(job, EventReason.PLACED, f"worker {worker.number}", text)
    before, wanted = job.status.desired_replicas, after.desired_replicas
    if job.status.ready_time is None and after.ready_time is not None:
        yield _event(job, EventReason.STARTED, "first ready", f"Started serving at {after.endpoint}")
    if before is not None and wanted is not None and wanted != before:
        reason = EventReason.SCALED_UP if wanted > before else EventReason.SCALED_DOWN
        word = "up" if wanted > before else "down"
        yield _event(job, reason, f"generation {job.generation}", f"Scaled {word} from {before} to {wanted} workers")
    rolled_out = job.status.current_revision not in (None, after.current_revision)
    # What is new to other accelerator classes alone replaces no worker.
    if rolled_out and is_true(job.status.conditions, ConditionType.RECONCILING):
        ready = state.replicas.ready
        revisions = sorted({pod.worker.revision for pod in ready if pod.worker is not None})
        text = f"Rolled out revision {' and '.join(revisions)} to {state.replicas.wanted} workers"
        # A revision may come back; the numbers of workers never do.
        yield _event(job, EventReason.ROLLED_OUT, f"worker {max(pod.number for pod in ready)}", text)


def _succeeded(job: Job, after: InferenceJobStatus) -> Iterator[EmitEvent]:
    found = find(after.conditions, ConditionType.SUCCEEDED)
    if found is not None and found.status is Truth.TRUE and not is_true(job.status.conditions, ConditionType.SUCCEEDED):
        yield _event(job, EventReason.SUCCEEDED, f"attempt {after.attempts}", found.message)


def _warnings(job: Job, after: InferenceJobStatus) -> Iterator[EmitEvent]:
    """A turn for the worse: the job stalls, or an attempt failed."""
    told, attempt = job.status.last_attempt, after.last_attempt
    failed_before = told is not None and attempt is not None and (told.number, told.outcome) == (attempt.number, attempt.outcome)
    stalled = find(after.conditions, ConditionType.STALLED)
    if stalled is not None and stalled.status is Truth.TRUE and not is_true(job.status.conditions, ConditionType.STALLED):
        yield EmitEvent(job.key, job.uid, EventType.WARNING, stalled.reason, stalled.message, f"generation {job.generation}")
    elif attempt is not None and attempt.outcome is AttemptOutcome.FAILED and not failed_before:
        text = f"attempt {attempt.number}: {attempt.reason}: {attempt.message}"
        yield _event(job, EventReason.ATTEMPT_FAILED, f"attempt {attempt.number}", text)


def _ready_reason(status: InferenceJobStatus) -> str | None:
    ready = find(status.conditions, ConditionType.READY)
    return ready.reason if ready is not None else None

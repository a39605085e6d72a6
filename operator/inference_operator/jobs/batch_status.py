"""The status of a batch job, as far as it follows from its attempts, whatever is decided next."""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import ConditionType, Reason, find
from inference_operator.api.job_status import (
    AttemptOutcome,
    AttemptStatus,
    EnergyStatus,
    InferenceJobStatus,
    LatencyStatus,
    OutputStatus,
    ProgressStatus,
)
from inference_operator.jobs.state import BatchState
from inference_operator.jobs.status import deadline_status, latency_status, model_status, placement_status, round_milliseconds
from inference_operator.metering.energy import energy_status, untold
from inference_operator.settings import Settings
from inference_operator.state.observed import Observed
from inference_operator.state.runner import Attempt
from inference_operator.workers.attempts import Attempts
from inference_operator.workers.options import planned_node
from inference_operator.workers.pace import expected_end
from inference_protocol.messages import Progress

# Progress of a short run is told by its end; that of a long one in tenths.
_LONG_RUN_SECONDS = 30


def batch_status(
    observed: Observed,
    batch: BatchState,
    settings: Settings,
    now: datetime,
    *,
    completed: datetime | None = None,
    stops: bool = False,
) -> InferenceJobStatus:
    """Return the status as its attempts tell it.

    `completed` is when the work ended well. `stops` says that the attempt ends by this look: what its worker has told last is told
    now, for its last words may be lost with its pod.
    """
    before, resolved, state = observed.job.status, batch.resolved, batch.attempts
    newest = state.newest
    facts = observed.facts_of(newest)
    if newest is not None and newest.hosted is not None and newest.report is None and not newest.running:
        # What a warm worker says of itself is said together with what it makes of the task: that saves a write.
        facts = None
    progress = _progress(observed, state, now, exact=stops)
    return replace(
        before,
        queue=None,
        attempts=state.number,
        failed_attempts=state.failed,
        last_attempt=_attempt(observed, state),
        placement=placement_status(newest, facts, before.placement),
        model=model_status(resolved.source, resolved.choice, facts, before.model),
        progress=progress,
        energy=_energy(observed, state, progress, settings),
        latency=_latency(observed, state, moved=progress != before.progress),
        output=_output(observed, batch),
        output_claim_time=before.output_claim_time or (now.replace(microsecond=0) if state.takes_over else None),
        start_time=before.start_time or (newest.created if newest is not None else None),
        completion_time=completed.replace(microsecond=0) if completed is not None else None,
        deadline=deadline_status(
            resolved.spec.deadline,
            estimated=expected_end(observed, state) if not stops else None,
            completed=completed,
            before=before.deadline,
            now=now,
            under_way=newest is not None and state.ending is None and not stops,
        ),
    )


def with_stopped_attempt(
    observed: Observed,
    attempt: Attempt,
    status: InferenceJobStatus,
    reason: Reason,
    message: str,
    settings: Settings,
    now: datetime,
) -> InferenceJobStatus:
    """The status with the end of an attempt that we stop, and with what it took until now."""
    ended = AttemptStatus(
        number=attempt.number,
        pod=attempt.pod.key.name,
        outcome=AttemptOutcome.DISRUPTED,
        reason=reason.value,
        message=message[:4096],
        end_time=now.replace(microsecond=0),
        node=planned_node(attempt.pod),
    )
    meters = observed.meters.get(attempt.pod.uid, {})
    return replace(status, last_attempt=ended, energy=energy_status(attempt, meters, status.energy, status.progress, settings, now))


def _attempt(observed: Observed, state: Attempts) -> AttemptStatus | None:
    if not state.number:
        return None
    before = observed.job.status.last_attempt
    kept = before if before is not None and before.number == state.number else None
    pod = state.newest.pod.key.name if state.newest is not None else kept.pod if kept is not None else "unknown"
    node = planned_node(state.newest.pod) if state.newest is not None else kept.node if kept is not None else None
    if state.ending is None:
        return AttemptStatus(number=state.number, pod=pod, outcome=AttemptOutcome.RUNNING, node=node)
    if kept is not None and kept.outcome is not AttemptOutcome.RUNNING:
        return kept
    return AttemptStatus(
        number=state.number,
        pod=pod,
        outcome=state.ending.outcome,
        reason=state.ending.reason.value,
        message=state.ending.message[:4096],
        end_time=state.ended.replace(microsecond=0) if state.ended is not None else None,
        node=node,
    )


def _progress(observed: Observed, state: Attempts, now: datetime, *, exact: bool = False) -> ProgressStatus | None:
    before = observed.job.status.progress
    newest = state.newest
    if state.outdated:
        return None
    if newest is not None and newest.report is not None and newest.report.progress is not None:
        return _possible(newest.report.progress)
    reading = observed.readings.get(newest.pod.uid) if newest is not None else None
    told_now = reading.telemetry.progress if reading is not None else None
    if told_now is None or newest is None:
        return before
    young = newest.started is None or (now - newest.started).total_seconds() < _LONG_RUN_SECONDS
    same_tenth = before is not None and _tenth(told_now.completed, told_now.total) == _tenth(before.completed, before.total)
    if (young or same_tenth) and not exact:
        return before
    return _possible(told_now)


def _possible(told: Progress) -> ProgressStatus:
    """What a worker says, which may lie: no more is done than there is."""
    total = told.total
    return ProgressStatus(total=total, completed=min(told.completed, total), failed=min(told.failed, total))


def _energy(observed: Observed, state: Attempts, progress: ProgressStatus | None, settings: Settings) -> EnergyStatus | None:
    """Counted once for each attempt: by the look that finds it ended and not told."""
    before = observed.job.status.energy
    if state.ending is None or state.ended is None or not state.untold_by(observed.job.status.last_attempt):
        return before
    if state.newest is None:
        return untold(before)
    return energy_status(state.newest, observed.meters.get(state.newest.pod.uid, {}), before, progress, settings, state.ended)


def _tenth(completed: int, total: int) -> int:
    return completed * 10 // total if total else 0


def _latency(observed: Observed, state: Attempts, *, moved: bool) -> LatencyStatus | None:
    """From the report at the end; before it only together with progress, so that it costs no write of its own."""
    before = observed.job.status.latency
    report = state.newest.report if state.newest is not None else None
    if report is not None and report.latency is not None and state.ended is not None:
        told = report.latency
        return LatencyStatus(
            p50=round_milliseconds(told.p50),
            p95=round_milliseconds(told.p95),
            p99=round_milliseconds(told.p99),
            count=told.count,
            observed_time=state.ended.replace(microsecond=0),
        )
    return latency_status(observed, (state.newest.pod,), before) if moved and state.newest is not None else before


def _output(observed: Observed, batch: BatchState) -> OutputStatus | None:
    output, newest = batch.resolved.spec.output, batch.attempts.newest
    if output is not None:
        return OutputStatus(uri=output.uri)
    if newest is not None and newest.report is not None and newest.report.output is not None:
        return OutputStatus(data=newest.report.output)
    return observed.job.status.output


def was_running(told: InferenceJobStatus, attempt: Attempt) -> bool:
    """Whether this attempt has been told to run: a worker that ends is not ready for a moment, and starts nothing."""
    ready = find(told.conditions, ConditionType.READY)
    return (
        ready is not None
        and ready.reason == Reason.RUNNING
        and told.last_attempt is not None
        and told.last_attempt.number == attempt.number
    )

"""Status parts that batch and serving jobs share: deadline, placement, latency, model."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift, whole_second
from inference_operator.api.job_status import (
    DeadlineStatus,
    DeviceRuns,
    InferenceJobStatus,
    LatencyStatus,
    ModelStatus,
    Outlook,
    Placement,
    QueueStatus,
    SignatureStatus,
    SigningMethod,
)
from inference_operator.api.schema import rfc3339
from inference_operator.scheduling.types import PendingReason
from inference_operator.state.load import Load
from inference_operator.state.objects import Pod
from inference_operator.state.observed import Observed
from inference_operator.state.runner import Attempt
from inference_operator.workers.backend import BackendChoice
from inference_protocol.messages import ModelFacts, ModelSource
from inference_protocol.sketch import LatencySketch, merged

# An estimate this near to the deadline is a coin's toss.
_MARGIN = 0.1
# How long the news of an end may take: from the worker to its kubelet, and from there.
_NEWS_SECONDS = 5.0
# An expected end that moved by less, or by less than the margin, is no news either; by more, whoever waits would see it jump.
_ESTIMATE_NEWS = timedelta(seconds=2)
# An expected start that moved by less than this share of the wait is no news.
_QUEUE_NEWS = 0.5


def deadline_status(
    deadline: datetime | None,
    *,
    estimated: datetime | None,
    completed: datetime | None,
    before: DeadlineStatus | None,
    now: datetime,
    under_way: bool = False,
) -> DeadlineStatus | None:
    """How the job stands to its deadline.

    `completed` is when the work really ended well; `under_way` says that a worker is at it. An estimate that moved little keeps its
    old value, so that the status is not written for nothing; the outlook is judged by the value that is shown.
    """
    if deadline is None:
        return None
    end = completed or _settled(estimated, before, deadline, now)
    if completed is not None:
        outlook = Outlook.MET if completed <= deadline else Outlook.MISSED
    elif now > shift(deadline, _NEWS_SECONDS if under_way else 0):
        outlook = Outlook.MISSED
    elif now > deadline:
        # It may have ended in time, and the news of it be on the way.
        outlook = Outlook.AT_RISK
    elif end is None:
        outlook = Outlook.UNKNOWN
    else:
        outlook = Outlook.ON_TIME if _surely_by(end, now) <= deadline else Outlook.AT_RISK
    end = end.replace(microsecond=0) if end is not None else None
    return DeadlineStatus(
        time=deadline,
        estimated_completion_time=end,
        slack_seconds=int((deadline.replace(microsecond=0) - end).total_seconds()) if end is not None else None,
        outlook=outlook,
    )


def missed_for_good(due: DeadlineStatus | None, before: DeadlineStatus | None, *, is_batch: bool) -> DeadlineStatus | None:
    """How the job stands, once it was said to have missed this deadline: whoever acted on that must not hear that it may not have.

    Only a batch's end can be told late: its kubelet dates it. A service is ready when we see it, which was not before.
    """
    if due is None or before is None or before.time != due.time or before.outlook is not Outlook.MISSED:
        return due
    return due if is_batch and due.outlook is Outlook.MET else replace(due, outlook=Outlook.MISSED)


def decided(before: InferenceJobStatus, deadline: datetime | None) -> DeadlineStatus | None:
    """How a service stood to its deadline when it was first ready: an edit of the deadline since changes nothing of that."""
    due = before.deadline
    is_decided = due is not None and before.ready_time is not None and due.estimated_completion_time == before.ready_time
    return due if is_decided and deadline is not None else None


def failed_by(due: DeadlineStatus | None) -> DeadlineStatus | None:
    """How a job that has failed stands to its deadline: nothing of it is expected any more, whenever the deadline is."""
    if due is None or due.outlook is Outlook.MET:
        # A service that was ready in time has kept its deadline, whatever ended it later.
        return due
    return DeadlineStatus(time=due.time, outlook=Outlook.MISSED)


def deadline_look(deadline: datetime | None, now: datetime) -> datetime | None:
    """When to look again for the deadline alone: the outlook changes as it passes, though nothing happens."""
    if deadline is None:
        return None
    return next((look for seconds in (1, _NEWS_SECONDS + 1) if (look := shift(deadline, seconds)) > now), None)


def _surely_by(end: datetime, now: datetime) -> datetime:
    """An expected end with a margin. Work that has outrun its estimate by so much may well take as much again."""
    likely = end if end >= now else shift(now, (now - end).total_seconds())
    return shift(likely, (likely - now).total_seconds() * _MARGIN)


def _settled(estimated: datetime | None, before: DeadlineStatus | None, deadline: datetime, now: datetime) -> datetime | None:
    old = before.estimated_completion_time if before is not None and before.time == deadline else None
    if estimated is None or old is None:
        return estimated
    tolerance = max(_ESTIMATE_NEWS, abs(estimated - now) * _MARGIN)
    return old if abs(old - estimated) <= tolerance else estimated


def queue_status(pending: PendingReason | None, before: QueueStatus | None, now: datetime) -> QueueStatus | None:
    """Where a job stands in the queue. While the expected start has moved little the old answer stands, position and all.

    Every job that leaves the queue moves all behind it: ten thousand of them must not be written for that.
    """
    if pending is None or pending.position is None:
        return None
    start = pending.start
    fresh = QueueStatus(position=pending.position, expected_start_time=start.replace(microsecond=0) if start is not None else None)
    if before is None or (before.expected_start_time is None) != (start is None):
        return fresh
    if before.expected_start_time is None or start is None:
        return before
    tolerance = max(timedelta(seconds=60), abs(start - now) * _QUEUE_NEWS)
    return before if abs(before.expected_start_time - start) <= tolerance else fresh


def waiting_deadline(
    deadline: datetime | None, pending: PendingReason, before: DeadlineStatus | None, now: datetime
) -> DeadlineStatus | None:
    """What waiting for room means for the deadline."""
    due = deadline_status(deadline, estimated=pending.done or pending.possible, completed=None, before=before, now=now)
    if due is not None and pending.start_by is not None and due.outlook is Outlook.UNKNOWN:
        # Nobody knows when a place will be free for it, but those before it are known to leave it none in time.
        return replace(due, outlook=Outlook.AT_RISK)
    return due


def waiting_words(pending: PendingReason) -> str:
    """A pending reason's message with what is the job's own: when it should start, or by when it would have to."""
    if pending.start_by is not None:
        later = f"A deadline of {rfc3339(whole_second(pending.possible))} or later" if pending.possible else "A later deadline"
        return (
            f"{pending.message}; those before it leave no time for it: it will be late unless a place is free by "
            f"{rfc3339(pending.start_by)}. {later}, a higher priority, less work or another node would help"
        )
    if pending.start is not None:
        return f"{pending.message}; expected to start at {rfc3339(pending.start)}, as number {pending.position} of those that wait"
    return pending.message


def placement_status(attempt: Attempt | None, facts: ModelFacts | None, before: Placement | None) -> Placement | None:
    """Where the work runs: as decided when the pod was made, with the provider that the worker really found."""
    placed = attempt.placement if attempt is not None else None
    if placed is None:
        return before
    known = before.execution_provider if before is not None and before.pod == placed.pod else None
    return replace(placed, execution_provider=facts.provider if facts is not None else known)


def model_status(source: ModelSource, choice: BackendChoice, facts: ModelFacts | None, before: ModelStatus | None) -> ModelStatus:
    """Which model ran: what was asked for, and the digest that the worker found."""
    known = before if before is not None and (before.name, before.version) == (source.name, source.version) else None
    digest = facts.digest if facts is not None else known.digest if known is not None else None
    variant = facts.variant if facts is not None else known.variant_digest if known is not None else None
    told = facts if facts is not None else known
    return ModelStatus(
        name=source.name,
        version=source.version,
        digest=digest,
        verified=digest is not None and source.digest == digest,
        signature=_signature_status(facts, known),
        variant_digest=variant if source.quantization is not None else None,
        backend=choice.backend,
        backend_reason=choice.reason,
        not_batched_because=told.not_batched_because or None if told is not None else None,
        device_runs=DeviceRuns(told.device_runs) if told is not None and told.device_runs else None,
        not_captured_because=told.not_captured_because or None if told is not None else None,
        not_cached_because=told.not_cached_because or None if told is not None else None,
    )


def _signature_status(facts: ModelFacts | None, known: ModelStatus | None) -> SignatureStatus | None:
    """Who signed the model that ran. Each worker verifies it anew, so the first one's time stays: the others say nothing new."""
    before = known.signature if known is not None else None
    if facts is None:
        return before
    if facts.signer is None:
        return None
    same = known is not None and before is not None and (before.signer, known.digest) == (facts.signer.name, facts.digest)
    if same:
        return before
    return SignatureStatus(
        signer=facts.signer.name,
        method=SigningMethod(facts.signer.method),
        verified_time=datetime.fromtimestamp(facts.signer.verified, UTC),
    )


def latency_status(observed: Observed, pods: tuple[Pod, ...], before: LatencyStatus | None) -> LatencyStatus | None:
    """Quantiles over all workers' sketches: merged first, since the mean of percentiles is none."""
    found = [reading for pod in pods if (reading := observed.readings.get(pod.uid)) is not None]
    whole = merged(LatencySketch(r.telemetry.sketch) for r in found)
    quantiles = [whole.quantile(q) for q in (0.5, 0.95, 0.99)]
    p50, p95, p99 = (round_milliseconds(q * 1e3) if q is not None else None for q in quantiles)
    if p50 is None or p95 is None or p99 is None:
        return before
    return LatencyStatus(
        p50=p50,
        p95=p95,
        p99=p99,
        count=whole.total,
        observed_time=max(r.time for r in found).replace(microsecond=0),
    )


def window_status(load: Load, now: datetime) -> LatencyStatus | None:
    """A window's quantiles; None without requests in it."""
    if load.p50 is None or load.p95 is None or load.p99 is None:
        return None
    return LatencyStatus(
        p50=round_milliseconds(load.p50 * 1e3),
        p95=round_milliseconds(load.p95 * 1e3),
        p99=round_milliseconds(load.p99 * 1e3),
        count=load.count,
        window_seconds=round(load.seconds),
        observed_time=now.replace(microsecond=0),
    )


def round_milliseconds(value: float) -> float:
    """Three significant digits: more would be noise, and would make equal answers look different."""
    return float(f"{value:.3g}")


def doubt(observed: Observed, pending: PendingReason) -> str:
    """What else may be wrong where a deadline can't be met: the number of items that only the job says."""
    spec, progress = observed.job.spec, observed.job.status.progress
    declared = spec.input.items if spec is not None and spec.input is not None else None
    counted = progress is not None and progress.total == declared
    if pending.reason is not Reason.DEADLINE_INFEASIBLE or declared is None or counted:
        return ""
    return f"; or correct input.items, if the input holds fewer than {declared}"

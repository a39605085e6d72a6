"""What has happened to jobs, read off each change of their statuses: counters and times, without a hook where it happens."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from prometheus_client import Histogram

from inference_operator.api.job_status import (
    AttemptOutcome,
    DeadlineStatus,
    EnergySource,
    EnergyStatus,
    InferenceJobStatus,
    Outlook,
)
from inference_operator.api.reasons import Reason
from inference_operator.observability import metrics
from inference_operator.observability.namespaces import NamespaceLabels
from inference_operator.state.objects import Job
from inference_protocol.reasons import WorkerReason

NAMESPACES = 200
"""Namespaces with counters of their own."""

BATCH, SERVICE = "batch", "service"
_REASONS = frozenset(map(str, (*Reason, *WorkerReason)))
_DECIDED = (Outlook.MET, Outlook.MISSED)


class Ended(NamedTuple):
    """So many attempts that ended alike."""

    outcome: AttemptOutcome
    reason: str
    attempts: int


class History:
    """Counts what changes of jobs tell. The first sight of a job counts nothing: an earlier leader has counted it."""

    def __init__(self) -> None:
        self._namespaces = NamespaceLabels(NAMESPACES)
        for histogram in (metrics.time_to_place_seconds, metrics.time_to_complete_seconds):
            histogram.labels(BATCH)
            histogram.labels(SERVICE)
        metrics.time_to_ready_seconds.labels(SERVICE)

    def job_changed(self, old: Job | None, new: Job) -> None:
        """Take in the newest version of a job beside the one before."""
        namespace, kind = self._namespaces.label(new.key.namespace), kind_of(new)
        if old is None or old.uid != new.uid:
            _begin(new, namespace, kind)
            return
        before, after = old.status, new.status
        if (outlook := decided(before.deadline, after.deadline)) is not None:
            metrics.deadlines_total.labels(namespace, kind, outlook.value).inc()
        if (ended := attempts_ended(before, after, batch=new.is_batch)) is not None:
            metrics.attempts_total.labels(namespace, kind, ended.outcome.value, ended.reason).inc(ended.attempts)
        if after.energy is not None and (joules := joules_since(before.energy, after.energy)) > 0:
            metrics.energy_joules_total.labels(namespace, after.energy.source.value).inc(joules)
        for histogram, instant in _reached(before, after):
            histogram.labels(kind).observe(max((instant - new.created).total_seconds(), 0.0))


def kind_of(job: Job) -> str:
    """Return the label of a job's kind."""
    return BATCH if job.is_batch else SERVICE


def _begin(job: Job, namespace: str, kind: str) -> None:
    """Have counters begin at zero: Prometheus' increase() does not see a counter's first value."""
    if job.spec is not None and job.spec.deadline is not None:
        for outcome in _DECIDED:
            metrics.deadlines_total.labels(namespace, kind, outcome.value)
    if job.is_batch:
        for source in EnergySource:
            metrics.energy_joules_total.labels(namespace, source.value)


def reason_of(reason: str | None) -> str:
    """Return a reason of the closed lists, `Other` for words that a newer or older version wrote, or nothing."""
    return "" if not reason else reason if reason in _REASONS else "Other"


def decided(before: DeadlineStatus | None, after: DeadlineStatus | None) -> Outlook | None:
    """Return whether a deadline was met or missed by this change; None where it is open, or was decided before."""
    if after is None or after.outlook not in _DECIDED:
        return None
    return None if before is not None and before.outlook is after.outlook else after.outlook


def attempts_ended(before: InferenceJobStatus, after: InferenceJobStatus, *, batch: bool) -> Ended | None:
    """Return the attempts that ended by this change: of a batch its newest, of a service the workers that failed."""
    last, old = after.last_attempt, before.last_attempt
    if last is None:
        return None
    if not batch:
        failed = after.failed_attempts - before.failed_attempts
        return Ended(AttemptOutcome.FAILED, reason_of(last.reason), failed) if failed > 0 else None
    known = old is not None and old.number == last.number and old.outcome is not AttemptOutcome.RUNNING
    return None if known or last.outcome is AttemptOutcome.RUNNING else Ended(last.outcome, reason_of(last.reason), 1)


def joules_since(before: EnergyStatus | None, after: EnergyStatus) -> float:
    """Return what an attempt has added; negative where a job that runs anew counts from zero."""
    return after.joules - (before.joules if before is not None else 0.0)


def _reached(before: InferenceJobStatus, after: InferenceJobStatus) -> Iterator[tuple[Histogram, datetime]]:
    for histogram, old, new in (
        (metrics.time_to_place_seconds, before.start_time, after.start_time),
        (metrics.time_to_ready_seconds, before.ready_time, after.ready_time),
        (metrics.time_to_complete_seconds, before.completion_time, after.completion_time),
    ):
        if old is None and new is not None:
            yield histogram, new

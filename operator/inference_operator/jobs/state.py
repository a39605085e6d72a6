"""How a job stands: what one look finds out, once, for all that is decided by it."""

from dataclasses import dataclass
from datetime import datetime

from inference_operator.jobs.admission import admit
from inference_operator.jobs.demand import batch_request, running_work, service_request
from inference_operator.jobs.replicas import Replicas, replicas
from inference_operator.queueing.admission import Admission, Admitted, admission
from inference_operator.queueing.nodes import narrowed
from inference_operator.scheduling.types import PlacementRequest, RunningWork
from inference_operator.settings import Settings
from inference_operator.state.finished import is_finished
from inference_operator.state.observed import Observed
from inference_operator.warmpools.slack import Lender, lender
from inference_operator.workers.attempts import Attempts, attempts
from inference_operator.workers.resolve import Refusal, ResolvedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A job about which nothing is left to decide: it has ended, is being deleted, or its status can't be read."""

    request: None = None
    running_work: None = None
    lender: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A job that may not run, for good or for now."""

    refusal: Refusal
    request: None = None
    running_work: None = None
    lender: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """A batch: its attempts, the worker that it wants now, if any, and the work that it has running.

    `admission` is what Kueue says of one in a queue; None for all others.
    """

    resolved: ResolvedJob
    attempts: Attempts
    admission: Admission | None = None
    request: PlacementRequest | None = None
    running_work: RunningWork | None = None
    lender: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """A service: its replicas, the workers that it wants now, if any, and what it lends of those that it has."""

    resolved: ResolvedJob
    replicas: Replicas
    request: PlacementRequest | None = None
    running_work: None = None
    lender: Lender | None = None


JobState = Closed | Refused | BatchState | ServiceState


def job_state(observed: Observed, settings: Settings, now: datetime) -> JobState:
    """Judge one job by what is observed of it."""
    job = observed.job
    if job.deleting or job.unreadable is not None or is_finished(job):
        return Closed()
    resolved = admit(observed, settings, now)
    if isinstance(resolved, Refusal):
        return Refused(refusal=resolved)
    if resolved.spec.input is None:
        ours = replicas(observed, resolved, settings, now)
        return ServiceState(
            resolved=resolved,
            replicas=ours,
            request=service_request(observed, resolved, ours, settings, now),
            lender=lender(resolved, ours.ready, is_whole=ours.whole),
        )
    tried = attempts(observed, resolved.revisions.combined, now, start_timeout_seconds=settings.start_timeout_seconds)
    queued = None
    if resolved.spec.queue_name is not None:
        queued = admission(observed.kueue, under_way=tried.newest is not None and tried.ending is None)
        resolved = narrowed(resolved, queued)
    may_run = queued is None or isinstance(queued, Admitted)
    return BatchState(
        resolved=resolved,
        attempts=tried,
        admission=queued,
        request=batch_request(observed, resolved, tried, settings, now) if may_run else None,
        running_work=running_work(observed, resolved, tried, settings, now),
    )

"""Batches in the slack of services: what a service's status says of them, and when a batch gives its place back."""

from datetime import datetime

from inference_operator.api.instants import shift
from inference_operator.api.job_status import BackgroundTask
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.state import BatchState
from inference_operator.scheduling.types import Preemption
from inference_operator.state.observed import BackgroundWork, Observed
from inference_operator.state.request import job_request
from inference_operator.state.runner import Attempt
from inference_operator.warmpools.slack import taken_back
from inference_operator.workers.actions import StopTask
from inference_operator.workers.pace import pace_of, planned_end

_MOST = 16
# A share never stands still: it is written when it moved by a quarter, and at most this often.
_SECONDS = 15
_NEWS = 0.25
# A batch that has committed nothing for so long finds no moment to run in.
_STARVED_SECONDS = 60.0
# How often a batch looks at the load of the service that it runs behind: nothing else wakes one that stands still.
LOOK_SECONDS = 5.0
# One that may be late here goes while its own worker has so many looks left.
_LAST_LOOKS = 2


def background_tasks(observed: Observed, now: datetime) -> list[BackgroundTask] | None:
    """Return what the status of a service says of the batches on its workers, and what they cost it; None without any."""
    told = {(one.job, one.pod): one for one in observed.job.status.background_tasks or ()}
    live = {pod.key for pod in observed.live}
    work = sorted((one for one in observed.background if one.pod in live), key=lambda one: one.pod)[:_MOST]
    return [_told(one, told.get((one.job.name, one.pod.name)), now) for one in work] or None


def _told(work: BackgroundWork, before: BackgroundTask | None, now: datetime) -> BackgroundTask:
    share = _share(work, now)
    if before is not None:
        young = (now - before.observed_time).total_seconds() < _SECONDS
        known = before.device_share
        moved = share is not None and (known is None or abs(share - known) > _NEWS * known)
        if not moved or (young and known is not None):
            return before
    return BackgroundTask(
        job=work.job.name, pod=work.pod.name, runs=work.runs, device_share=share, observed_time=now.replace(microsecond=0)
    )


def _share(work: BackgroundWork, now: datetime) -> float | None:
    if not work.runs or work.since is None:
        return None
    elapsed = max((now - work.since).total_seconds(), 1.0)
    return round(min(1.0, work.computed_seconds / elapsed), 3)


def stop_orphaned(observed: Observed) -> list[StopTask]:
    """Stop what a service's workers run for nobody: it would keep the slack from others."""
    workers = {pod.key: pod for pod in observed.live}
    return [
        StopTask(worker.key, worker.address, *task, "its job is gone, or has gone on elsewhere")
        for key, task in observed.orphaned_tasks
        if (worker := workers.get(key)) is not None and worker.address is not None
    ]


def given_back(observed: Observed, batch: BatchState, attempt: Attempt, now: datetime) -> Preemption | None:
    """Return why a batch in the slack of a service gives its place back now; None for all that keep theirs."""
    lent_by = observed.lent_by
    if lent_by is None or not attempt.running:
        return None
    why = taken_back(lent_by.target_seconds, lent_by.scaling_metrics)
    needs = f"service {lent_by.service.name} needs its workers itself: {why}" if why is not None else None
    needs = needs or _starves(observed, attempt, now) or _is_late_here(observed, batch, attempt, now)
    if needs is None:
        return None
    return Preemption(job_request(lent_by.service), f"{needs}; the batch continues after the last committed chunk")


def _starves(observed: Observed, attempt: Attempt, now: datetime) -> str | None:
    reading = observed.readings.get(attempt.pod.uid)
    progress = reading.telemetry.progress if reading is not None else None
    done = progress.completed - progress.resumed if progress is not None else 0
    waited = (now - attempt.started).total_seconds() if attempt.started is not None else 0.0
    if done or waited < _STARVED_SECONDS:
        return None
    return f"the requests of its service leave no moment for a run: nothing is answered after {waited:.0f} s"


def _is_late_here(observed: Observed, batch: BatchState, attempt: Attempt, now: datetime) -> str | None:
    """Whether the batch would miss its deadline in slack, and a worker of its own could still meet it.

    While that worker can wait, what was seen must make it certain: a first commit says little. At the last moment the expectation
    decides, since no more will be known in time.
    """
    deadline, pace = batch.resolved.spec.deadline, pace_of(observed, attempt)
    if deadline is None:
        return None
    quickest = min(option.estimate.cautious_seconds for option in batch.resolved.options)
    if shift(now, quickest) > deadline:
        return None
    if pace is None or pace.soonest_end is None:
        end = earliest = planned_end(attempt)
    else:
        can_wait = shift(now, quickest + _LAST_LOOKS * LOOK_SECONDS) <= deadline
        end, earliest = pace.expected_end, pace.soonest_end if can_wait else pace.expected_end
    if end is None or earliest is None or earliest <= deadline:
        return None
    return f"it would finish at {rfc3339(end)} in slack, after the deadline, and a worker of its own is in time"

"""What the status of a service says of its latency: written rarely, and never older than what it is about."""

from datetime import datetime

from inference_operator.api.instants import shift
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.job_status import LatencyStatus
from inference_operator.jobs.status import window_status
from inference_operator.state.observed import Observed

# Latency under load never stands still: it is written when it moved by a quarter, or across the target, and at most this often.
_SECONDS = 15
_NEWS = 0.25
# What a burst has measured stays so long after it, with its time: it is over before most people look.
_KEPT_SECONDS = 60


def latency_of(observed: Observed, spec: InferenceJobSpec, now: datetime) -> LatencyStatus | None:
    """The latency to be told: of the newest window where that is news, else what was told before, for a while."""
    before, scaling_metrics = observed.job.status.latency, observed.scaling_metrics
    fresh = window_status(scaling_metrics.load, now) if scaling_metrics is not None else None
    if before is None or scaling_metrics is None:
        return fresh or before
    if fresh is None:
        # Nobody asks any more: what was measured soon says nothing of now.
        forgotten = latency_end(before)
        return before if forgotten is not None and now < forgotten else None
    target = spec.serve.latency_target_milliseconds if spec.serve is not None else None
    crossed = target is not None and (before.p95 > target) != (fresh.p95 > target)
    moved = abs(fresh.p95 - before.p95) > _NEWS * before.p95
    old = (now - before.observed_time).total_seconds() >= _SECONDS
    # A burst that is over is told whole: what was told before is its beginning, or the burst before it.
    whole = scaling_metrics.settled and (old or fresh.count > before.count)
    return fresh if whole or (old and (moved or crossed)) else before


def latency_end(latency: LatencyStatus | None) -> datetime | None:
    """When a latency is forgotten, if nothing is asked any more."""
    return shift(latency.observed_time, _KEPT_SECONDS) if latency is not None else None

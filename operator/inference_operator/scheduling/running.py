"""Running work as the plan sees it."""

from datetime import datetime
from math import inf

from inference_operator.scheduling.shares import Shares
from inference_operator.scheduling.timeline import RunningUnit
from inference_operator.scheduling.types import RunningWork

# Work that takes longer than expected is reckoned to take this much of its time so far again, and never less than the second.
_OVERDUE = 0.05
_OVERDUE_SECONDS = 0.01


def running_unit(running_work: RunningWork, band: int, shares: Shares | None, now: datetime) -> RunningUnit:
    """Return what running work needs at its place and how much slack it has, in seconds; `shares` where namespaces share."""
    namespace = running_work.key.namespace
    overdue = max(_OVERDUE * (now - running_work.begun).total_seconds(), _OVERDUE_SECONDS)
    remaining = max((running_work.end - now).total_seconds(), overdue)
    slack = inf if running_work.deadline is None else (running_work.deadline - now).total_seconds() - remaining
    # Leaving and coming back must not take longer than what is left.
    movable = running_work.movable and remaining > running_work.leaving_seconds + running_work.resuming_seconds
    return RunningUnit(
        running_work.key,
        remaining,
        slack,
        band,
        movable=movable,
        leaving=running_work.leaving_seconds,
        resuming=running_work.resuming_seconds,
        namespace=namespace,
        share=shares.now(namespace) if shares is not None else 0.0,
    )

"""How fast a running batch is, and what that says of its end: the expected one, and the soonest that evidence still allows."""

from dataclasses import dataclass
from datetime import datetime
from math import sqrt

from inference_operator.api.instants import shift
from inference_operator.state.observed import Observed
from inference_operator.state.runner import Attempt
from inference_operator.workers.attempts import Attempts

# Loads are known by windows of ten seconds. What a batch does in one of them hangs on the requests of that time, and says nothing
# before the first is over: it may still read its input.
_WINDOW_SECONDS = 10.0
# What one window is off the mean, as a share of it: as much as the mean itself, as with work that comes in bursts.
_DEVIATION = 1.0
# One side of a normal distribution has a twentieth beyond this.
_SURE = 1.645


@dataclass(frozen=True, slots=True)
class Pace:
    """Items that an attempt has answered in so many seconds, and items that are left; as of when it was heard."""

    done: int
    left: int
    seconds: float
    heard: datetime

    @property
    def expected_end(self) -> datetime:
        """When it will be done, if it goes on like this."""
        return shift(self.heard, self.left * self.seconds / self.done)

    @property
    def soonest_end(self) -> datetime | None:
        """When it may be done: 19 in 20 that are seen to be so slow won't be sooner. None where too little was seen to say.

        The mean of n windows is off by the deviation of one over the root of n. So a batch that is late by half is told after two
        minutes, and one that is late by twice as much as it has time after thirty seconds.
        """
        windows = self.seconds / _WINDOW_SECONDS
        if windows < 1:
            return None
        faster = 1 + _SURE * _DEVIATION / sqrt(windows)
        return shift(self.heard, self.left * self.seconds / self.done / faster)


def pace_of(observed: Observed, attempt: Attempt) -> Pace | None:
    """Return what its worker has told; None before it has answered anything."""
    reading = observed.readings.get(attempt.pod.uid)
    progress = reading.telemetry.progress if reading is not None else None
    if reading is None or progress is None or attempt.started is None:
        return None
    facts = reading.telemetry.model
    # A worker that was there already has loaded its model long before.
    idle = facts.start_seconds if facts is not None and attempt.hosted is None else 0.0
    took = (reading.time - attempt.started).total_seconds() - idle
    done = progress.completed - progress.resumed
    return Pace(done, progress.total - progress.completed, took, reading.time) if done > 0 and took > 0 else None


def planned_end(attempt: Attempt) -> datetime | None:
    """When placement expected the work to be done; None where it had no measurement."""
    placement = attempt.placement
    if placement is None or placement.cost.estimated:
        return None
    return shift(placement.decision_time, placement.cost.latency_seconds)


def expected_end(observed: Observed, state: Attempts) -> datetime | None:
    """When the running attempt will be done: from its own pace, else from what placement expected."""
    attempt = state.newest
    if attempt is None or state.ending is not None:
        return None
    pace = pace_of(observed, attempt)
    return pace.expected_end if pace is not None else planned_end(attempt)

"""The load on a serving job's workers, as telemetry shows it. All times are the operator's own monotonic seconds.

Workers tell counts since their start; what happened in a window is a difference of counts, so that no clock but ours matters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Where learning starts: most services hold their latency there.
START_UTILISATION = 0.6


@dataclass(frozen=True, slots=True)
class Sample:
    """What a worker had counted when it was last asked."""

    time: float
    sketch: Mapping[int, int]
    busy_seconds: float
    answered: int
    outstanding: int


@dataclass(frozen=True, slots=True)
class Interval:
    """What one round of questions has added to the last, over all measured workers of a job.

    `busy` and `seconds` are summed over the workers: their quotient is the mean share of time in which one computed. `arrived` may
    be negative in one interval: requests that wait leave by time-outs too.
    """

    time: float
    seconds: float
    counts: Mapping[int, int]
    busy: float
    arrived: int
    answered: int


@dataclass(frozen=True, slots=True)
class Workers:
    """How a job's workers stood in the newest round.

    `ready` is what the HPA counts: Running and Ready. Of these, `measured` answered (or did a moment ago), `left_out` said that
    they warm up or drain, and `unreachable` did not answer. `lending` have a batch in their slack.
    """

    ready: int = 0
    measured: int = 0
    left_out: int = 0
    unreachable: int = 0
    queued: int = 0
    lending: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """A window over intervals. Latencies in seconds, None without requests; `busy` and `demand` in workers' worth of computing.

    `demand` is what the arrivals would take, which exceeds `busy` while requests pile up.
    """

    seconds: float = 0.0
    count: int = 0
    arrived: int = 0
    floor: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    busy: float = 0.0
    demand: float = 0.0
    requests_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """A job's intervals, oldest first, and since when as many workers answer as now."""

    intervals: tuple[Interval, ...] = ()
    workers: Workers = field(default_factory=Workers)
    steady_since: float = 0.0
    time: float = 0.0


class Why(StrEnum):
    """What the number of workers follows from."""

    UNKNOWN = "no worker was measured yet"
    IDLE = "no requests"
    LOAD = "the load"
    BREACH = "latency over the target"
    HELD = "nothing speaks for another number"
    FLOOR = "the target is below the model's own latency"
    CAPACITY = "no place for more workers"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The state between steps, and the number of workers that comes of it."""

    desired: int
    why: Why = Why.UNKNOWN
    utilisation: float = START_UTILISATION
    learned: bool = False
    breach_since: float | None = None
    below_floor: bool = False
    ready: int = field(default=-1)


@dataclass(frozen=True, slots=True)
class ScalingMetrics:
    """What the newest round found: the whole window's load, the workers, and the recommendation (None without a target)."""

    time: float
    load: Load
    workers: Workers
    recommendation: Recommendation | None = None
    # Whether a burst is over: the window has requests, and the last rounds have none.
    settled: bool = False

    @property
    def known(self) -> bool:
        """Whether there is something to tell: workers that answer, looked at twice at least."""
        return self.workers.measured > 0 and self.load.seconds > 0

"""Which worker answers a request soonest, and whether in time. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Load:
    """What is known of a worker: how many requests are in it, and what 95 % of them took at most, in seconds.

    `at_once` is how many it had on average while that was measured; without a measurement `p95` is None.
    """

    ahead: int = 0
    p95: float | None = None
    at_once: float = 0.0


@dataclass(frozen=True, slots=True)
class Picked:
    """Who answers. Gateways could be told more than one, to try them in turn, but not all of them read that."""

    worker: str


@dataclass(frozen=True, slots=True)
class Shed:
    """Nobody answers in time; the soonest does in so many seconds."""

    expected_seconds: float


def pick(readings: Mapping[str, Load], deadline: float | None, candidates: Iterable[str]) -> Picked | Shed | None:
    """Who answers soonest of those who do within `deadline` seconds; None without a candidate.

    A worker takes as long as it did, times how much more it has to do now than then. That goes down with its queue, too: one that
    is passed over for being slow is asked again once it has less to do. A worker that is not measured is taken for one like the
    others, and is never too slow: only requests can tell.
    """
    loads = {worker: readings.get(worker, Load()) for worker in candidates}
    paces = {worker: load.p95 / (load.at_once + 1) for worker, load in loads.items() if load.p95 is not None}
    usual = median(paces.values()) if paces else 1.0
    expected = {worker: paces.get(worker, usual) * (load.ahead + 1) for worker, load in loads.items()}
    if not expected:
        return None
    timely = [worker for worker in expected if deadline is None or worker not in paces or expected[worker] <= deadline]
    if not timely:
        return Shed(min(expected.values()))
    return Picked(min(timely, key=lambda worker: (expected[worker], worker)))

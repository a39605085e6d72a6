"""A request on its way, the run that it is part of, and what is counted of both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from inference_worker.batching.execute import Answer
from inference_worker.batching.queue import DEFAULT_PRIORITY, QueueEntry
from inference_worker.batching.rows import Bucket
from inference_worker.batching.tenants import NOBODY, Ledger, Tenant
from inference_worker.engines.engine import Cancellation, Tensors

_SIZES_COUNTED = 1024
"""Numbers of rows whose runs are counted apart: callers choose them, so there must be an end."""

_NO_RUNS = (0, 0.0)


class Timing(msgspec.Struct, frozen=True):
    """Seconds that a request waited and computed, and the rows that ran with it (its own among them).

    `batch` is the run that it was part of; None where it ran alone or not at all.
    """

    queue: float
    compute: float
    rows: int
    batch: "Batch | None" = None


Done = Callable[[Answer, Timing], None]


class Timer(Protocol):
    """A call that is made later, unless it is cancelled before."""

    def cancel(self) -> None:
        """Do not make it."""
        ...


class Ticket(msgspec.Struct, eq=False):
    """One request on its way. `done` is called exactly once, unless the ticket is cancelled.

    A ticket waits while it has a `place`, runs while it has a `batch`, and is `over` once its caller is told or gone. `deadline`,
    `arrived` and `expected` (the answer) are instants of the batcher's clock. `trace` is its caller's own.
    """

    feeds: Tensors
    wanted: tuple[str, ...]
    rows: int
    bucket: Bucket
    deadline: float
    arrived: float
    done: Done
    priority: int = DEFAULT_PRIORITY
    tenant: Tenant = NOBODY
    expected: float = 0.0
    canary_epoch: int = -1
    over: bool = False
    place: QueueEntry["Ticket"] | None = None
    batch: "Batch | None" = None
    timer: Timer | None = None
    trace: object = None


@dataclass(slots=True, eq=False)
class Batch:
    """A run under way: begun at an instant, expected to take so many seconds, in an epoch of the breaker.

    One that is prepared while another one computes begins when that ends; until then `begun` is when it was made.
    """

    tickets: list[Ticket]
    rows: int
    begun: float
    expected: float
    epoch: int
    cancellation: Cancellation = field(default_factory=Cancellation)

    def cancel_if_abandoned(self) -> None:
        """End the run when none of its callers waits any more; else it goes on for the others."""
        if all(ticket.over for ticket in self.tickets):
            self.cancellation.cancel()


@dataclass(slots=True)
class Counts:
    """What happened to requests since the start; each is counted once. `by_rows` holds runs and their seconds by rows."""

    shed: int = 0
    expired: int = 0
    cancelled: int = 0
    late: int = 0
    runs: int = 0
    rows: int = 0
    wasted_rows: int = 0
    fullest: int = 0
    breaker_opened: int = 0
    halvings: int = 0
    by_rows: dict[int, tuple[int, float]] = field(default_factory=dict)
    tenants: Ledger = field(default_factory=Ledger)

    @property
    def seconds(self) -> float:
        """Seconds of the runs that ended well."""
        return sum(seconds for _, seconds in self.by_rows.values())

    def ran(self, rows: int, seconds: float) -> None:
        """Count a run that ended well."""
        self.runs += 1
        self.rows += rows
        runs, total = self.by_rows.get(rows, _NO_RUNS)
        if runs or len(self.by_rows) < _SIZES_COUNTED:
            self.by_rows[rows] = (runs + 1, total + seconds)
        self.fullest = max(self.fullest, rows)

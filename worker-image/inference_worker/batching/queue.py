"""What waits: earliest deadline first within a priority, by bucket, with room for so many and no more.

Where several tenants wait, each has its turn: the requests of a priority are in rounds, and deadlines order within a round.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from inference_worker.batching.rows import Bucket
from inference_worker.batching.tenants import NOBODY, Tenant, Turns

NEVER = float("inf")
"""The deadline of a request that has none."""

PATIENCE_SECONDS = 10.0
"""Where a request without a deadline stands in the order: as if it had this much time. It is never refused by it, never expires,
and is never overtaken for ever by those that have deadlines."""

DEFAULT_PRIORITY = 100
"""Of a request that names none. As with Triton, 1 is the most urgent."""

Order = tuple[int, int, float, int]
"""Priority, round, deadline, and number in the order of arrival."""

_ALONE_SECONDS = 1.0
"""After so long with one tenant alone, its deadlines order everything again."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class QueueEntry(Generic[T]):
    """A place in the queue. `turn` is when that of its tenant began, as Turns counts."""

    item: T
    rows: int
    bucket: Bucket
    order: Order
    tenant: Tenant = NOBODY
    turn: float = 0.0


@dataclass(slots=True)
class _Line(Generic[T]):
    rows: int = 0
    orders: list[Order] = field(default_factory=list)
    members: list[QueueEntry[T]] = field(default_factory=list)


class DeadlineQueue(Generic[T]):
    """Keeps every bucket in order. Adding, removing and looking at the head cost a bisection."""

    __slots__ = ("_lines", "_quantum", "_sequence", "_shared_at", "_turns", "_waiting", "length", "rows")

    def __init__(self, quantum: int = 1) -> None:
        """`quantum` is how many rows of a tenant of weight 1 have their turn together."""
        self._lines: dict[Bucket, _Line[T]] = {}
        self._sequence = 0
        self._quantum = quantum
        self._waiting: dict[Tenant, int] = {}
        # There while several tenants wait, and a second longer.
        self._turns: Turns | None = None
        self._shared_at = 0.0
        self.length = 0
        self.rows = 0

    def meet(self, tenant: Tenant, now: float) -> None:
        """Let tenants have turns from now on where this one is not the only one; no more where it has been for long."""
        if not self._waiting:
            self._turns = None
        elif len(self._waiting) > 1 or tenant not in self._waiting:
            self._shared_at = now
            if self._turns is None:
                self._turns = Turns(self._quantum)
                self._order_anew()
        elif self._turns is not None and now - self._shared_at > _ALONE_SECONDS:
            self._turns = None
            self._order_anew()

    def order(self, priority: int, deadline: float, now: float, tenant: Tenant = NOBODY) -> Order:
        """The place that a request would take."""
        self._sequence += 1
        turns = self._turns
        round_ = 0 if turns is None else turns.round(turns.start(tenant))
        return (priority, round_, min(deadline, now + PATIENCE_SECONDS), self._sequence)

    def ahead(self, order: Order) -> int:
        """Rows that would be run before a request of this order: exact in number of requests, by average in rows."""
        if not self.length:
            return 0
        requests = sum(bisect_left(line.orders, order) for line in self._lines.values())
        return round(requests * self.rows / self.length)

    def add(self, waiting: QueueEntry[T]) -> None:
        """Let it wait."""
        self._insert(waiting)
        self._waiting[waiting.tenant] = self._waiting.get(waiting.tenant, 0) + 1
        self.length += 1
        self.rows += waiting.rows
        if self._turns is not None:
            waiting.turn = self._turns.take(waiting.tenant, waiting.rows)

    def remove(self, waiting: QueueEntry[T]) -> bool:
        """Take one out; False when it does not wait here any more."""
        line = self._lines.get(waiting.bucket)
        if line is None:
            return False
        at = bisect_left(line.orders, waiting.order)
        if at >= len(line.orders) or line.members[at] is not waiting:
            return False
        self._take(waiting.bucket, line, at, at + 1)
        return True

    def head(self) -> QueueEntry[T] | None:
        """The most urgent of all."""
        lines = self._lines
        if not lines:
            return None
        if len(lines) == 1:
            return next(iter(lines.values())).members[0]
        return min((line.members[0] for line in lines.values()), key=lambda waiting: waiting.order)

    def surplus(self, tenant: Tenant) -> QueueEntry[T] | None:
        """The last request of who waits with the most for its weight; None where that is less than one more of `tenant` would be.

        A full queue drops from the longest line (Suter and others, 1998), so that nobody fills it for all.
        """
        longest = max(self._waiting, key=self._held, default=tenant)
        if self._held(longest) <= (self._waiting.get(tenant, 0) + 1) / tenant.weight:
            return None
        return max((one for one in self._members() if one.tenant == longest), key=lambda waiting: waiting.order)

    def line(self, bucket: Bucket) -> Iterator[QueueEntry[T]]:
        """All of a bucket, the most urgent first."""
        return iter(self._lines[bucket].members)

    def rows_in(self, bucket: Bucket) -> int:
        """Rows that wait in a bucket."""
        return self._lines[bucket].rows

    def pop(self, bucket: Bucket, count: int) -> list[QueueEntry[T]]:
        """Take the `count` most urgent of a bucket."""
        taken = self._take(bucket, self._lines[bucket], 0, count)
        if self._turns is not None:
            self._turns.run(max(waiting.turn for waiting in taken))
        return taken

    def clear(self) -> list[QueueEntry[T]]:
        """Take out all, in order."""
        members = self._members()
        self._lines.clear()
        self._waiting.clear()
        self.length = self.rows = 0
        return members

    def _held(self, tenant: Tenant) -> float:
        return self._waiting.get(tenant, 0) / tenant.weight

    def _members(self) -> list[QueueEntry[T]]:
        return sorted((one for line in self._lines.values() for one in line.members), key=lambda waiting: waiting.order)

    def _insert(self, waiting: QueueEntry[T]) -> None:
        line = self._lines.get(waiting.bucket)
        if line is None:
            line = self._lines[waiting.bucket] = _Line()
        at = bisect_left(line.orders, waiting.order)
        line.orders.insert(at, waiting.order)
        line.members.insert(at, waiting)
        line.rows += waiting.rows

    def _order_anew(self) -> None:
        """Give all that wait their rounds, or take these from them; in the order of their deadlines."""
        members, turns = sorted(self._members(), key=lambda waiting: (waiting.order[0], waiting.order[2:])), self._turns
        self._lines.clear()
        for waiting in members:
            waiting.turn = 0.0 if turns is None else turns.take(waiting.tenant, waiting.rows)
            priority, _, deadline, number = waiting.order
            waiting.order = (priority, 0 if turns is None else turns.round(waiting.turn), deadline, number)
            self._insert(waiting)

    def _take(self, bucket: Bucket, line: _Line[T], start: int, end: int) -> list[QueueEntry[T]]:
        taken = line.members[start:end]
        del line.members[start:end], line.orders[start:end]
        if not line.members:
            del self._lines[bucket]
        rows = sum(waiting.rows for waiting in taken)
        line.rows -= rows
        self.length -= len(taken)
        self.rows -= rows
        for waiting in taken:
            self._leave(waiting.tenant)
        return taken

    def _leave(self, tenant: Tenant) -> None:
        left = self._waiting[tenant] - 1
        if left:
            self._waiting[tenant] = left
        else:
            del self._waiting[tenant]

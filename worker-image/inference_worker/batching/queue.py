"""What waits: earliest deadline first within a priority, by bucket, with room for so many and no more."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from inference_worker.batching.rows import Bucket

NEVER = float("inf")
"""The deadline of a request that has none."""

PATIENCE_SECONDS = 10.0
"""Where a request without a deadline stands in the order: as if it had this much time. It is never refused by it, never expires,
and is never overtaken for ever by those that have deadlines."""

DEFAULT_PRIORITY = 100
"""Of a request that names none. As with Triton, 1 is the most urgent."""

Order = tuple[int, float, int]

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class QueueEntry(Generic[T]):
    """A place in the queue. `deadline` is an instant of the queue's clock, infinite when there is none."""

    item: T
    rows: int
    bucket: Bucket
    order: Order


@dataclass(slots=True)
class _Line(Generic[T]):
    rows: int = 0
    orders: list[Order] = field(default_factory=list)
    members: list[QueueEntry[T]] = field(default_factory=list)


class DeadlineQueue(Generic[T]):
    """Keeps every bucket in order. Adding, removing and looking at the head cost a bisection."""

    __slots__ = ("_lines", "_sequence", "length", "rows")

    def __init__(self) -> None:
        self._lines: dict[Bucket, _Line[T]] = {}
        self._sequence = 0
        self.length = 0
        self.rows = 0

    def order(self, priority: int, deadline: float, now: float) -> Order:
        """The place that a request would take."""
        self._sequence += 1
        return (priority, min(deadline, now + PATIENCE_SECONDS), self._sequence)

    def ahead(self, order: Order) -> int:
        """Rows that would be run before a request of this order: exact in number of requests, by average in rows."""
        if not self.length:
            return 0
        requests = sum(bisect_left(line.orders, order) for line in self._lines.values())
        return round(requests * self.rows / self.length)

    def add(self, waiting: QueueEntry[T]) -> None:
        """Let it wait."""
        line = self._lines.get(waiting.bucket)
        if line is None:
            line = self._lines[waiting.bucket] = _Line()
        at = bisect_left(line.orders, waiting.order)
        line.orders.insert(at, waiting.order)
        line.members.insert(at, waiting)
        line.rows += waiting.rows
        self.length += 1
        self.rows += waiting.rows

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

    def line(self, bucket: Bucket) -> Iterator[QueueEntry[T]]:
        """All of a bucket, the most urgent first."""
        return iter(self._lines[bucket].members)

    def rows_in(self, bucket: Bucket) -> int:
        """Rows that wait in a bucket."""
        return self._lines[bucket].rows

    def pop(self, bucket: Bucket, count: int) -> list[QueueEntry[T]]:
        """Take the `count` most urgent of a bucket."""
        return self._take(bucket, self._lines[bucket], 0, count)

    def clear(self) -> list[QueueEntry[T]]:
        """Take out all, in order."""
        members = [waiting for line in self._lines.values() for waiting in line.members]
        self._lines.clear()
        self.length = self.rows = 0
        return sorted(members, key=lambda waiting: waiting.order)

    def _take(self, bucket: Bucket, line: _Line[T], start: int, end: int) -> list[QueueEntry[T]]:
        taken = line.members[start:end]
        del line.members[start:end], line.orders[start:end]
        if not line.members:
            del self._lines[bucket]
        rows = sum(waiting.rows for waiting in taken)
        line.rows -= rows
        self.length -= len(taken)
        self.rows -= rows
        return taken

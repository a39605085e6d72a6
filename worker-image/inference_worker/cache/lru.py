"""What is kept, bounded in bytes, in number and in age: the least recently used goes first."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRY_BYTES = 1024
"""What an entry takes beside its arrays: its key, its places in the table and in the order of ages, and small objects."""

_SPARE = 64


class Bounds(msgspec.Struct, frozen=True):
    """The most that is kept. `entries` is None where bytes alone bound them; ages are seconds."""

    max_bytes: int
    max_age: float
    entries: int | None = None


class Kept(msgspec.Struct, Generic[V], frozen=True):
    """A value, the bytes that it takes, and when it came."""

    value: V
    size: int
    since: float


class Lru(Generic[K, V]):
    """Values by key. The event loop alone changes it; `peek` is for threads too."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._kept: OrderedDict[K, Kept[V]] = OrderedDict()
        # As they came, and so by age: what was replaced stands here until its time is over, and is told by its instant.
        self._ages: deque[tuple[float, K]] = deque()
        self.size = 0
        self.outgrown = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._kept)

    def peek(self, key: K, now: float) -> Kept[V] | None:
        """What is kept under a key, if it is young enough; changes nothing."""
        kept = self._kept.get(key)
        return kept if kept is not None and now - kept.since < self._bounds.max_age else None

    def get(self, key: K, now: float) -> Kept[V] | None:
        """The same, and it counts as used."""
        kept = self.peek(key, now)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def put(self, key: K, value: V, size: int, now: float) -> bool:
        """Keep a value of `size` bytes in place of what there was; whether it fits at all."""
        size += ENTRY_BYTES
        self._drop(key)
        self._expire(now)
        if size > self._bounds.max_bytes:
            return False
        while self.size + size > self._bounds.max_bytes or len(self._kept) == self._bounds.entries:
            self._drop(next(iter(self._kept)))
            self.outgrown += 1
        self._kept[key] = Kept(value, size, now)
        self._ages.append((now, key))
        self.size += size
        return True

    def _expire(self, now: float) -> None:
        while self._ages and (self._is_stale(*self._ages[0]) or now - self._ages[0][0] >= self._bounds.max_age):
            since, key = self._ages.popleft()
            if not self._is_stale(since, key):
                self._drop(key)
                self.expired += 1
        if len(self._ages) > 2 * len(self._kept) + _SPARE:
            # What is replaced again and again would fill it up before it is old.
            self._ages = deque(entry for entry in self._ages if not self._is_stale(*entry))

    def _is_stale(self, since: float, key: K) -> bool:
        kept = self._kept.get(key)
        return kept is None or kept.since != since

    def _drop(self, key: K) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size -= kept.size

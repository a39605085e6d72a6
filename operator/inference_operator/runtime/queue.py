"""A keyed work queue: each key at most once, one worker a key at a time, two timelines, delayed adds, backoff by key.

The rules are client-go's workqueue (k8s.io/client-go/util/workqueue): a key that is added while it is being worked on is worked on
once more afterwards, so that no change is missed and none is handled twice at a time.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Single event loop, many workers. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], *, base_seconds: float = 0.2, limit_seconds: float = 60.0) -> None:
        self._clock = clock
        self._base = base_seconds
        self._limit = limit_seconds
        self._urgent: dict[K, None] = {}
        self._ready: dict[K, None] = {}
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._serial = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._ready) + len(self._busy)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Have the key worked on as soon as may be; urgent ones go before all others."""
        if key in self._busy:
            self._again.add(key)
            return
        if urgent:
            self._ready.pop(key, None)
            self._urgent[key] = None
        elif key not in self._urgent:
            self._ready[key] = None
        self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key worked on after a delay; of several delays the shortest counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock() + seconds
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._serial += 1
        heapq.heappush(self._later, (due, self._serial, key))
        self._wake.set()

    def retry(self, key: K, *, after_seconds: float = 0.0, limit_seconds: float | None = None) -> None:
        """Have the key worked on again after a failure, later each time; not before `after_seconds`, unless the limit is sooner."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = max(after_seconds, self._base * 2 ** min(failures, 30))
        self.add_after(key, min(pause, self._limit if limit_seconds is None else limit_seconds))

    def forget(self, key: K) -> None:
        """The key went well: its backoff starts anew."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; the caller must call `done` with it."""
        while True:
            self._promote()
            line = self._urgent or self._ready
            if line:
                key = next(iter(line))
                del line[key]
                self._busy.add(key)
                if self._urgent or self._ready:
                    self._wake.set()
                return key
            self._wake.clear()
            pause = self._later[0][0] - self._clock() if self._later else None
            try:
                await asyncio.wait_for(self._wake.wait(), pause)
            except TimeoutError:
                continue

    def done(self, key: K) -> None:
        """The key is no longer worked on."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            # An earlier delay for the same key leaves its later twin in the heap: only the one on record counts.
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

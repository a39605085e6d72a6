"""What was sent and what came of it, counted by all callers together; and what must never happen."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

DEADLINE_SECONDS = 60.0


class BrokenPromiseError(Exception):
    """A request without an answer or an end, or a wrong answer."""


@dataclass
class Tally:
    """A request counts once it is answered, or once it ends its connection; what was sent behind that counts for nothing."""

    wanted: int
    seen: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seen: Counter[str]) -> None:
        """Count what one connection saw: answers by status, `ended` for a request that ended it, `right` for those compared."""
        with self._lock:
            self.seen.update(seen)
            self.requests += sum(count for name, count in seen.items() if name != "right")

    @property
    def done(self) -> bool:
        """Whether there are as many as are wanted."""
        return self.requests >= self.wanted

"""The memory that callers of a worker can make it hold: one budget of bytes for all connections of both protocols.

What counts: bodies that are not whole or not yet answered, what they inflate to, answers that their callers do not take, and
remembered heads. Requests that come whole, in one piece, cost no look at it.
"""

import threading
import weakref
from collections.abc import Mapping
from http import HTTPStatus

from inference_worker import cpu
from inference_worker.errors import RequestError
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES

_SHARE = 8
_RETRY_SECONDS = 1.0


_FIELD_BYTES = 256
"""What a name with its value takes beside their characters: two texts, and a place in a dictionary that has just grown."""


def memory_of(headers: Mapping[str, str]) -> int:
    """Return the bytes that headers take at most. A thousand small ones can be a hundred times what came over the wire."""
    return _FIELD_BYTES * (1 + len(headers)) + sum(len(name) + len(value) for name, value in headers.items())


def limit_of(memory: int) -> int:
    """The budget's bytes in a worker of `memory` bytes: an eighth, and always the largest body and what it inflates to."""
    return max(memory // _SHARE, 2 * BODY_LIMIT_BYTES)


class Budget:
    """Bytes that are in use, and how many may be. Threads may use it at the same time."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit_of(cpu.usable_memory_bytes()) if limit is None else limit
        self._taken = 0
        # Reentrant: giving back may happen wherever the collector runs, taking among it.
        self._lock = threading.RLock()

    @property
    def taken(self) -> int:
        """Bytes that are in use."""
        return self._taken

    @property
    def exceeded(self) -> bool:
        """Whether what can't be refused takes more than there is."""
        return self._taken > self.limit

    def has(self, size: int) -> bool:
        """Use `size` bytes where they are there; whether they are."""
        with self._lock:
            if self._taken + size > self.limit:
                return False
            self._taken += size
            return True

    def take(self, size: int) -> None:
        """Use `size` bytes. Raises RequestError(429) when they are not there."""
        if not self.has(size):
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, self.refusal, retry_after_seconds=_RETRY_SECONDS)

    def hold(self, size: int) -> None:
        """Use `size` bytes that are there already, whether they may be or not; a negative size gives back."""
        with self._lock:
            self._taken += size

    def give(self, size: int) -> None:
        """Give `size` bytes back."""
        with self._lock:
            self._taken -= size

    def lend(self, owner: object, size: int) -> None:
        """Give `size` bytes back when `owner`, which has the body, is gone: whatever way a request ends, that comes."""
        weakref.finalize(owner, self.give, size).atexit = False

    @property
    def refusal(self) -> str:
        """What a caller is told for whom there is no room."""
        return f"requests and answers hold the {self.limit} bytes that they may, inflated ones counted so; try again later"


class Loan:
    """An owner for those who have no object that goes when the body does."""

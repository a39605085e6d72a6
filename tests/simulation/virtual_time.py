"""An event loop whose clock jumps: what would be waited for is over at once, and always in the same order.

Nothing real is waited for, so nothing here may do real I/O. A loop that would wait for ever is an error.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

START = datetime(2026, 4, 2, 12, 0, 0, tzinfo=UTC)


class DeadlockError(Exception):
    """Every task waits, and no time to come will wake one."""


class _Selector(selectors.SelectSelector):
    """Passes virtual time instead of waiting."""

    def __init__(self, passing: Callable[[float], None]) -> None:
        super().__init__()
        self._passing = passing

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            raise DeadlockError
        self._passing(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Seconds since its own start."""

    def __init__(self) -> None:
        self._seconds = 0.0
        super().__init__(_Selector(self._pass))

    def _pass(self, seconds: float) -> None:
        # Every turn of the loop takes a little, as in life: a wait that is short by a rounding error would never be over else.
        self._seconds += max(seconds, 1e-9)

    def time(self) -> float:
        """Virtual seconds."""
        return self._seconds


class VirtualClock:
    """The operator's clock on the running virtual loop."""

    def now(self) -> datetime:
        """See Clock."""
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """See Clock."""
        return asyncio.get_running_loop().time()

    def boottime(self) -> float:
        """See Clock."""
        return self.monotonic()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

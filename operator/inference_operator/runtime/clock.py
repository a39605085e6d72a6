"""Time as a thing that can be handed over: decisions get an instant, loops a clock."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for what users see, monotonic time for waiting, boot time for what expires elsewhere."""

    def now(self) -> datetime:
        """The instant, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...

    def boottime(self) -> float:
        """Like `monotonic`, and counts the time in which the machine was suspended."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """See Clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See Clock."""
        return time.monotonic()

    def boottime(self) -> float:
        """See Clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

"""Time as a thing that can be handed over: decisions get an instant, loops a clock."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

_IN_STEP_SECONDS = 1.0
"""A `Date` header counts whole seconds: what differs by no more is left as it is."""

_HEARD = 255
"""So many of the last answers are weighed: of several API servers one alone may be wrong, and answers come from all in turn."""

_OUTWEIGHS = 1.5
"""What so many times as many of them say as agree with the time before takes its place."""

_Bounds = tuple[float, float]


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


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The API server's wall time: `offset` seconds later than boot time. So many answers in a row have `denied` it.

    Source: F. Cristian, "Probabilistic clock synchronization", 1989: the server read its clock between question and answer.
    """

    offset: float
    # Between what the last answers have put it.
    heard: tuple[_Bounds, ...] = ()

    def told(self, date: float, asked: float, answered: float) -> "ServerTime":
        """The time after an answer: its `date` is in seconds since the epoch, when it was asked for and came in boot time."""
        earliest, latest = said = (date - answered, date + 1.0 - asked)
        heard = (*self.heard[1 - _HEARD :], said)
        other = min(max(self.offset, earliest), latest)
        if _agree(said, self.offset) or _voices(heard, other) <= _OUTWEIGHS * _voices(heard, self.offset):
            return ServerTime(self.offset, heard)
        return ServerTime(other, heard)


def _agree(said: _Bounds, offset: float) -> bool:
    return said[0] - _IN_STEP_SECONDS <= offset <= said[1] + _IN_STEP_SECONDS


def _voices(heard: tuple[_Bounds, ...], offset: float) -> int:
    return sum(_agree(said, offset) for said in heard)


class ServerClock(SystemClock):
    """The API server's wall time, carried on by boot time: deadlines count from `creationTimestamp`, which is that clock's.

    A node's own clock that is wrong, or jumps, ends no job early.
    """

    def __init__(self) -> None:
        self._time = ServerTime(self._own_offset())

    def now(self) -> datetime:
        """See Clock."""
        return datetime.fromtimestamp(self._time.offset + self.boottime(), UTC)

    def told(self, date: datetime, asked: float) -> None:
        """Take note of an answer's `Date`. `asked` is when the question was sent, by `boottime`."""
        self._time = self._time.told(date.timestamp(), asked, self.boottime())

    @property
    def skew_seconds(self) -> float:
        """How far this machine's clock is ahead of the API server's."""
        return self._own_offset() - self._time.offset

    def _own_offset(self) -> float:
        return time.time() - self.boottime()

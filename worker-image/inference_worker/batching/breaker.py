"""A circuit breaker over the model and its device: after faults in a row it refuses at once instead of failing slowly.

Only faults of the model or the device count: what callers send wrong and what is shed never opens it. While it is half-open one
request, the canary, decides. What was let in before it opened decides nothing, whenever it runs.
"""

from dataclasses import dataclass
from enum import IntEnum


class BreakerState(IntEnum):
    """The value is what the metric shows."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """`faults` in a row open it, for `first_seconds`, twice as long after each canary that fails, up to `longest_seconds`."""

    faults: int = 5
    first_seconds: float = 1.0
    longest_seconds: float = 30.0


class Breaker:
    """One model's breaker. Times are seconds of any one monotonic clock."""

    __slots__ = ("_canary", "_faults", "_limits", "_until", "_wait", "epoch", "state")

    def __init__(self, limits: BreakerLimits | None = None) -> None:
        self._limits = limits or BreakerLimits()
        self._faults = 0
        self._wait = self._limits.first_seconds
        self._until = 0.0
        self._canary = False
        self.state = BreakerState.CLOSED
        self.epoch = 0

    def refuses(self, now: float) -> float | None:
        """Seconds until a caller should ask again; None when a request may go on. In half-open the first one may."""
        if self.state is BreakerState.CLOSED:
            return None
        if self.state is BreakerState.OPEN and now >= self._until:
            self.state, self._canary, self.epoch = BreakerState.HALF_OPEN, False, self.epoch + 1
        if self.state is BreakerState.HALF_OPEN and not self._canary:
            self._canary = True
            return None
        return max(self._until - now, self._limits.first_seconds)

    def succeeded(self, epoch: int) -> None:
        """A run that was begun in `epoch` went well."""
        if epoch != self.epoch or self.state is BreakerState.OPEN:
            return
        self._faults = 0
        if self.state is not BreakerState.CLOSED:
            self.state, self._wait, self.epoch = BreakerState.CLOSED, self._limits.first_seconds, self.epoch + 1

    def failed(self, epoch: int, now: float) -> bool:
        """A run that was begun in `epoch` met a fault of the model or the device. Returns whether that opened the breaker."""
        if epoch != self.epoch or self.state is BreakerState.OPEN:
            return False
        self._faults += 1
        if self.state is BreakerState.HALF_OPEN:
            self._wait = min(self._wait * 2, self._limits.longest_seconds)
        elif self._faults < self._limits.faults:
            return False
        self._open(now)
        return True

    def undecided(self, epoch: int) -> None:
        """A run ended without a word about the model (cancelled, or its caller's fault): another canary may try."""
        if epoch == self.epoch:
            self._canary = False

    def _open(self, now: float) -> None:
        self.state, self._until, self.epoch = BreakerState.OPEN, now + self._wait, self.epoch + 1

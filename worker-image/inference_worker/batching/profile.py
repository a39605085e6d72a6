"""How long a run takes by its number of rows, measured and kept up to date; and which number pays.

Batching is no gain by itself: on a CPU many nets take n times as long for n rows, so that waiting to be joined only costs. The
profile is measured at warm-up and follows what later runs show.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

_FOLLOW = 0.2
"""Weight of a new measurement. A single slow run (a neighbour, a page fault) should not turn admission away for long."""

_OUTLIER = 8.0
_FOLLOW_ERROR = 0.05
_SPREADS = 1.5
_WORTH = 0.95
"""A larger batch has to bring at least this much of the time per row: below it, smaller is quicker for whoever waits."""


class Error:
    """How far a forecast is off: its mean and its spread, as seconds, both following what comes in."""

    __slots__ = ("mean", "spread")

    def __init__(self) -> None:
        self.mean = 0.0
        self.spread = 0.0

    def observe(self, seconds: float) -> None:
        """Take one error (what came less what was forecast) into account."""
        self.spread += _FOLLOW_ERROR * (abs(seconds - self.mean) - self.spread)
        self.mean += _FOLLOW_ERROR * (seconds - self.mean)

    @property
    def margin(self) -> float:
        """What to add to a forecast that should seldom be too short."""
        return max(0.0, self.mean) + _SPREADS * self.spread


class LatencyProfile:
    """Seconds of a run by rows, linear between the sizes that were measured. One writer.

    With `steps`, a run of a number between two sizes is filled up to the larger, and takes as long.
    """

    __slots__ = ("_per_row", "_seconds", "_sizes", "_steps")

    def __init__(self, measured: Mapping[int, float], *, steps: bool = False) -> None:
        self._steps = steps
        self._sizes = sorted(measured)
        self._seconds = {size: measured[size] for size in self._sizes}
        # Every request asks, and a run changes it.
        self._per_row: dict[int, float] = {}

    def scaled(self, factor: float) -> "LatencyProfile":
        """The same curve for requests that take `factor` times as long."""
        return LatencyProfile({size: seconds * factor for size, seconds in self._seconds.items()}, steps=self._steps)

    @property
    def measured(self) -> dict[int, float]:
        """Seconds by rows, as far as they are known."""
        return dict(self._seconds)

    def seconds(self, rows: int) -> float:
        """Expected seconds of a run; 0 when nothing was measured."""
        sizes = self._sizes
        if not sizes:
            return 0.0
        at = bisect_left(sizes, rows)
        if at < len(sizes) and sizes[at] == rows:
            return self._seconds[rows]
        if at == 0 or (self._steps and at < len(sizes)):
            return self._seconds[sizes[at]]
        low = sizes[at - 1]
        if at == len(sizes):
            return self._seconds[low] * rows / low
        high = sizes[at]
        share = (rows - low) / (high - low)
        return self._seconds[low] + share * (self._seconds[high] - self._seconds[low])

    def best(self, available: int, *, within: float = float("inf")) -> int:
        """Rows to run next of `available` ones: the cheapest per row among those that end `within` seconds; at least one."""
        chosen, price = 1, self.seconds(1)
        for size in (*self._sizes, available):
            if not 1 < size <= available:
                continue
            took = self.seconds(size)
            if took <= within and took / size < price * _WORTH:
                chosen, price = size, took / size
        # Between two measured sizes the curve is a guess, and every row that waits for another run waits a whole run.
        whole = self.seconds(available)
        if 1 < chosen < available and whole <= within and whole / available <= price / _WORTH:
            return available
        return chosen

    def per_row(self, limit: int) -> float:
        """Seconds per row when there is always enough to do, in runs of measured sizes."""
        at = bisect_right(self._sizes, limit)
        most = self._sizes[at - 1] if at else limit
        known = self._per_row.get(most)
        if known is None:
            best = self.best(most)
            known = self._per_row[most] = self.seconds(best) / best
        return known

    def observe(self, rows: int, seconds: float) -> None:
        """Take a run into account."""
        self._per_row.clear()
        if rows not in self._seconds:
            if len(self._sizes) >= 64:
                return
            self._sizes.insert(bisect_left(self._sizes, rows), rows)
            self._seconds[rows] = seconds
            return
        known = self._seconds[rows]
        self._seconds[rows] = known + _FOLLOW * (min(seconds, known * _OUTLIER) - known)

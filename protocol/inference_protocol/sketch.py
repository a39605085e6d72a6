"""A mergeable latency sketch: logarithmic buckets with a bounded relative error.

The idea is DDSketch's (Masson, Rim, Lee: "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error
Guarantees", VLDB 2019). Quantiles of merged sketches are as good as those of one sketch that saw everything, which the
mean of per-pod percentiles is not.
"""

import math
from collections.abc import Iterable, Mapping

RELATIVE_ACCURACY = 0.01
_GAMMA = (1 + RELATIVE_ACCURACY) / (1 - RELATIVE_ACCURACY)
LOG_GAMMA = math.log(_GAMMA)
# One microsecond to one hour: everything outside is clamped, which bounds a sketch to about 1,100 buckets.
LOWEST_SECONDS = 1e-6
HIGHEST_SECONDS = 3600.0
_LOWEST, _HIGHEST = (math.ceil(math.log(seconds) / LOG_GAMMA) for seconds in (LOWEST_SECONDS, HIGHEST_SECONDS))


class LatencySketch:
    """Counts of durations (seconds) by bucket. Not thread-safe: one writer."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})
        self.total: int = sum(self.counts.values())

    def record(self, seconds: float, *, weight: int = 1) -> None:
        """Add `weight` observations of one duration."""
        clamped = min(max(seconds, LOWEST_SECONDS), HIGHEST_SECONDS)
        index = math.ceil(math.log(clamped) / LOG_GAMMA)
        self.counts[index] = self.counts.get(index, 0) + weight
        self.total += weight

    def merge(self, other: "LatencySketch") -> None:
        """Add another sketch's observations to this one."""
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count
        self.total += other.total

    def quantile(self, q: float) -> float | None:
        """The q-quantile (0..1) in seconds, within RELATIVE_ACCURACY; None without observations."""
        if not self.total:
            return None
        rank = q * (self.total - 1)
        seen = 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen > rank:
                return 2 * _GAMMA ** min(max(index, _LOWEST), _HIGHEST) / (_GAMMA + 1)
        raise AssertionError("counts and total disagree")


def added(before: Mapping[int, int], after: Mapping[int, int]) -> Mapping[int, int]:
    """What came in between two looks at one sketch; all of `after` if it began anew."""
    news = {i: c - before.get(i, 0) for i, c in after.items() if c != before.get(i)}
    if any(c < 0 for c in news.values()) or not before.keys() <= after.keys():
        return after
    return {i: c for i, c in news.items() if c}


def merged(sketches: Iterable[LatencySketch]) -> LatencySketch:
    """One sketch of all observations."""
    whole = LatencySketch()
    for sketch in sketches:
        whole.merge(sketch)
    return whole

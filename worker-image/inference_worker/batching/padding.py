"""How many rows a run gets that has fewer, on devices where another shape than the last one costs.

ONNX Runtime on CUDA prepares every convolution anew whenever the number of rows changes, also back to one that it has seen:
measured on an H200, 22 to 90 ms for a net whose run takes 6 ms (docs/measurements.md). Staying at a size wastes device time on
rows that nobody asked for; changing pays the price. This is the ski-rental problem: stay until what staying has cost since the
last change is what a change costs, which is never worse than twice the best that hindsight knows (Karlin, Manasse, Rudolph,
Sleator: "Competitive Snoopy Caching", 1988). Where each size has a capture or a session of its own, changing costs nothing, and
the next size is the right one.
"""

from bisect import bisect_left
from collections.abc import Sequence

from inference_worker.batching.profile import LatencyProfile


def next_size(sizes: Sequence[int], rows: int) -> int:
    """The smallest of the ordered `sizes` that has room for so many rows; `rows` where none has."""
    at = bisect_left(sizes, rows)
    return sizes[at] if at < len(sizes) else rows


class Padding:
    """Chooses among the sizes that the device was warmed for. One thread at a time."""

    __slots__ = ("_last", "_profile", "_sizes", "_switch", "_wasted")

    def __init__(self, profile: LatencyProfile, switch_seconds: float) -> None:
        self._profile = profile
        self._sizes = sorted(profile.measured)
        self._switch = switch_seconds
        self._last = 0
        self._wasted = 0.0

    def __call__(self, rows: int) -> int:
        """Rows to run instead of `rows`; never fewer. What is larger than every warmed size stays as it is."""
        if not self._sizes or rows > self._sizes[-1]:
            return rows
        fitting = next_size(self._sizes, rows)
        if self._last < rows:
            return self._change(fitting)
        self._wasted += self._profile.seconds(self._last) - self._profile.seconds(fitting)
        if self._wasted >= self._switch:
            return self._change(fitting)
        return self._last

    def _change(self, size: int) -> int:
        self._last, self._wasted = size, 0.0
        return size

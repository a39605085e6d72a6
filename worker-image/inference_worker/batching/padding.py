"""How many rows a run gets that has fewer, on devices where another shape than the last one costs.

ONNX Runtime on CUDA prepares every convolution anew whenever the number of rows changes, also back to one that it has seen:
measured on an H200, 22 to 90 ms for a net whose run takes 6 ms (docs/measurements.md). Staying at a size wastes device time on
rows that nobody asked for; changing pays the price. This is the ski-rental problem: stay until what staying has cost since the
last change is what a change costs, which is never worse than twice the best that hindsight knows (Karlin, Manasse, Rudolph,
Sleator: "Competitive Snoopy Caching", 1988).
"""

from bisect import bisect_left

from inference_worker.batching.profile import LatencyProfile


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
        at = bisect_left(self._sizes, rows)
        if at == len(self._sizes):
            return rows
        fitting = self._sizes[at]
        if self._last < rows:
            return self._change(fitting)
        self._wasted += self._profile.seconds(self._last) - self._profile.seconds(fitting)
        if self._wasted >= self._switch:
            return self._change(fitting)
        return self._last

    def _change(self, size: int) -> int:
        self._last, self._wasted = size, 0.0
        return size

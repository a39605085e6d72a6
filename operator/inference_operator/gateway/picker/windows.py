"""What workers' requests took of late, as their sketches tell. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from inference_protocol.messages import Telemetry
from inference_protocol.sketch import LatencySketch, added

# Over which a worker's latency is measured, and from how many requests on it says something.
_WINDOW_SECONDS = 10.0
_FEWEST = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """A worker's last window: what 95 % of its requests took at most, in seconds, and how many it had at once on average."""

    p95: float
    at_once: float


class Windows:
    """By the pod's uid. `measured` has a worker's last window with enough requests: what it took then says more than nothing."""

    def __init__(self) -> None:
        self.measured: dict[str, Measured] = {}
        # What a worker had counted when its window began, and when that was.
        self._began: dict[str, tuple[float, Mapping[int, int]]] = {}

    def round(self, told: Mapping[str, Telemetry | None], now: float) -> None:
        """Take in a round of telemetry. `now` is in seconds of a clock that never jumps."""
        for uid, answer in told.items():
            if answer is None:
                continue
            began, before = self._began.setdefault(uid, (now, answer.sketch))
            if now - began < _WINDOW_SECONDS:
                continue
            if (found := _measured(LatencySketch(added(before, answer.sketch)), now - began)) is not None:
                self.measured[uid] = found
            self._began[uid] = (now, answer.sketch)
        for gone in self._began.keys() - told.keys():
            del self._began[gone]
            self.measured.pop(gone, None)


def _measured(sketch: LatencySketch, seconds: float) -> Measured | None:
    p95, median = sketch.quantile(0.95), sketch.quantile(0.5)
    if sketch.total < _FEWEST or p95 is None or median is None:
        return None
    # Little's law: what comes in a second, times the seconds that each stays.
    return Measured(p95, sketch.total * median / seconds)

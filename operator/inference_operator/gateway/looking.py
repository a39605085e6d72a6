"""What all doors do alike: they look at the store when something has changed, and measure workers by rounds of telemetry."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inference_operator.gateway.snapshot import Service, services
from inference_operator.state.store import Store
from inference_operator.state.topology import ZONE_LABEL
from inference_protocol.messages import Telemetry
from inference_protocol.sketch import LatencySketch, added

log = logging.getLogger(__name__)

# A burst of events is one look.
_PAUSE_SECONDS = 0.02
# A look without cause, should one have been missed.
_LOOK_SECONDS = 5.0
# Over which a worker's latency is measured, and from how many requests on it says something.
_WINDOW_SECONDS = 10.0
_FEWEST = 100


async def follow(stir: asyncio.Event, look: Callable[[], None], what: str) -> None:
    """Look for ever, soon after each stir. `what` could not be made, says the log of a look that fails."""
    while True:
        try:
            await asyncio.wait_for(stir.wait(), _LOOK_SECONDS)
        except TimeoutError:
            pass
        await asyncio.sleep(_PAUSE_SECONDS)
        stir.clear()
        try:
            look()
        except Exception:
            # What was said last stays said: a door outlives a fault of ours.
            log.exception("%s could not be made", what)


def services_of(store: Store, *, tls: bool) -> tuple[Service, ...]:
    """All services, as the store has them now. See `snapshot.services`."""
    jobs = store.jobs.values()
    pods = {job.uid: store.workers_of(job.uid) for job in jobs if not job.is_batch}
    return services(jobs, store.models, pods, store.readings, zones=zones_of(store), tls=tls)


def zones_of(store: Store) -> dict[str, str]:
    """The zones of nodes, by name."""
    return {name: zone for name, node in store.nodes.items() if (zone := node.labels.get(ZONE_LABEL))}


@dataclass(frozen=True, slots=True)
class Measured:
    """A worker's last window: what 95 % of its requests took at most, in seconds, and how many it had at once on average."""

    p95: float
    at_once: float


class Windows:
    """What workers' requests took of late, by the pod's uid.

    `measured` has a worker's last window with enough requests: what it took then says more than nothing.
    """

    def __init__(self) -> None:
        self.measured: dict[str, Measured] = {}
        # Those whose last window had enough.
        self._fresh: set[str] = set()
        # What a worker had counted when its window began, and when that was.
        self._began: dict[str, tuple[float, Mapping[int, int]]] = {}

    def round(self, told: Mapping[str, Telemetry | None], now: float) -> bool:
        """Take in a round of telemetry; whether a window has ended. `now` is in seconds of a clock that never jumps."""
        ended = False
        for uid, answer in told.items():
            if answer is None:
                continue
            began, before = self._began.setdefault(uid, (now, answer.sketch))
            if now - began < _WINDOW_SECONDS:
                continue
            self._fresh.discard(uid)
            if (found := _measured(LatencySketch(added(before, answer.sketch)), now - began)) is not None:
                self.measured[uid] = found
                self._fresh.add(uid)
            self._began[uid], ended = (now, answer.sketch), True
        for gone in self._began.keys() - told.keys():
            del self._began[gone]
            self.measured.pop(gone, None)
            self._fresh.discard(gone)
        return ended

    def p95(self, uid: str) -> float | None:
        """Of the last window, in seconds; None where it had too few requests."""
        return self.measured[uid].p95 if uid in self._fresh else None


def _measured(sketch: LatencySketch, seconds: float) -> Measured | None:
    p95, median = sketch.quantile(0.95), sketch.quantile(0.5)
    if sketch.total < _FEWEST or p95 is None or median is None:
        return None
    # Little's law: what comes in a second, times the seconds that each stays.
    return Measured(p95, sketch.total * median / seconds)

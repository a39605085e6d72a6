"""Decides for each request, from the looks that the operator has at workers all the time. Nobody is asked anything."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from inference_operator.gateway.clusters import PORTS
from inference_operator.gateway.hold import Refusal, asked
from inference_operator.gateway.looking import follow, services_of
from inference_operator.gateway.picker.asked import Target
from inference_operator.gateway.picker.pick import Load, Picked, Shed, pick
from inference_operator.gateway.picker.windows import Windows
from inference_operator.gateway.snapshot import Service
from inference_operator.gateway.split import Split, splits
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry

_NOT_FOUND, _TOO_MANY, _UNAVAILABLE = 404, 429, 503
# As in `gateway/lua.py`: a hundred requests in a row have every number once.
_HUNDRED, _STRIDE = 100, 61


@dataclass(frozen=True, slots=True)
class Choice:
    """A worker by its pod's uid, and where it is."""

    uid: str
    endpoint: str


class Picker:
    """What it knows between requests. `requests` under way are counted by the pod's uid, as this replica has sent them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._windows = Windows()
        self._stir = asyncio.Event()
        self._services: Mapping[tuple[str, str, str], Service] = {}
        self._splits: Mapping[tuple[str, str], Split] = {}
        self._drawn: Counter[tuple[str, str]] = Counter()
        self._requests: Counter[str] = Counter()
        # How many of these there were when a worker last said how many it has.
        self._then: dict[str, int] = {}

    def wake(self) -> None:
        """Something has changed that the choice may depend on."""
        self._stir.set()

    def round(self, told: Mapping[str, Telemetry | None]) -> None:
        """Take in a round of telemetry: what workers have in them now, and what their requests took."""
        self._windows.round(told, self._clock.monotonic())
        for uid, answer in told.items():
            if answer is not None:
                self._then[uid] = self._requests[uid]
        for uid in self._then.keys() - told.keys():
            del self._then[uid]
        self.wake()

    async def run(self) -> None:
        """Look at the store for ever."""
        self.look()
        await follow(self._stir, self.look, "the endpoint picker's services")

    def look(self) -> None:
        """Take in which services there are."""
        found = services_of(self._store, tls=False)
        self._services = {(service.namespace, service.model, service.version): service for service in found}
        self._splits = {(split.shares[0][0].namespace, split.shares[0][0].model): split for split in splits(found)}

    def decide(self, target: Target, headers: Mapping[str, str], subset: frozenset[str] | None) -> Choice | Refusal:
        """Who gets a request, or what its caller is told."""
        service = self._service(target)
        if service is None:
            return _counted(Refusal(_NOT_FOUND, f"no model is served as {target.namespace}/{target.model}"))
        port = PORTS[target.protocol]
        places = {worker.uid: _endpoint(worker.address, port) for worker in service.backends if worker.last or not worker.draining}
        allowed = {uid: place for uid, place in places.items() if subset is None or place in subset}
        trusted = allowed.keys() - self._store.suspected or allowed.keys()
        return self._chosen(target, {uid: allowed[uid] for uid in trusted}, asked(headers).seconds)

    def _chosen(self, target: Target, places: Mapping[str, str], deadline: float | None) -> Choice | Refusal:
        match pick({uid: self._load(uid) for uid in places}, deadline, places):
            case Picked(uid):
                metrics.picker_requests_total.labels("picked").inc()
                return Choice(uid, places[uid])
            case Shed(expected):
                late = expected - (deadline or 0.0)
                text = f"no worker of {target.model} answers in time: the soonest is expected in {expected:.3f} s"
                return _counted(Refusal(_TOO_MANY, text, max(1, math.ceil(late))))
            case None:
                return _counted(Refusal(_UNAVAILABLE, f"no worker of {target.model} is ready"))

    def begun(self, uid: str) -> None:
        """A request goes to a worker."""
        self._requests[uid] += 1

    def ended(self, uid: str) -> None:
        """It has been answered, or given up."""
        self._requests[uid] -= 1
        if not self._requests[uid]:
            del self._requests[uid]

    def _service(self, target: Target) -> Service | None:
        if target.version:
            return self._services.get((target.namespace, target.model, target.version))
        named = (target.namespace, target.model)
        split = self._splits.get(named)
        if split is None:
            return None
        self._drawn[named] = (self._drawn[named] + _STRIDE) % _HUNDRED
        return _drawn(split, self._drawn[named])

    def _load(self, uid: str) -> Load:
        """As the worker said, and what was sent there or answered since."""
        reading, measured = self._store.readings.get(uid), self._windows.measured.get(uid)
        told = reading.telemetry.queued + reading.telemetry.in_flight if reading is not None else 0
        ahead = max(told + self._requests[uid] - self._then.get(uid, 0), 0)
        return Load(ahead) if measured is None else Load(ahead, measured.p95, measured.at_once)


def _drawn(split: Split, number: int) -> Service:
    """Who gets the request with a number below a hundred."""
    for service, percent in split.shares:
        if number < percent:
            return service
        number -= percent
    return split.shares[0][0]


def _counted(refusal: Refusal) -> Refusal:
    outcome = {_TOO_MANY: "shed", _UNAVAILABLE: "unavailable"}.get(refusal.status, "refused")
    metrics.picker_requests_total.labels(outcome).inc()
    return refusal


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

"""Keeps what Envoys are told as the store says: looks when something has changed, and tells only what is new."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from statistics import median

from inference_operator.gateway.door import Door
from inference_operator.gateway.hold import Bounds
from inference_operator.gateway.holding import Holding
from inference_operator.gateway.looking import follow, services_of
from inference_operator.gateway.resources import of_zones, resources
from inference_operator.gateway.routes import by_route
from inference_operator.gateway.server import Word, serve
from inference_operator.gateway.snapshot import Service
from inference_operator.gateway.waker import Waker
from inference_operator.gateway.weights import weights
from inference_operator.kube.ports import KubeClient
from inference_operator.runtime.clock import Clock
from inference_operator.settings import GatewaySettings
from inference_operator.state.objects import Key
from inference_operator.state.store import Store
from inference_operator.state.topology import ZONE_LABEL
from inference_protocol.messages import Telemetry

log = logging.getLogger(__name__)

# Over which the middle of what a worker says of its speed is taken: one slow run is no slow worker.
_WINDOW_SECONDS = 10.0


class Gateway:
    """The whole of it, as the composition root sees it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: GatewaySettings,
        kube: KubeClient,
        trust: Callable[[], str] = lambda: "",
        namespace: str = "",
    ) -> None:
        """`trust` gives the CAs of workers, in PEM; `namespace` is the Envoys'."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._trust = trust
        self._namespace = namespace
        self._word = Word()
        self._waker = Waker(store, kube, clock)
        most = Bounds(settings.held_requests, settings.held_bytes)
        self._holding = Holding(
            self._find, self._waker.outlook, self._waker.wake, self._word.taken, clock.monotonic, most, settings.hold_seconds
        )
        self._keys_read = ""
        self._by_route: Mapping[str, Service] = {}
        self._stir = asyncio.Event()
        self._services: tuple[Service, ...] = ()
        self._told: object = None
        # By the pod's uid: its weight, when its window began and what it has said since, and its speed in the last window.
        self._weights: dict[str, int] = {}
        self._heard: dict[str, tuple[float, list[float]]] = {}
        self._row_seconds: dict[str, float] = {}
        self.port = settings.port

    def wake(self) -> None:
        """Something has changed that the door may depend on."""
        self._stir.set()

    def round(self, told: Mapping[str, Telemetry | None]) -> None:
        """Take in a round of telemetry: every window, weights follow from what a row takes of each worker."""
        now, moved = self._clock.monotonic(), False
        for uid, answer in told.items():
            if answer is None or answer.row_seconds is None:
                continue
            began, heard = self._heard.setdefault(uid, (now, []))
            heard.append(answer.row_seconds)
            if now - began >= _WINDOW_SECONDS:
                self._row_seconds[uid] = median(heard)
                self._heard[uid], moved = (now, []), True
        for kept in (self._heard, self._row_seconds, self._weights):
            for uid in kept.keys() - told.keys():
                del kept[uid]
        if moved:
            self._reweigh()
        self._waker.note(told)
        self.wake()

    def _reweigh(self) -> None:
        for service in self._services:
            known = {backend.uid: self._row_seconds.get(backend.uid) for backend in service.backends}
            self._weights.update(weights(self._weights, known))

    async def serve(self) -> None:
        """Serve for ever. The store has to be whole: what is not in it would be taken from the Envoys."""
        self._look(first=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._stir, self._look, "the gateway's routes"))
            group.create_task(serve(self._word, self.port, self._listens, self._holding, self._zone_of))

    def _listens(self, port: int) -> None:
        self.port = port

    def _look(self, *, first: bool = False) -> None:
        door, leaving = self._door(), self._leaving()
        found = services_of(self._store, tls=bool(door.tls_folder and door.trust))
        uids = chain.from_iterable((backend.uid for backend in service.backends) for service in found)
        weighed = {uid: self._weights[uid] for uid in uids if uid in self._weights}
        if not first and (found, weighed, door, leaving) == self._told:
            return
        self._services, self._told = found, (found, weighed, door, leaving)
        self._by_route = by_route(found)
        self._waker.look(found)
        self._word.say(resources(found, weighed, door), of_zones(found, weighed, audited=door.audit), leaving)
        self._holding.look_again()

    def _door(self) -> Door:
        limits = self._settings
        return Door(
            limits.listener_port,
            limits.request_bytes,
            limits.hold_seconds,
            limits.tls_folder,
            self._trust(),
            limits.tenants,
            self._key_set(),
            limits.envoys,
            limits.audit,
            limits.payloads,
            limits.tracing if limits.tracing.endpoint else None,
        )

    def _key_set(self) -> str:
        """The keys of the tokens' issuer: a mounted file, which may be replaced."""
        file = self._settings.tenants.tokens.key_set_file
        if not (file and self._settings.tenants.enabled):
            return ""
        try:
            self._keys_read = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            # A token is judged by the keys that were there.
            log.warning("the keys of the tokens' issuer can't be read: %s", error)
        return self._keys_read

    def _leaving(self) -> frozenset[str]:
        """Pods of the Envoys' namespace that were told to go; which of them are Envoys, these know by their names."""
        pods = self._store.pods.values()
        return frozenset(pod.key.name for pod in pods if pod.deleting and pod.key.namespace == self._namespace)

    def _zone_of(self, envoy: str) -> str:
        pod = self._store.pods.get(Key(self._namespace, envoy))
        node = self._store.nodes.get(pod.node) if pod is not None and pod.node is not None else None
        return node.labels.get(ZONE_LABEL, "") if node is not None else ""

    def _find(self, route: str) -> Service | None:
        return self._by_route.get(route)

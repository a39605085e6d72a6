"""Fetches models before a worker asks, as the operator orders: what needs no credentials, from the administrator's hosts alone.

Whoever fetches here stands in the operator's namespace. So nothing is sent anywhere that the administrator hasn't listed, and a
namespace is only let read what its own workers could have fetched without proving who they are.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from inference_protocol.messages import Storage
from inference_protocol.node_cache import CachedModel, Wanted, WantedModel, WantedState
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import RemoteUri
from inference_worker import fetch, volumes
from inference_worker.errors import StoppedError, WorkerError
from inference_worker.exchange import Bounds
from inference_worker.node_cache.faults import NotTakenError
from inference_worker.node_cache.flights import Flights, Key
from inference_worker.node_cache.incoming import Incoming
from inference_worker.node_cache.metrics import Metrics
from inference_worker.node_cache.store import ModelStore

log = logging.getLogger(__name__)

# A model's own file is read for the names of those beside it; one with its weights within is larger, and has no others.
_MAIN_LIMIT_BYTES = 64 << 20
_RETRY_SECONDS = 30.0
_FETCH_SECONDS = 3600.0
_MESSAGE_LETTERS = 512
# Fetches at once, of a namespace each: a slow server holds up nobody else's.
FETCHERS = 4


@dataclass(frozen=True, slots=True)
class _Failure:
    why: str
    until: float


class Prefetcher:
    """Knows the operator's last order, and carries it out one model at a time."""

    def __init__(self, store: ModelStore, flights: Flights, metrics: Metrics, hosts: Sequence[str]) -> None:
        """`hosts` may be fetched from (`hosts.host_fault`); where it is empty, nothing is fetched."""
        self._store = store
        self._flights = flights
        self._metrics = metrics
        self._hosts = hosts
        self._order = Wanted(0.0, ())
        self._failures: dict[WantedModel, _Failure] = {}
        self._busy: set[str] = set()
        self._changed = threading.Condition()

    def take(self, order: Wanted) -> WantedState | None:
        """Take an order in place of the last, and say how its models stand; None for one that is older than the last."""
        with self._changed:
            if order.sent <= self._order.sent:
                return None
            self._order = order
            self._failures = {model: failure for model, failure in self._failures.items() if model in order.models}
            self._changed.notify_all()
            return WantedState(tuple(self._state(model) for model in order.models))

    def run(self) -> None:
        """Fetch for ever. Several threads do."""
        while True:
            model = self._next()
            try:
                self._fetch(model)
            finally:
                with self._changed:
                    self._busy.discard(model.namespace)
                    self._changed.notify_all()

    def _next(self) -> WantedModel:
        """A model that is lacking, of a namespace that no thread fetches for; waits for one."""
        with self._changed:
            while True:
                found = next(filter(self._may_fetch, self._order.models), None)
                if found is not None:
                    self._busy.add(found.namespace)
                    return found
                self._changed.wait(_RETRY_SECONDS)

    def _may_fetch(self, model: WantedModel) -> bool:
        failure = self._failures.get(model)
        due = failure is None or failure.until <= time.monotonic()
        return due and model.namespace not in self._busy and not self._store.has(*_key(model))

    def _state(self, model: WantedModel) -> CachedModel:
        namespace, digest = _key(model)
        if self._store.has(namespace, digest):
            return CachedModel(namespace, digest, "Cached")
        failure = self._failures.get(model)
        if failure is None:
            return CachedModel(namespace, digest, "Fetching")
        return CachedModel(namespace, digest, "Failed", failure.why[:_MESSAGE_LETTERS])

    def _fetch(self, model: WantedModel) -> None:
        key = _key(model)
        flight = self._flights.begin(key)
        if flight is None:
            # A worker brings it.
            self._fail(model, "a worker fetches it")
            return
        try:
            with self._store.incoming(*key) as incoming:
                self._read(model, incoming)
                incoming.verify()
                incoming.commit()
            self._metrics.prefetched += 1
            log.info("prefetched %s/%s", *key)
        except (WorkerError, NotTakenError, StoppedError, OSError) as error:
            log.warning("%s/%s can't be prefetched: %s", *key, error)
            self._metrics.prefetch_failures += 1
            self._fail(model, str(error))
        finally:
            flight.end()

    def _fail(self, model: WantedModel, why: str) -> None:
        with self._changed:
            self._failures[model] = _Failure(why, time.monotonic() + _RETRY_SECONDS)

    def _read(self, model: WantedModel, incoming: Incoming) -> None:
        """Fetch a model's own file, and those beside it if its digest is of several. Raises WorkerError, NotTakenError."""
        text, (_, digest) = model.source.uri, _key(model)
        storage = model.source.storage or Storage()
        until = time.monotonic() + _FETCH_SECONDS

        def one(place: str, name: str, missing: WorkerReason) -> None:
            incoming.begin(name)
            self._require_allowed(place, storage)
            bounds = Bounds(self._hosts, self._store.limit, missing, WorkerReason.MODEL_TOO_LARGE, stop)
            fetch.fetch_into(incoming, place, bounds, storage)

        def stop() -> bool:
            with self._changed:
                return time.monotonic() > until or model not in self._order.models

        one(text, fetch.file_name(text), WorkerReason.MODEL_NOT_FOUND)
        if incoming.digest != digest:
            # Seldom, and it takes 40 MB.
            from inference_worker.engines import external_data

            for name in external_data.files_of(incoming.read(_MAIN_LIMIT_BYTES)):
                one(volumes.beside(text, name), name, WorkerReason.MODEL_DATA_MISSING)

    def _require_allowed(self, text: str, storage: Storage) -> None:
        """Require that a location may be fetched from here. Raises WorkerError."""
        if not isinstance(volumes.parse(text), RemoteUri):
            why = "a volume's files are read where they are"
        elif storage.secret or storage.aws_role:
            why = "it needs credentials, which only its workers have"
        elif not self._hosts:
            why = "the setting fetch.allowedHosts lists no hosts"
        else:
            return
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{text} is not prefetched: {why}")


def _key(model: WantedModel) -> Key:
    return model.namespace, model.source.digest or ""

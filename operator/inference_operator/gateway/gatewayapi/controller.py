"""Keeps routes and pools as they should be, where the API server has their kinds, and tells jobs of gateways that refuse them.

The leader alone runs it. What gateways say of a route is read by a list now and then: it changes with their set-up, not with load.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec

from inference_operator.api import names
from inference_operator.api.events import EventReason
from inference_operator.errors import ConflictError, NotFoundError, OperatorError, RefusedError
from inference_operator.gateway.gatewayapi.objects import (
    GRPC_ROUTE,
    HTTP_ROUTE,
    KINDS,
    MADE_FOR,
    POOL,
    SERVICE,
    SLICE,
    Owned,
    Owner,
    collection,
    owners_of,
    refusals,
    says,
)
from inference_operator.gateway.gatewayapi.pools import Replicas, pools, replicas_of
from inference_operator.gateway.gatewayapi.routes import Doors, routes
from inference_operator.gateway.looking import services_of
from inference_operator.gateway.manifests import Manifest
from inference_operator.kube import paths
from inference_operator.kube.events import EventRecorder
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.runtime.clock import Clock
from inference_operator.settings import GatewaySettings, ParentGateway
from inference_operator.state.endpoints import LABEL_SERVICE
from inference_operator.state.objects import Key
from inference_operator.state.store import Store

log = logging.getLogger(__name__)

# Between two looks: a burst of events is one.
_PAUSE_SECONDS = 0.5
_Named = tuple[str, Key]


class GatewayRoutes:
    """The whole of it, as the composition root sees it."""

    def __init__(
        self,
        store: Store,
        kube: KubeClient,
        events: EventRecorder,
        clock: Clock,
        settings: GatewaySettings,
        namespace: str,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        """`namespace` is the operator's own, `namespaces` those that it watches; none means all."""
        self._store, self._kube, self._events, self._clock = store, kube, events, clock
        self._settings = settings
        self._namespace = namespace
        self._watched: tuple[str | None, ...] = namespaces or (None,)
        self._doors = doors(settings)
        self._stir = asyncio.Event()
        self._listed = float("-inf")
        # The kinds that the API server lacks have been named in the log.
        self._missing: frozenset[str] | None = None
        self._found: dict[_Named, Raw] = {}
        # What was written, and what the API server made of it; None where it refused.
        self._written: dict[_Named, tuple[Manifest, Raw | None]] = {}
        self._replicas: Replicas = {}

    def wake(self) -> None:
        """Something has changed that routes may depend on."""
        self._stir.set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
            except OperatorError as error:
                log.warning("routes for gateways are made later: %s", error)
            except Exception:
                log.exception("routes for gateways could not be made")
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                await asyncio.wait_for(self._stir.wait(), self._settings.api.seconds)
            except TimeoutError:
                pass
            self._stir.clear()

    async def look(self) -> None:
        """Bring all that should be there to what it should say; now and then, hear what has become of it. Raises OperatorError."""
        if self._clock.monotonic() - self._listed >= self._settings.api.seconds:
            await self._list()
            self._listed = self._clock.monotonic()
        if self._missing is None or HTTP_ROUTE in self._missing:
            return
        wanted = {(one.kind, one.key): one for one in self._wanted() if one.kind not in self._missing}
        for named, one in wanted.items():
            await self._bring(named, one)
        for named in [named for named in self._found if named not in wanted]:
            await self._remove(named)

    def _wanted(self) -> tuple[Owned, ...]:
        services = services_of(self._store, tls=False)
        owners = {key: self._owner(key) for service in services for key in service.jobs}
        # Where there are no InferencePools, Services do.
        found = replace(self._doors, picker=self._doors.picker and POOL not in (self._missing or ()))
        made = pools(services, owners, self._settings.endpoint_picker, self._replicas) if found.picker else ()
        return (*made, *routes(services, owners, found))

    def _owner(self, key: Key) -> Owner:
        job = self._store.jobs[key]
        return Owner(job.uid, sum(pod.ready and not pod.deleting for pod in self._store.workers_of(job)))

    # effects

    async def _list(self) -> None:
        missing = frozenset([kind for kind in self._kinds() if not await self._is_there(kind)])
        if missing != self._missing and missing:
            log.warning("the API server lacks %s: what needs them is made once their CRDs are there", ", ".join(sorted(missing)))
        self._missing = missing
        found: dict[_Named, Raw] = {}
        for kind in self._kinds():
            if kind not in missing:
                async for one in self._each(kind):
                    found[kind, Key(one["metadata"]["namespace"], one["metadata"]["name"])] = {**one, "kind": kind}
        self._found = found
        self._written = {named: written for named, written in self._written.items() if named in found and written[1] is not None}
        if self._doors.picker:
            self._replicas = replicas_of([one async for one in self._own_slices()])
        for one in found.values():
            self._tell(one)

    def _kinds(self) -> tuple[str, ...]:
        return (HTTP_ROUTE, GRPC_ROUTE, *((POOL, SERVICE, SLICE) if self._doors.picker else ()))

    async def _is_there(self, kind: str) -> bool:
        """Whether the API server has a kind; those that every one has aren't looked for."""
        if kind in (SERVICE, SLICE):
            return True
        version, plural = KINDS[kind]
        try:
            found = await self._kube.get(f"/apis/{version}")
        except NotFoundError:
            return False
        return any(one["name"] == plural for one in found.get("resources", ()))

    async def _each(self, kind: str) -> AsyncIterator[Raw]:
        for namespace in self._watched:
            async for page in self._kube.list_pages(collection(kind, namespace), selector=f"{names.LABEL_MADE_FOR}={MADE_FOR}"):
                for one in page:
                    yield one

    async def _own_slices(self) -> AsyncIterator[Raw]:
        selector = f"{LABEL_SERVICE}={self._settings.endpoint_picker.service}"
        async for page in self._kube.list_pages(paths.slices(self._namespace), selector=selector):
            for one in page:
                yield one

    async def _bring(self, named: _Named, one: Owned) -> None:
        found = self._found.get(named)
        if found is not None and says(found, one.manifest):
            return
        if (written := self._written.get(named)) is not None and written[0] == one.manifest and _same(written[1], found):
            # The API server has refused it, or has made of it what it can.
            return
        try:
            made = await self._apply(one, found)
        except (ConflictError, NotFoundError):
            # It is not the one that was found: its owner has gone, and it has gone with that.
            self._listed = float("-inf")
            self._stir.set()
            return
        except RefusedError as error:
            self._written[named] = (one.manifest, None)
            self._record(one.job, f"{one.kind} {one.key.name} is refused: {error.message}", one.kind)
            return
        made = {**made, "kind": one.kind}
        self._written[named], self._found[named] = (one.manifest, made), made
        log.info("%s: %s %s", one.job, one.kind, one.key.name)

    async def _apply(self, one: Owned, found: Raw | None) -> Raw:
        """Looked for first: an apply would take over what somebody else has made.

        Also made by an apply: what a creation has written, a later apply can't take away.
        """
        body, path = msgspec.to_builtins(one.manifest), f"{collection(one.kind, one.key.namespace)}/{one.key.name}"
        if found is None:
            found = await self._there(path)
            if found is not None and not owners_of(found) & {job.uid for job in self._store.jobs.values()}:
                raise RefusedError(409, "NameTaken", f"a {one.kind} {one.key.name!r} of somebody else exists; delete it")
        if found is not None:
            body["metadata"]["uid"] = found["metadata"]["uid"]
        return await self._kube.apply(path, body)

    async def _there(self, path: str) -> Raw | None:
        try:
            return await self._kube.get(path)
        except NotFoundError:
            return None

    async def _remove(self, named: _Named) -> None:
        """A Service stays: the operator may delete none. It goes with its job."""
        kind, key = named
        found = self._found.pop(named)
        if kind != SERVICE and owners_of(found):
            await self._kube.delete(f"{collection(kind, key.namespace)}/{key.name}", uid=found["metadata"]["uid"])

    def _tell(self, found: Manifest) -> None:
        texts = refusals(found)
        keys = [key for uid in sorted(owners_of(found)) if texts and (key := self._store.job_key(uid)) is not None]
        for key in keys:
            for text in texts:
                self._record(key, text, "a gateway's word")

    def _record(self, key: Key, text: str, occasion: str) -> None:
        job, reason = self._store.jobs.get(key), EventReason.ROUTE_REFUSED
        if job is not None:
            self._events.record(key, job.uid, event_type=reason.event_type, reason=reason.value, message=text, occasion=occasion)


def doors(settings: GatewaySettings) -> Doors:
    """What the settings say of all routes."""
    api = settings.api
    parents, grpc_parents = (tuple(map(_reference, given)) for given in (api.parents, api.grpc_parents or api.parents))
    return Doors(parents, grpc_parents, tuple(api.hostnames), api.domain, settings.endpoint_picker.enabled)


def _reference(parent: ParentGateway) -> Manifest:
    section = {"sectionName": parent.section_name} if parent.section_name else {}
    return {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": parent.namespace, "name": parent.name, **section}


def _same(one: Raw | None, other: Raw | None) -> bool:
    """Whether two looks at an object found the same, whatever its status says."""
    kept = ("spec", "endpoints", "ports")
    return one is None or (other is not None and all(one.get(field) == other.get(field) for field in kept))

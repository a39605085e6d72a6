"""Kueue as the operator sees it: whether the cluster has it, and its objects, for as long as it does.

Kueue may be installed after the operator, and removed under it. kopf's watches end with their kind, and the process with them. So
its kinds have watches of their own, which are begun anew for as long as the operator lives.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from inference_operator.api import names
from inference_operator.controllers.scheduling_loop import Wake
from inference_operator.errors import NotFoundError, OperatorError, RefusedError
from inference_operator.kube import paths
from inference_operator.kube.ports import WatchingClient
from inference_operator.kube.scope import Namespaces, Scope
from inference_operator.state.kueue import GROUP, VERSION, KueueApi, parse_flavor, parse_priority_class, parse_workload
from inference_operator.state.objects import Key
from inference_operator.state.request import job_request
from inference_operator.state.store import Store, stale_objects

log = logging.getLogger(__name__)

Raw = dict[str, Any]
Take = Callable[..., None]

# Between two looks for a Kueue that is not there, and between two watches.
_LOOK_SECONDS = 15.0
_PAUSE_SECONDS = 1.0
_API = f"/apis/{GROUP}/{VERSION}"
_OURS = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


class Kueue:
    """Takes in Workloads, ResourceFlavors and PriorityClasses, and wakes the jobs that they concern."""

    def __init__(self, kube: WatchingClient, store: Store, wake: Wake, scope: Scope, *, resync_seconds: float) -> None:
        self._kube, self._store, self._wake, self._scope = kube, store, wake, scope
        self._queues = store.queues
        self._resync_seconds = resync_seconds
        # Set while Kueue is there: what follows it waits for that, and one alone looks.
        self._serving = asyncio.Event()
        # Flavors and classes first: a Workload is read by them.
        self.takes: dict[str, Take] = {
            "resourceflavors": self.flavor,
            "priorityclasses": self.priority_class,
            "workloads": self.workload,
        }

    async def once(self) -> None:
        """Look whether the cluster has Kueue, and list what there is. Raises OperatorError."""
        try:
            await self._kube.get(_API)
            for kind in self.takes:
                await self._list(kind, self._scope.of(kind))
        except NotFoundError:
            self._become(KueueApi.MISSING)
        except RefusedError as error:
            if self._queues.api is KueueApi.SERVING:
                raise
            # Who gives the operator its rights by hand may have left these out: batches without a queue are served all the same.
            log.error("Kueue's kinds can't be read, and count as missing: %s", error)
            self._become(KueueApi.MISSING)
        else:
            self._become(KueueApi.SERVING)

    async def run(self) -> None:
        """Follow Kueue for ever, while it is there and while it is not."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relist())
            group.create_task(self._look())
            for kind in self.takes:
                for namespace in self._scope.of(kind):
                    group.create_task(self._follow(kind, namespace))

    async def _relist(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds)
            await self._again()

    async def _look(self) -> None:
        """Look for a Kueue that is missing, once for all that wait for it."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._queues.api is KueueApi.MISSING:
                await self._again()

    async def _follow(self, kind: str, namespace: str | None) -> None:
        """Follow one kind in one namespace while Kueue is there: it was listed when it was found."""
        collection, _, selector = self._kind(kind)
        while True:
            await self._serving.wait()
            try:
                async for event in self._kube.watch(collection(namespace), selector=selector):
                    self._taken(kind, event["object"], gone=event["type"] == "DELETED")
            except OperatorError as error:
                log.info("the watch of %s has ended: %s", kind, error)
            await asyncio.sleep(_PAUSE_SECONDS)
            if self._serving.is_set():
                await self._list_again(kind, namespace)

    async def _list_again(self, kind: str, namespace: str | None) -> None:
        """List what one watch has left: what went meanwhile no watch tells. A kind that is not served any more is Kueue's end."""
        try:
            await self._list(kind, (namespace,))
        except NotFoundError:
            self._become(KueueApi.MISSING)
        except OperatorError as error:
            log.warning("%s can't be listed, and count as they were: %s", kind, error)

    def _taken(self, kind: str, raw: Raw, *, gone: bool) -> None:
        """Take an object in; one that can't be read must not hide the others."""
        try:
            self.takes[kind](raw, gone=gone)
        except Exception:
            log.exception("a %s could not be taken in", kind)

    async def _again(self) -> None:
        try:
            await self.once()
        except OperatorError as error:
            log.warning("Kueue's kinds can't be listed, and count as they were: %s", error)

    def _become(self, api: KueueApi) -> None:
        if self._queues.api is api:
            return
        self._queues.api = api
        if api is KueueApi.SERVING:
            self._serving.set()
        else:
            self._serving.clear()
        if api is KueueApi.MISSING:
            log.warning("this cluster serves no %s/%s: jobs with queueName wait until Kueue is installed", GROUP, VERSION)
            self._queues.workloads.clear()
            self._queues.flavors.clear()
        self._wake_all()

    def _wake_all(self) -> None:
        for key, job in self._store.jobs.items():
            if job.spec is not None and job.spec.queue_name is not None:
                self._wake(job_request(key))

    async def _list(self, kind: str, namespaces: Namespaces) -> None:
        collection, everywhere, selector = self._kind(kind)
        known = {key: uid for key, uid in everywhere.items() if None in namespaces or key.namespace in namespaces}
        listed: list[tuple[Key, str]] = []
        for namespace in namespaces:
            async for page in self._kube.list_pages(collection(namespace), selector=selector):
                for raw in page:
                    meta = raw["metadata"]
                    listed.append((Key(meta.get("namespace", ""), meta["name"]), meta["uid"]))
                    self._taken(kind, raw, gone=False)
        for key, uid in stale_objects(known, listed):
            self._taken(kind, {"metadata": {"namespace": key.namespace, "name": key.name, "uid": uid}}, gone=True)

    def _kind(self, kind: str) -> tuple[Callable[[str | None], str], dict[Key, str], str]:
        """The path of a kind, what is known of it before it is listed, and which of it concerns us."""
        if kind == "workloads":
            return paths.workloads, {key: one.uid for key, one in self._queues.workloads.items()}, _OURS
        if kind == "resourceflavors":
            return paths.flavors, {Key("", name): one.uid for name, one in self._queues.flavors.items()}, ""
        return paths.priority_classes, {Key("", name): "" for name in self._queues.priorities}, ""

    def workload(self, raw: Raw, *, gone: bool) -> None:
        """A Workload concerns its job."""
        meta = raw["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        before = self._queues.workloads.get(key)
        if gone:
            if before is None or before.uid != meta["uid"]:
                return
            del self._queues.workloads[key]
        elif not self._queues.put(parse_workload(raw)):
            return
        after = self._queues.workloads.get(key)
        for uid in {one.job_uid for one in (before, after) if one is not None}:
            if (job := self._store.job_key(uid)) is not None:
                self._wake(job_request(job))

    def flavor(self, raw: Raw, *, gone: bool) -> None:
        """A ResourceFlavor concerns all whose quota is of it."""
        name = raw["metadata"]["name"]
        before = self._queues.flavors.get(name)
        if gone:
            if before is None or before.uid != raw["metadata"]["uid"]:
                return
            del self._queues.flavors[name]
        else:
            self._queues.flavors[name] = parse_flavor(raw)
        if before != self._queues.flavors.get(name):
            self._wake_all()

    def priority_class(self, raw: Raw, *, gone: bool) -> None:
        """A PriorityClass, whose value never changes, concerns those that are queued by it."""
        name, value = parse_priority_class(raw)
        before = self._queues.priorities.get(name)
        if gone:
            self._queues.priorities.pop(name, None)
        else:
            self._queues.priorities[name] = value
        if before != self._queues.priorities.get(name):
            self._wake_all()

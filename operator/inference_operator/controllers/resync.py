"""A complete list of every kind, at the start, after each list of kopf's, and from time to time: it heals what a watch has lost.

kopf lists anew when it starts, and when its place in a stream is too old. It does not report what was deleted before that and after
what is known (docs/adr/0001), so what a later list lacks is dropped here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from inference_operator.api import names
from inference_operator.controllers.informer import InformerHandlers
from inference_operator.errors import OperatorError, RefusedError
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient
from inference_operator.kube.scope import Scope
from inference_operator.state.objects import Job, Key, Model, Node, Pod
from inference_operator.state.raw import is_newer
from inference_operator.state.store import Store, stale_objects

log = logging.getLogger(__name__)

# The path of a kind's objects in one namespace, or in all.
Collection = Callable[[str | None], str]

_ALL = Scope()
_FORBIDDEN = 403
# A list of kopf's is over when nothing of it has come for so long.
_CALM_SECONDS = 2.0
_OURS = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


class RestoredError(Exception):
    """The API server has gone back in time: its data were restored from a backup, and what is known here is of a later day."""


class Resync:
    """Lists, takes in, and buries stale objects."""

    def __init__(
        self, kube: KubeClient, store: Store, informer: InformerHandlers, heard: Callable[[str], None], scope: Scope = _ALL
    ) -> None:
        self._kube = kube
        self._scope = scope
        self._store = store
        self._informer = informer
        self._heard = heard
        # kopf's first list comes after the first round, of which it knows nothing.
        self._listed = asyncio.Event()
        self._listed.set()

    def listed(self) -> None:
        """Kopf lists a kind anew, and this is one of its objects."""
        self._listed.set()

    async def run(self, seconds: float) -> None:
        """Resync for ever, and after each list of kopf's; a failed round is tried again in the next. Raises RestoredError."""
        while True:
            await _within(seconds, self._listed)
            while self._listed.is_set():
                self._listed.clear()
                await _within(_CALM_SECONDS, self._listed)
            try:
                await self.once()
            except OperatorError as error:
                log.warning("resync failed: %s", error)

    async def once(self) -> None:
        """One round over all kinds. Nodes, volumes and pods first: capacity has to be known before anything is placed.

        Stale objects are dropped together, owners first: a job that has gone with its worker must not be given another one in
        between. Where a list fails, those of the lists before it are dropped all the same.
        """
        tombstones: list[tuple[str, Callable[..., None], list[tuple[Key, str]]]] = []
        versions = self._versions()
        try:
            for name, known, take, collection, selector in (
                ("nodes", self._nodes, self._informer.node, paths.nodes, ""),
                ("persistentvolumes", self._volumes, self._informer.volume, paths.volumes, ""),
                ("persistentvolumeclaims", self._claims, self._informer.claim, paths.claims, ""),
                ("pods", self._pods, self._informer.pod, paths.pods, ""),
                ("services", self._services, self._informer.service, paths.services, _OURS),
                ("endpointslices", self._slices, self._informer.slice, paths.slices, _OURS),
                ("poddisruptionbudgets", self._budgets, self._informer.budget, paths.budgets, _OURS),
                ("horizontalpodautoscalers", self._autoscalers, self._informer.autoscaler, paths.autoscalers, ""),
                ("inferencemodels", self._models, self._informer.model, paths.models, ""),
                ("inferencejobs", self._jobs, self._informer.job, paths.jobs, ""),
            ):
                before = known()
                listed = await self._kind(name, collection, take, before, versions, selector=selector)
                tombstones.append((name, take, stale_objects(before, listed)))
        finally:
            for name, take, gone in reversed(tombstones):
                for key, uid in gone:
                    log.info("resync: %s %s is gone", name, key)
                    take(_tombstone(key, uid), gone=True)

    async def _kind(
        self,
        name: str,
        collection: Collection,
        take: Callable[..., None],
        before: dict[Key, str],
        versions: dict[str, str],
        *,
        selector: str,
    ) -> list[tuple[Key, str]]:
        """What there is; `before` is what was known, and `versions` of which version."""
        listed: list[tuple[Key, str]] = []
        for namespace in self._scope.of(name):
            try:
                listed += await self._part(name, collection(namespace), take, versions, selector=selector)
            except RefusedError as error:
                # Rights in one namespace are its administrator's to take, and the others are served all the same.
                if namespace is None or error.status != _FORBIDDEN:
                    raise
                log.warning("%s of namespace %s can't be listed, and count as they were: %s", name, namespace, error)
                listed += [(key, uid) for key, uid in before.items() if key.namespace == namespace]
        self._heard(name)
        return listed

    async def _part(
        self, name: str, path: str, take: Callable[..., None], versions: dict[str, str], *, selector: str
    ) -> list[tuple[Key, str]]:
        listed: list[tuple[Key, str]] = []
        async for page in self._kube.list_pages(path, selector=selector):
            for raw in page:
                meta: dict[str, Any] = raw["metadata"]
                uid = meta.get("labels", {}).get(names.LABEL_JOB_UID, "") if name == "services" else meta["uid"]
                if not is_newer(meta["resourceVersion"], versions.get(meta["uid"], "")):
                    raise RestoredError(f"{name} {meta['name']!r} is older in the list than what was known before it")
                listed.append((Key(meta.get("namespace", ""), meta["name"]), uid))
                _guarded(take, raw, name)
            # A page of five hundred objects takes tens of milliseconds; probes and leases must not wait for twenty of them.
            await asyncio.sleep(0)
        return listed

    def _versions(self) -> dict[str, str]:
        """The versions of what is known, by uid."""
        store = self._store
        kinds: tuple[Mapping[Any, Node | Pod | Model | Job], ...] = (store.nodes, store.pods, store.models, store.jobs)
        return {one.uid: one.resource_version for kind in kinds for one in kind.values()}

    # Only what was known before the list began can be stale: the rest came after.

    def _nodes(self) -> dict[Key, str]:
        return {Key("", name): node.uid for name, node in self._store.nodes.items()}

    def _volumes(self) -> dict[Key, str]:
        return {Key("", name): volume.uid for name, volume in self._store.volumes.known.items()}

    def _claims(self) -> dict[Key, str]:
        return {key: claim.uid for key, claim in self._store.claims.known.items()}

    def _pods(self) -> dict[Key, str]:
        return {key: pod.uid for key, pod in self._store.pods.items() if pod.uid}

    def _services(self) -> dict[Key, str]:
        return dict(self._store.services)

    def _slices(self) -> dict[Key, str]:
        return {key: found.uid for key, found in self._store.slices.known.items()}

    def _budgets(self) -> dict[Key, str]:
        return {key: found.uid for key, found in self._store.budgets.items()}

    def _models(self) -> dict[Key, str]:
        return {key: model.uid for key, model in self._store.models.items()}

    def _autoscalers(self) -> dict[Key, str]:
        return {key: found.uid for key, found in self._store.autoscalers.items()}

    def _jobs(self) -> dict[Key, str]:
        return {key: job.uid for key, job in self._store.jobs.items()}


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for it, or for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _tombstone(key: Key, uid: str) -> dict[str, Any]:
    return {"metadata": {"namespace": key.namespace, "name": key.name, "uid": uid, "labels": {names.LABEL_JOB_UID: uid}}}


def _guarded(take: Callable[..., None], raw: dict[str, Any], kind: str) -> None:
    """An object that we can't read must not hide the others."""
    try:
        take(raw, gone=False)
    except Exception:
        log.exception("a %s could not be taken in", kind)

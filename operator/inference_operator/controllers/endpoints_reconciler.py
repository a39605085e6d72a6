"""The endpoints of one serving job from view to deed. They are urgent: no status that can't be written holds a dead worker in."""

import logging
from dataclasses import dataclass

from inference_operator.api.instants import doubled
from inference_operator.errors import ConflictError, NotFoundError, RefusedError
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.runtime.clock import Clock
from inference_operator.state.endpoints import parse_slice
from inference_operator.state.objects import Key
from inference_operator.state.raw import owner_of
from inference_operator.state.store import Store
from inference_operator.workers.actions import ApplySlice, DeleteSlice, EndpointsAction, TakeSelector
from inference_operator.workers.endpoints import plan_endpoints

log = logging.getLogger(__name__)

# Pauses before what came back as something else is applied again.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_CHANGED = "Changed"


@dataclass(frozen=True, slots=True)
class _Changed:
    """A slice that a webhook made something else of: what was applied, how often in a row, and until when it is left."""

    manifest: Raw
    times: int
    until: float


class EndpointsReconciler:
    """Reconciles the EndpointSlices of Services."""

    def __init__(self, store: Store, kube: KubeClient, clock: Clock) -> None:
        self._store = store
        self._kube = kube
        self._clock = clock
        self._changed: dict[Key, _Changed] = {}

    async def reconcile(self, key: Key) -> None:
        """Bring the slices of one job to what they should say. Raises OperatorError.

        What is refused hinders no other slice: a dead worker would stay in it.
        """
        self._changed = {name: one for name, one in self._changed.items() if name in self._store.slices.known}
        refused: list[RefusedError] = []
        for seen in self._store.observe_endpoints(key):
            refused += await self._service(key, plan_endpoints(seen))
        if refused:
            raise refused[0]

    async def _service(self, key: Key, actions: tuple[EndpointsAction, ...]) -> list[RefusedError]:
        """Carry out what is planned for one Service; return what was refused."""
        refused: list[RefusedError] = []
        for action in actions:
            if isinstance(action, TakeSelector) and any(one.reason != _CHANGED for one in refused):
                # Until all of ours are there, those that Kubernetes writes stay.
                break
            try:
                if isinstance(action, ApplySlice):
                    self._left(action)
                log.info("%s: %s: %s", key, type(action).__name__, action.why)
                await self._one(action)
            except RefusedError as error:
                refused.append(error)
        return refused

    def _left(self, action: ApplySlice) -> None:
        """Raise RefusedError for what a webhook has changed just now: it would do so at each look, and each has the next."""
        known = self._changed.get(_key(action))
        if known is not None and known.manifest == action.manifest and self._clock.monotonic() < known.until:
            raise _refusal(action)

    async def _one(self, action: EndpointsAction) -> None:
        match action:
            case ApplySlice():
                await self._apply(action)
            case TakeSelector():
                await self._take_selector(action)
            case DeleteSlice():
                await self._kube.delete(paths.one_slice(action.key), uid=action.uid)
                self._store.slices.put(action.key, None)

    async def _apply(self, action: ApplySlice) -> None:
        """Created first, and only then applied: an apply would take over a slice of somebody else."""
        key = _key(action)
        if action.uid is None:
            made = await self._create_or_adopt(key, action.manifest)
        else:
            made = await self._kube.apply(paths.one_slice(key), _with_uid(action.manifest, action.uid))
        found, wanted = parse_slice(made), parse_slice(_with_uid(action.manifest, ""))
        self._store.slices.put(key, found)
        if found is not None and wanted is not None and found.says == wanted.says:
            self._changed.pop(key, None)
            return
        before = self._changed.get(key)
        times = before.times + 1 if before is not None else 1
        pause = doubled(_FIRST_PAUSE_SECONDS, times, _LONGEST_PAUSE_SECONDS)
        self._changed[key] = _Changed(action.manifest, times, self._clock.monotonic() + pause)
        raise _refusal(action)

    async def _create_or_adopt(self, key: Key, manifest: Raw) -> Raw:
        try:
            return await self._kube.create(paths.slices(key.namespace), manifest)
        except ConflictError:
            found = await self._kube.get(paths.one_slice(key))
            if owner_of(found) != manifest["metadata"]["ownerReferences"][0]["uid"]:
                text = f"an EndpointSlice {key.name!r} of somebody else exists; delete it"
                raise RefusedError(409, "NameTaken", text) from None
            return await self._kube.apply(paths.one_slice(key), _with_uid(manifest, found["metadata"]["uid"]))

    async def _take_selector(self, action: TakeSelector) -> None:
        if action.uid is not None:
            path = f"{paths.services(action.key.namespace)}/{action.key.name}"
            await self._kube.merge(path, {"metadata": {"uid": action.uid}, "spec": {"selector": None}})
            self._store.selecting.pop(action.key, None)
        # Nobody writes it any more, and Kubernetes would copy what it says into slices of the Service.
        try:
            found = await self._kube.get(paths.endpoints(action.key))
        except NotFoundError:
            return
        await self._kube.delete(paths.endpoints(action.key), uid=found["metadata"]["uid"])


def _key(action: ApplySlice) -> Key:
    metadata = action.manifest["metadata"]
    return Key(metadata["namespace"], metadata["name"])


def _refusal(action: ApplySlice) -> RefusedError:
    name = action.manifest["metadata"]["name"]
    return RefusedError(200, _CHANGED, f"EndpointSlice {name!r} is not what was applied: an admission webhook changes it")


def _with_uid(manifest: Raw, uid: str) -> Raw:
    """The manifest for this very object."""
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}

"""The endpoints of one serving job from view to deed. They are urgent: no status that can't be written holds a dead worker in."""

import logging

from inference_operator.errors import ConflictError, NotFoundError, RefusedError
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.state.endpoints import parse_slice
from inference_operator.state.objects import Key
from inference_operator.state.raw import owner_of
from inference_operator.state.store import Store
from inference_operator.workers.actions import ApplySlice, DeleteSlice, EndpointsAction, TakeSelector
from inference_operator.workers.endpoints import plan_endpoints

log = logging.getLogger(__name__)


class EndpointsReconciler:
    """Reconciles the EndpointSlices of Services."""

    def __init__(self, store: Store, kube: KubeClient) -> None:
        self._store = store
        self._kube = kube

    async def reconcile(self, key: Key) -> None:
        """Bring the slices of one job to what they should say. Raises OperatorError."""
        for action in (action for seen in self._store.observe_endpoints(key) for action in plan_endpoints(seen)):
            log.info("%s: %s: %s", key, type(action).__name__, action.why)
            await self._one(action)

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
        metadata = action.manifest["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        if action.uid is None:
            made = await self._create_or_adopt(key, action.manifest)
        else:
            made = await self._kube.apply(paths.one_slice(key), _with_uid(action.manifest, action.uid))
        self._store.slices.put(key, parse_slice(made))

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


def _with_uid(manifest: Raw, uid: str) -> Raw:
    """The manifest for this very object."""
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}

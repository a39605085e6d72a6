"""Carry out a plan's actions in order. What the API server answers goes into the store at once, so that the next look sees it."""

import logging
from typing import Protocol

from inference_operator.decisions.actions import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    EmitEvent,
    WriteModelStatus,
    WriteStatus,
)
from inference_operator.domain import job as job_api
from inference_operator.domain import model as model_api
from inference_operator.domain import names
from inference_operator.domain.cluster import Job, Key, Model, Pod, Setback
from inference_operator.domain.parse import model_status_document, parse_job, parse_model, parse_pod, status_document
from inference_operator.domain.schema import API_VERSION
from inference_operator.effects import paths
from inference_operator.effects.events import event_manifest
from inference_operator.effects.ports import KubeClient
from inference_operator.errors import ConflictError, NotFoundError, RefusedError
from inference_operator.runtime.clock import Clock

log = logging.getLogger(__name__)


class Memory(Protocol):
    """What applying needs of the store."""

    setbacks: dict[Key, Setback]
    services: dict[str, Key]
    models: dict[Key, Model]

    def put_pod(self, pod: Pod) -> bool:
        """Take in what the API server answered, or what is assumed until it does."""
        ...

    def drop_pod(self, key: Key, uid: str) -> None:
        """Drop an assumption."""
        ...

    def put_job(self, job: Job) -> bool:
        """Take in what the API server answered."""
        ...


class Applier:
    """Executes actions for one job at a time. Raises RetryableError and ConflictError for the queue to handle."""

    def __init__(self, kube: KubeClient, memory: Memory, clock: Clock, *, reporter: str) -> None:
        self._kube = kube
        self._memory = memory
        self._clock = clock
        self._reporter = reporter

    async def apply(self, key: Key, actions: tuple[Action, ...]) -> None:
        """Carry out the actions; stop at the first that fails."""
        for action in actions:
            await self._one(key, action)

    async def _one(self, key: Key, action: Action) -> None:
        match action:
            case CreatePod():
                await self._create_pod(key, action)
            case DeletePod():
                log.info("%s: delete pod %s: %s", key, action.key.name, action.why)
                await self._kube.delete(paths.pod(action.key), uid=action.uid)
            case CreateService():
                await self._create_service(key, action)
            case DeleteJob():
                log.info("%s: delete: %s", key, action.why)
                await self._kube.delete(paths.one_job(action.key), uid=action.uid)
            case WriteStatus():
                await self._write_status(action)
            case WriteModelStatus():
                await self._write_model_status(action)
            case EmitEvent():
                await self._emit(action)

    async def _create_pod(self, key: Key, action: CreatePod) -> None:
        # Assumed before the call: a scheduling pass meanwhile must see the place as taken.
        self._memory.put_pod(action.assumed)
        try:
            created = await self._kube.create(paths.pods(key.namespace), action.manifest)
        except ConflictError:
            # The name is deterministic, so this is our own pod from before a restart (or somebody's foreign one).
            created = await self._kube.get(paths.pod(action.assumed.key))
            if (
                created["metadata"].get("labels", {}).get(names.LABEL_JOB_UID)
                != action.manifest["metadata"]["labels"][names.LABEL_JOB_UID]
            ):
                self._memory.drop_pod(action.assumed.key, "")
                self._set_back(
                    key, "NameTaken", f"a pod {action.assumed.key.name!r} of somebody else exists; delete it or rename the job"
                )
                return
        except RefusedError as error:
            self._memory.drop_pod(action.assumed.key, "")
            log.warning("%s: pod refused: %s", key, error.message)
            self._set_back(key, error.reason, error.message)
            return
        except BaseException:
            self._memory.drop_pod(action.assumed.key, "")
            raise
        self._memory.setbacks.pop(key, None)
        self._memory.put_pod(parse_pod(created))
        placed = action.assumed.worker.placement if action.assumed.worker is not None else None
        log.info("%s: pod %s on %s", key, action.assumed.key.name, placed.node if placed is not None else "?")

    async def _create_service(self, key: Key, action: CreateService) -> None:
        name, uid = action.manifest["metadata"]["name"], action.manifest["metadata"]["labels"][names.LABEL_JOB_UID]
        path = paths.services(key.namespace)
        try:
            await self._kube.create(path, action.manifest)
        except ConflictError:
            found = await self._kube.get(f"{path}/{name}")
            owner = found["metadata"].get("labels", {}).get(names.LABEL_JOB_UID)
            if owner != uid:
                self._set_back(key, "NameTaken", f"a Service {name!r} of somebody else exists; delete it or rename the job")
                return
        except RefusedError as error:
            self._set_back(key, error.reason, error.message)
            return
        self._memory.services[uid] = Key(key.namespace, name)

    def _set_back(self, key: Key, reason: str, message: str) -> None:
        before = self._memory.setbacks.get(key)
        count = before.count + 1 if before is not None else 0
        self._memory.setbacks[key] = Setback(reason, message, self._clock.now(), count)

    async def _write_status(self, action: WriteStatus) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": job_api.KIND,
            # With the uid, a job of the same name that came after this one is a conflict, not a victim.
            "metadata": {"name": action.key.name, "namespace": action.key.namespace, "uid": action.uid},
            "status": status_document(action.status),
        }
        try:
            written = await self._kube.apply(f"{paths.one_job(action.key)}/status", body)
        except NotFoundError:
            return
        self._memory.put_job(parse_job(written))

    async def _write_model_status(self, action: WriteModelStatus) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": model_api.KIND,
            "metadata": {"name": action.key.name, "namespace": action.key.namespace, "uid": action.uid},
            "status": model_status_document(action.status),
        }
        try:
            written = await self._kube.apply(f"{paths.one_model(action.key)}/status", body)
        except NotFoundError:
            return
        self._memory.models[action.key] = parse_model(written)

    async def _emit(self, action: EmitEvent) -> None:
        try:
            manifest = event_manifest(action, now=self._clock.now(), reporter=self._reporter)
            await self._kube.create(paths.events(action.key.namespace), manifest)
        except (ConflictError, RefusedError, NotFoundError) as error:
            # An event is a courtesy: the condition says the same, so a namespace that is going away may lose it.
            log.warning("%s: event %s is lost: %s", action.key, action.reason, error)

"""Carry out a plan's actions in order. What the API server answers goes into the store at once, so that the next look sees it.

The module is longer than others: each kind of action is carried out here, and all share how an object is created or taken over.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from inference_operator.api import job as job_api
from inference_operator.api import model as model_api
from inference_operator.api import names
from inference_operator.api.conditions import Reason
from inference_operator.api.schema import API_VERSION
from inference_operator.autoscaling.hpa import says
from inference_operator.errors import ConflictError, NotFoundError, OperatorError, RefusedError
from inference_operator.kube import paths
from inference_operator.kube.events import EventRecorder
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.runtime.clock import Clock
from inference_operator.state.kueue import Queues, parse_workload
from inference_operator.state.objects import Autoscaler, Budget, CreateFailure, Job, Key, Model, Pod
from inference_operator.state.parse import (
    model_status_document,
    parse_autoscaler,
    parse_budget,
    parse_job,
    parse_model,
    status_document,
)
from inference_operator.state.parse_pods import parse_pod
from inference_operator.state.raw import owner_of
from inference_operator.state.request import Request
from inference_operator.workers.actions import (
    Action,
    ApplyAutoscaler,
    ApplyBudget,
    CreatePod,
    CreateService,
    CreateWorkload,
    DeleteAutoscaler,
    DeleteBudget,
    DeleteJob,
    DeletePod,
    DeleteWorkload,
    EmitEvent,
    PatchWorkload,
    StartTask,
    StopTask,
    WriteModelStatus,
    WriteStatus,
)
from inference_protocol.messages import TaskOrder

log = logging.getLogger(__name__)

# Bad request, too large, and unprocessable: the same object would be refused again, whenever it comes.
_INVALID = (400, 413, 422)
_DELETIONS = (DeletePod, DeleteBudget, DeleteAutoscaler, DeleteWorkload)


class StateCache(Protocol):
    """What applying needs of the store."""

    create_failures: dict[Request, CreateFailure]
    autoscaler_failures: dict[Request, CreateFailure]
    budget_failures: dict[Request, CreateFailure]
    services: dict[Key, str]
    models: dict[Key, Model]
    autoscalers: dict[Key, Autoscaler]
    budgets: dict[Key, Budget]
    queues: Queues

    def put_pod(self, pod: Pod) -> bool:
        """Take in what the API server answered, or what is assumed until it does."""
        ...

    def drop_pod(self, key: Key, uid: str) -> None:
        """Drop an assumption."""
        ...

    def mark_deleting(self, key: Key, uid: str) -> None:
        """Remember a deletion that the watch has not shown yet."""
        ...

    def drop_job(self, key: Key, uid: str, *, for_good: bool = True) -> None:
        """Forget a job that is gone."""
        ...

    def put_job(self, job: Job) -> bool:
        """Take in what the API server answered."""
        ...


class TaskClient(Protocol):
    """What reaches warm workers."""

    async def start(self, job: Key, warm_worker: Key, address: str, order: TaskOrder) -> None:
        """Hand a task over. Raises RetryableError."""
        ...

    async def stop(self, owner: Request, warm_worker: Key, address: str, uid: str, attempt: int) -> None:
        """Have a task end. Raises RetryableError."""
        ...


class Applier:
    """Executes actions for one job at a time. Raises RetryableError and ConflictError for the queue to handle."""

    def __init__(
        self,
        kube: KubeClient,
        cache: StateCache,
        task_client: TaskClient,
        events: EventRecorder,
        clock: Clock,
        trust: Callable[[], str] | None = None,
        granted: Callable[[Raw], Raw] | None = None,
    ) -> None:
        """`trust` says which CAs a new worker knows the operator by; `granted` adds its grant for its node's cache to its pod."""
        self._trust = trust
        self._granted = granted
        self._task_client = task_client
        self._kube = kube
        self._cache = cache
        self._clock = clock
        self._events = events

    async def apply(self, request: Request, actions: tuple[Action, ...]) -> None:
        """Carry out the actions; stop at the first that fails, unless it is a deletion that is refused.

        What the API server refuses to make ends the plan: the rest of it was decided as if the object were there. What it refuses
        to delete hinders nothing else, and is told at the end: a policy may keep it for ever.
        """
        kept: RefusedError | None = None
        for action in actions:
            try:
                refused = await self._one(request, action)
            except RefusedError as error:
                if not isinstance(action, _DELETIONS):
                    raise
                kept = kept or error
                continue
            if refused is not None:
                log.warning("%s: %s: %s", request, refused.reason, refused.message)
                self._failures(action)[request] = refused
                break
        if kept is not None:
            raise kept

    def _failures(self, action: Action) -> dict[Request, CreateFailure]:
        """Where a refusal is kept: that of an HPA or a budget must not keep workers from being made."""
        match action:
            case ApplyAutoscaler():
                return self._cache.autoscaler_failures
            case ApplyBudget():
                return self._cache.budget_failures
            case _:
                return self._cache.create_failures

    async def _one(self, request: Request, action: Action) -> CreateFailure | None:
        key = request.key
        match action:
            case CreatePod():
                return await self._create_pod(request, action)
            case DeletePod():
                log.info("%s: delete pod %s: %s", request, action.key.name, action.why)
                await self._kube.delete(paths.pod(action.key), uid=action.uid)
                self._cache.mark_deleting(action.key, action.uid)
            case StartTask():
                log.info("%s: attempt %d on warm worker %s", request, action.order.attempt, action.warm_worker.name)
                await self._task_client.start(key, action.warm_worker, action.address, action.order)
            case StopTask():
                log.info("%s: stop attempt %d on %s: %s", request, action.attempt, action.warm_worker.name, action.why)
                await self._task_client.stop(request, action.warm_worker, action.address, action.uid, action.attempt)
            case CreateService():
                return await self._create_service(request, action)
            case ApplyBudget() | DeleteBudget():
                await self._budget(request, action)
            case CreateWorkload() | PatchWorkload() | DeleteWorkload():
                return await self._workload(request, action)
            case DeleteJob():
                log.info("%s: delete: %s", request, action.why)
                await self._kube.delete(paths.one_job(action.key), uid=action.uid)
                self._cache.drop_job(action.key, action.uid)
            case ApplyAutoscaler() | DeleteAutoscaler():
                return await self._autoscaler(request, action)
            case WriteStatus():
                await self._write_status(action)
            case WriteModelStatus():
                await self._write_model_status(action)
            case EmitEvent():
                self._record(action)
        return None

    def _record(self, event: EmitEvent) -> None:
        self._events.record(
            event.key, event.uid, event_type=event.type, reason=event.reason, message=event.message, occasion=event.occasion
        )

    async def _create_pod(self, request: Request, action: CreatePod) -> CreateFailure | None:
        # Assumed before the call: a scheduling pass meanwhile must see the place as taken.
        self._cache.put_pod(action.assumed)
        try:
            created = await self._create_or_adopt(paths.pods(request.key.namespace), self._with_credentials(action.manifest))
        except BaseException as error:
            self._cache.drop_pod(action.assumed.key, "")
            if isinstance(error, RefusedError):
                return self._create_failure(request, action, error)
            raise
        self._cache.create_failures.pop(request, None)
        self._cache.put_pod(parse_pod(created))
        placed = action.assumed.worker.placement if action.assumed.worker is not None else None
        log.info("%s: pod %s on %s", request, action.assumed.key.name, placed.node if placed is not None else "a new node")
        return None

    def _with_credentials(self, pod: Raw) -> Raw:
        """The pod with what its worker trusts, and is trusted by. That changes by itself, so no plan and no template knows it."""
        if self._granted is not None:
            pod = self._granted(pod)
        if self._trust is None:
            return pod
        annotations = {**pod["metadata"]["annotations"], names.ANNOTATION_TRUST: self._trust()}
        return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}

    async def _create_service(self, request: Request, action: CreateService) -> CreateFailure | None:
        try:
            created = await self._create_or_adopt(paths.services(request.key.namespace), action.manifest)
        except RefusedError as error:
            return self._create_failure(request, action, error)
        self._cache.create_failures.pop(request, None)
        self._cache.services[Key(request.key.namespace, created["metadata"]["name"])] = created["metadata"]["labels"][
            names.LABEL_JOB_UID
        ]
        return None

    async def _budget(self, request: Request, action: ApplyBudget | DeleteBudget) -> None:
        """Created first, as an HPA is. Where it is refused the job goes on: without it a drain is less careful, and no more."""
        if isinstance(action, DeleteBudget):
            log.info("%s: delete PodDisruptionBudget: %s", request, action.why)
            await self._kube.delete(paths.one_budget(action.key), uid=action.uid)
            self._cache.budgets.pop(action.key, None)
            return
        metadata = action.manifest["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        log.info("%s: PodDisruptionBudget: %s", request, action.why)
        try:
            if action.uid is None:
                made = await self._create_or_adopt(paths.budgets(key.namespace), action.manifest)
            else:
                manifest = {**action.manifest, "metadata": {**metadata, "uid": action.uid}}
                made = await self._kube.apply(paths.one_budget(key), manifest)
        except RefusedError as error:
            log.warning("%s: no PodDisruptionBudget: %s", request, error)
            self._cache.budget_failures[request] = self._create_failure(request, action, error)
            return
        if (budget := parse_budget(made)) is not None:
            self._cache.budgets[key] = budget
        kept = budget is not None and budget.min_available == action.manifest["spec"]["minAvailable"]
        self._made(request, action, kept=kept)

    async def _workload(self, request: Request, action: CreateWorkload | PatchWorkload | DeleteWorkload) -> CreateFailure | None:
        """One that is gone, and should not be, is made anew by the next look."""
        log.info("%s: Workload: %s", request, action.why)
        queues = self._cache.queues
        match action:
            case CreateWorkload():
                try:
                    made = await self._create_or_adopt(paths.workloads(request.key.namespace), action.manifest)
                except RefusedError as error:
                    return replace(self._create_failure(request, action, error), reason=Reason.WORKLOAD_REFUSED)
                self._cache.create_failures.pop(request, None)
                queues.put(parse_workload(made))
            case PatchWorkload():
                path = paths.one_workload(action.key)
                try:
                    queues.put(parse_workload(await self._kube.merge(f"{path}/status" if action.of_status else path, action.body)))
                except NotFoundError:
                    queues.workloads.pop(action.key, None)
            case DeleteWorkload():
                await self._kube.delete(paths.one_workload(action.key), uid=action.uid)
                queues.workloads.pop(action.key, None)
        return None

    async def _autoscaler(self, request: Request, action: ApplyAutoscaler | DeleteAutoscaler) -> CreateFailure | None:
        """Created first, and only then applied: an apply would take over an HPA of somebody else that has just come."""
        if isinstance(action, DeleteAutoscaler):
            log.info("%s: delete HPA: %s", request, action.why)
            await self._kube.delete(paths.one_autoscaler(action.key), uid=action.uid)
            self._cache.autoscalers.pop(action.key, None)
            return None
        log.info("%s: HPA: %s", request, action.why)
        try:
            if action.uid is None:
                await self._create_or_adopt(paths.autoscalers(request.key.namespace), action.manifest)
            metadata = {**action.manifest["metadata"], **({"uid": action.uid} if action.uid is not None else {})}
            made = await self._kube.apply(paths.one_autoscaler(request.key), {**action.manifest, "metadata": metadata})
        except RefusedError as error:
            return self._create_failure(request, action, error)
        known = self._cache.autoscalers[request.key] = parse_autoscaler(made)
        self._made(request, action, kept=says(known.spec, action.manifest["spec"]))
        return None

    def _made(self, request: Request, action: ApplyBudget | ApplyAutoscaler, *, kept: bool) -> None:
        """Forget the refusals before. A webhook that made something else of it would do so at each look, for ever."""
        if kept:
            self._failures(action).pop(request, None)
            return
        name = f"{action.manifest['kind']} {action.manifest['metadata']['name']!r}"
        text = f"{name} is not what was applied: an admission webhook changes it"
        log.warning("%s: %s", request, text)
        self._failures(action)[request] = self._create_failure(request, action, RefusedError(200, "Changed", text))

    async def _create_or_adopt(self, path: str, manifest: Raw) -> Raw:
        """Create an object; one of this name that is ours already is what was wanted. Raises RefusedError for somebody else's."""
        try:
            return await self._kube.create(path, manifest)
        except ConflictError:
            name = manifest["metadata"]["name"]
            found = await self._kube.get(f"{path}/{name}")
            if owner_of(found) == names.owner_uid(manifest["metadata"]["labels"]):
                return found
            text = f"a {manifest['kind']} {name!r} of somebody else exists; delete it or rename the job"
            raise RefusedError(409, Reason.NAME_TAKEN, text) from None

    def _create_failure(self, request: Request, action: Action, error: RefusedError) -> CreateFailure:
        before = self._failures(action).get(request)
        reason = Reason.POD_REFUSED
        if error.reason == Reason.NAME_TAKEN:
            reason = Reason.NAME_TAKEN
        elif "exceeded quota" in error.message:
            reason = Reason.QUOTA_EXCEEDED
        elif is_invalid(error):
            reason = Reason.POD_INVALID
        return CreateFailure(reason, error.message, self._clock.now(), before.count + 1 if before is not None else 0)

    async def _write_status(self, action: WriteStatus) -> None:
        try:
            written = await self._apply_status(f"{paths.one_job(action.key)}/status", _status_body(job_api.KIND, action))
        except NotFoundError:
            # Gone, though no watch has said so yet: looking at it again would find nothing else. Should the answer be wrong, the
            # next list brings it back.
            self._cache.drop_job(action.key, action.uid, for_good=False)
            return
        self._cache.put_job(parse_job(written))

    async def _write_model_status(self, action: WriteModelStatus) -> None:
        try:
            written = await self._apply_status(f"{paths.one_model(action.key)}/status", _status_body(model_api.KIND, action))
        except NotFoundError:
            self._cache.models.pop(action.key, None)
            return
        self._cache.models[action.key] = parse_model(written)

    async def _apply_status(self, path: str, body: Raw) -> Raw:
        """Apply a status; what somebody else has written into it goes, since an apply takes away only what is ours alone.

        It is written because it is to be another. An answer that it is the same would otherwise come again at every look, for ever.
        """
        before = body["metadata"]["resourceVersion"]
        written = await self._kube.apply(path, body)
        if written["metadata"]["resourceVersion"] != before:
            return written
        theirs = surplus(written.get("status", {}), body["status"])
        if not theirs:
            raise OperatorError(f"{path}: it was to change, and stays as it is; this is a fault of the operator")
        log.warning("%s: what somebody else has written into it is taken away: %s", path, ", ".join(theirs))
        return await self._kube.merge(path, {"metadata": {"resourceVersion": before}, "status": theirs})


def is_invalid(error: RefusedError) -> bool:
    """Whether an object is refused for what it is. What a policy denies may be let in by the next one."""
    by_policy = "denied request" in error.message or "denied the request" in error.message
    return error.status in _INVALID and not by_policy


def surplus(actual: Raw, wanted: Raw) -> Raw:
    """The merge patch that takes from a document what another has not. Lists are left: those of a status are replaced or keyed."""
    found: Raw = {}
    for name, value in actual.items():
        if name not in wanted:
            found[name] = None
        elif isinstance(value, dict) and isinstance(wanted[name], dict) and (inner := surplus(value, wanted[name])):
            found[name] = inner
    return found


def _status_body(kind: str, action: WriteStatus | WriteModelStatus) -> Raw:
    """What is applied, with the version that it was decided on.

    An object of the same name that came after it is then a conflict, not a victim (the status subresource does not compare uids),
    and of two measurements that meet, the second looks again instead of taking the first one's place.
    """
    document = status_document(action.status) if isinstance(action, WriteStatus) else model_status_document(action.status)
    meta = {"name": action.key.name, "namespace": action.key.namespace, "uid": action.uid, "resourceVersion": action.version}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "status": document}

"""From the API server's objects to domain values, and from a status to the API's form. Never raises on what a cluster can hold."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from inference_operator.api import names
from inference_operator.api.conditions import ConditionType
from inference_operator.api.job import KIND, InferenceJobSpec, InferenceJobStatus, Placement
from inference_operator.api.model import KIND as MODEL_KIND
from inference_operator.api.model import InferenceModelSpec, InferenceModelStatus
from inference_operator.api.schema import GROUP
from inference_operator.state.objects import Autoscaler, Job, Key, Model, Node, Pod, PodPhase, PodProblem, Taint, Worker
from inference_operator.state.power import Exporter
from inference_operator.state.resources import PODS, add, amounts
from inference_operator.state.topology import NodeSelectorRequirement, Volume
from inference_protocol.messages import decode_report

Raw = Mapping[str, Any]
T = TypeVar("T")

_JOB_SPEC: TypeAdapter[InferenceJobSpec] = TypeAdapter(InferenceJobSpec)
_JOB_STATUS: TypeAdapter[InferenceJobStatus] = TypeAdapter(InferenceJobStatus)
_MODEL_SPEC: TypeAdapter[InferenceModelSpec] = TypeAdapter(InferenceModelSpec)
_MODEL_STATUS: TypeAdapter[InferenceModelStatus] = TypeAdapter(InferenceModelStatus)
_OUR_CONDITIONS = frozenset(kind.value for kind in ConditionType)
_PLACEMENT: TypeAdapter[Placement] = TypeAdapter(Placement)
_BEGINNING = ("", "ContainerCreating", "PodInitializing")
_PHASES = {phase.value: phase for phase in PodPhase}


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Owner(_Struct, frozen=True):
    uid: str
    kind: str = ""
    controller: bool = False


class _Meta(_Struct, frozen=True):
    name: str
    uid: str
    resource_version: str = ""
    namespace: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []


class _Amounts(_Struct, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class _Container(_Struct, frozen=True):
    resources: _Amounts = _Amounts()
    restart_policy: str | None = None


class _PodSpec(_Struct, frozen=True):
    node_name: str | None = None
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    overhead: dict[str, str] = {}
    resources: _Amounts = _Amounts()


class _Waiting(_Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(_Struct, frozen=True):
    started_at: datetime | None = None


class _Terminated(_Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(_Struct, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(_Struct, frozen=True):
    name: str = ""
    state: _State = _State()


class _Observation(_Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _PodStatus(_Struct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: list[_Observation] = []
    container_statuses: list[_ContainerStatus] = []
    init_container_statuses: list[_ContainerStatus] = []


class _RawPod(_Struct, frozen=True):
    metadata: _Meta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeSpec(_Struct, frozen=True):
    unschedulable: bool = False
    taints: list[dict[str, Any]] = []


class _NodeStatus(_Struct, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: list[_Observation] = []


class _RawNode(_Struct, frozen=True):
    metadata: _Meta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


def parse_job(raw: Raw) -> Job:
    """An InferenceJob. What the types can't read becomes `invalid`, in words for its author."""
    meta = msgspec.convert(raw["metadata"], _Meta)
    spec = _validated(_JOB_SPEC, raw.get("spec") or {})
    status = _validated(_JOB_STATUS, _ours(raw.get("status") or {}))
    return Job(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.creation_timestamp or datetime.fromtimestamp(0).astimezone(),
        deleting=meta.deletion_timestamp is not None,
        spec=spec.value,
        status=status.value or InferenceJobStatus(),
        invalid=spec.fault,
        unreadable=status.fault,
        labels=meta.labels,
    )


def _ours(status: object) -> object:
    """A status without the conditions of others, who may add theirs: they are neither read nor written."""
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if not isinstance(conditions, list) or not isinstance(status, dict) or all(map(_is_our_condition, conditions)):
        return status
    return {**status, "conditions": [one for one in conditions if _is_our_condition(one)]}


def _is_our_condition(condition: object) -> bool:
    return not isinstance(condition, dict) or condition.get("type") in _OUR_CONDITIONS


def parse_model(raw: Raw) -> Model:
    """An InferenceModel."""
    meta = msgspec.convert(raw["metadata"], _Meta)
    spec = _validated(_MODEL_SPEC, raw.get("spec") or {})
    status = _validated(_MODEL_STATUS, _ours(raw.get("status") or {}))
    return Model(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        spec=spec.value,
        status=status.value or InferenceModelStatus(),
        invalid=spec.fault,
    )


class _Reference(_Struct, frozen=True):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class _AutoscalerSpec(_Struct, frozen=True):
    scale_target_ref: _Reference = _Reference()


class _RawAutoscaler(_Struct, frozen=True):
    metadata: _Meta
    spec: _AutoscalerSpec = _AutoscalerSpec()


def parse_autoscaler(raw: Raw) -> Autoscaler:
    """A HorizontalPodAutoscaler, ours or another's."""
    found = msgspec.convert(raw, _RawAutoscaler)
    meta, target = found.metadata, found.spec.scale_target_ref
    job = target.kind == KIND and target.api_version.partition("/")[0] == GROUP
    ours = _is_ours(meta)
    return Autoscaler(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        target=Key(meta.namespace, target.name) if job else None,
        job_uid=meta.labels[names.LABEL_JOB_UID] if ours else None,
        revision=meta.annotations.get(names.ANNOTATION_AUTOSCALER, ""),
        scaled_object=meta.labels.get("scaledobject.keda.sh/name"),
        spec=raw.get("spec", {}) if ours else {},
    )


class _Requirement(_Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Term(_Struct, frozen=True):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()


class _Selector(_Struct, frozen=True):
    node_selector_terms: tuple[_Term, ...] = ()


class _NodeAffinity(_Struct, frozen=True):
    required: _Selector | None = None


class _ClaimReference(_Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _VolumeSpec(_Struct, frozen=True):
    claim_ref: _ClaimReference | None = None
    node_affinity: _NodeAffinity | None = None


class _VolumeStatus(_Struct, frozen=True):
    phase: str = ""


class _RawVolume(_Struct, frozen=True):
    metadata: _Meta
    spec: _VolumeSpec = _VolumeSpec()
    status: _VolumeStatus = _VolumeStatus()


def parse_volume(raw: Raw) -> Volume | None:
    """A PersistentVolume that is bound to a claim and can't be mounted everywhere; None for all others, which hold nobody back.

    A released one still names the claim that it had, whose name may belong to another by now.
    """
    found = msgspec.convert(raw, _RawVolume)
    claim, affinity = found.spec.claim_ref, found.spec.node_affinity
    if found.status.phase != "Bound" or claim is None or affinity is None or affinity.required is None:
        return None
    terms = tuple(
        tuple(NodeSelectorRequirement(r.key, r.operator, r.values) for r in (*term.match_expressions, *term.match_fields))
        for term in affinity.required.node_selector_terms
    )
    return Volume(found.metadata.uid, found.metadata.resource_version, claim.namespace, claim.name, terms)


class _Parsed(NamedTuple, Generic[T]):
    value: T | None
    fault: str | None


def _validated(adapter: TypeAdapter[T], value: object) -> _Parsed[T]:
    try:
        return _Parsed(adapter.validate_python(value), None)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        return _Parsed(None, "; ".join(faults)[:2000])


def parse_node(raw: Raw) -> Node:
    """A node."""
    node = msgspec.convert(raw, _RawNode)
    return Node(
        name=node.metadata.name,
        uid=node.metadata.uid,
        resource_version=node.metadata.resource_version,
        labels=node.metadata.labels,
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in node.spec.taints),
        allocatable=amounts(node.status.allocatable),
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions),
        unschedulable=node.spec.unschedulable,
        reachable=all(c.status != "Unknown" for c in node.status.conditions if c.type == "Ready"),
    )


def parse_pod(raw: Raw) -> Pod:
    """A pod, ours or another's."""
    pod = msgspec.convert(raw, _RawPod)
    meta, status = pod.metadata, pod.status
    phase = _PHASES.get(status.phase, PodPhase.UNKNOWN)
    plain = Pod(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        node=pod.spec.node_name,
        requests=_requests(pod.spec),
        phase=phase,
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
    )
    if not _is_ours(meta):
        return plain
    state = next((c.state for c in status.container_statuses if c.name == names.CONTAINER), _State())
    ended = state.terminated
    started = ended.started_at if ended else state.running.started_at if state.running else None
    return replace(
        plain,
        ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions),
        address=status.pod_ip,
        worker=_worker(meta),
        problem=_trouble(status, state),
        report=decode_report(ended.message) if ended else None,
        exit_code=ended.exit_code if ended else None,
        started=started,
        ended=ended.finished_at if ended else None,
    )


def parse_exporter(raw: Raw, labels: Mapping[str, str]) -> Exporter | None:
    """A pod that has one of these labels and can be asked for its node's devices; None for every other."""
    meta, status = raw["metadata"], raw.get("status") or {}
    node, address = (raw.get("spec") or {}).get("nodeName"), status.get("podIP")
    found = meta.get("labels") or {}
    if not any(found.get(name) == value for name, value in labels.items()) or status.get("phase") != PodPhase.RUNNING:
        return None
    return Exporter(node, address) if node and address else None


def _is_ours(meta: _Meta) -> bool:
    """Labels can be written by anybody with a pod; what the pod is must also stand in its owner reference."""
    uid = names.owner_uid(meta.labels)
    kind = KIND if names.LABEL_JOB_UID in meta.labels else MODEL_KIND
    owned = any(o.controller and o.kind == kind and o.uid == uid for o in meta.owner_references)
    return uid is not None and owned and meta.labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY


def _worker(meta: _Meta) -> Worker:
    number = meta.labels.get(names.LABEL_ATTEMPT, "0")
    text = meta.annotations.get(names.ANNOTATION_PLACEMENT)
    try:
        placement = _PLACEMENT.validate_json(text) if text else None
    except ValidationError:
        placement = None
    return Worker(
        job_uid=names.owner_uid(meta.labels) or "",
        pool=names.LABEL_JOB_UID not in meta.labels,
        number=int(number) if number.isdigit() else 0,
        revision=meta.labels.get(names.LABEL_REVISION, ""),
        accelerator=meta.labels.get(names.LABEL_ACCELERATOR, ""),
        placement=placement,
    )


def _trouble(status: _PodStatus, state: _State) -> PodProblem | None:
    """The first thing that keeps a pod from running, or that ended it."""
    if status.reason:
        return PodProblem(status.reason, status.message)
    if state.terminated is not None and state.terminated.exit_code != 0:
        return PodProblem(state.terminated.reason or "Error", state.terminated.message)
    if state.waiting is not None and state.waiting.reason not in _BEGINNING:
        return PodProblem(state.waiting.reason, state.waiting.message)
    for sidecar in status.init_container_statuses:
        # While the worker runs, what its sidecar is at is the worker's to tell.
        if state.running is None and (waits := sidecar.state.waiting) is not None and waits.reason not in _BEGINNING:
            return PodProblem(waits.reason, waits.message)
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return PodProblem(condition.reason, condition.message)
    return None


def _requests(spec: _PodSpec) -> dict[str, int]:
    """What the scheduler reserves (core/v1's rule).

    The sum of containers and sidecars, or the greediest moment of the init sequence, whichever is more; what the pod as a whole
    asks for stands instead of that; the overhead comes on top.
    """
    total: dict[str, int] = {PODS: 1}
    for container in spec.containers:
        add(total, amounts(_effective(container.resources)))
    sidecars: dict[str, int] = {}
    greediest: dict[str, int] = {}
    for container in spec.init_containers:
        own = amounts(_effective(container.resources))
        moment = dict(sidecars)
        add(moment, own)
        if container.restart_policy == "Always":
            sidecars = moment
        for name, value in moment.items():
            greediest[name] = max(greediest.get(name, 0), value)
    add(total, sidecars)
    for name, value in greediest.items():
        total[name] = max(total.get(name, 0), value)
    total |= amounts(_effective(spec.resources))
    add(total, amounts(spec.overhead))
    return total


def _effective(resources: _Amounts) -> dict[str, str]:
    return {**resources.limits, **resources.requests}


def status_document(status: InferenceJobStatus) -> dict[str, Any]:
    """A job status as the API wants it: camelCase, whole seconds, nothing that is not set."""
    document: dict[str, Any] = _JOB_STATUS.dump_python(status, mode="json", by_alias=True, exclude_none=True)
    return document


def model_status_document(status: InferenceModelStatus) -> dict[str, Any]:
    """A model status as the API wants it."""
    document: dict[str, Any] = _MODEL_STATUS.dump_python(status, mode="json", by_alias=True, exclude_none=True)
    return document


def placement_text(placement: Placement) -> str:
    """A placement as annotation text."""
    return _PLACEMENT.dump_json(placement, by_alias=True, exclude_none=True).decode()

"""From the API server's objects to domain values, and from a status to the API's form. Never raises on what a cluster can hold."""

from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from inference_operator.api import names
from inference_operator.api.conditions import ConditionType
from inference_operator.api.job import KIND, InferenceJobSpec
from inference_operator.api.job_status import InferenceJobStatus, Placement
from inference_operator.api.model import InferenceModelSpec, InferenceModelStatus
from inference_operator.api.schema import GROUP
from inference_operator.state.objects import Autoscaler, Budget, Job, Key, Model, Node, Taint
from inference_operator.state.raw import PLACEMENT, Raw, RawCondition, RawMeta, RawStruct, is_ours, owner_of
from inference_operator.state.resources import amounts
from inference_operator.state.topology import NodeSelectorRequirement, Volume
from inference_operator.state.volumes import Claim

T = TypeVar("T")

_JOB_SPEC: TypeAdapter[InferenceJobSpec] = TypeAdapter(InferenceJobSpec)
_JOB_STATUS: TypeAdapter[InferenceJobStatus] = TypeAdapter(InferenceJobStatus)
_MODEL_SPEC: TypeAdapter[InferenceModelSpec] = TypeAdapter(InferenceModelSpec)
_MODEL_STATUS: TypeAdapter[InferenceModelStatus] = TypeAdapter(InferenceModelStatus)
_OUR_CONDITIONS = frozenset(kind.value for kind in ConditionType)


class _NodeSpec(RawStruct, frozen=True):
    unschedulable: bool = False
    taints: list[dict[str, Any]] = msgspec.field(default_factory=list)


class _HandlerFeatures(RawStruct, frozen=True):
    user_namespaces: bool = False


class _RuntimeHandler(RawStruct, frozen=True):
    name: str = ""
    features: _HandlerFeatures | None = None


class _NodeStatus(RawStruct, frozen=True):
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    runtime_handlers: list[_RuntimeHandler] = msgspec.field(default_factory=list)
    conditions: list[RawCondition] = msgspec.field(default_factory=list)


class _RawNode(RawStruct, frozen=True):
    metadata: RawMeta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


def parse_job(raw: Raw) -> Job:
    """An InferenceJob. What the types can't read becomes `invalid`, in words for its author."""
    meta = msgspec.convert(raw["metadata"], RawMeta)
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
    meta = msgspec.convert(raw["metadata"], RawMeta)
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
        unreadable=status.fault,
    )


class _Reference(RawStruct, frozen=True):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class _AutoscalerSpec(RawStruct, frozen=True):
    scale_target_ref: _Reference = _Reference()


class _RawAutoscaler(RawStruct, frozen=True):
    metadata: RawMeta
    spec: _AutoscalerSpec = _AutoscalerSpec()


def parse_autoscaler(raw: Raw) -> Autoscaler:
    """A HorizontalPodAutoscaler, ours or another's."""
    found = msgspec.convert(raw, _RawAutoscaler)
    meta, target = found.metadata, found.spec.scale_target_ref
    job = target.kind == KIND and target.api_version.partition("/")[0] == GROUP
    ours = is_ours(meta)
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


def parse_budget(raw: Raw) -> Budget | None:
    """A PodDisruptionBudget of ours; None for one of somebody else."""
    job = owner_of(raw)
    if job is None:
        return None
    meta, spec = raw["metadata"], raw.get("spec") or {}
    least = spec.get("minAvailable")
    exact = type(least) is int and "maxUnavailable" not in spec
    return Budget(Key(meta.get("namespace", ""), meta["name"]), meta["uid"], job, least if exact else None)


class _Requirement(RawStruct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Term(RawStruct, frozen=True):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()


class _Selector(RawStruct, frozen=True):
    node_selector_terms: tuple[_Term, ...] = ()


class _NodeAffinity(RawStruct, frozen=True):
    required: _Selector | None = None


class _ClaimReference(RawStruct, frozen=True):
    namespace: str = ""
    name: str = ""


class _VolumeSpec(RawStruct, frozen=True):
    claim_ref: _ClaimReference | None = None
    node_affinity: _NodeAffinity | None = None


class _VolumeStatus(RawStruct, frozen=True):
    phase: str = ""


class _RawVolume(RawStruct, frozen=True):
    metadata: RawMeta
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


class _ClaimModes(RawStruct, frozen=True):
    access_modes: tuple[str, ...] = ()


class _RawClaim(RawStruct, frozen=True):
    metadata: RawMeta
    spec: _ClaimModes = _ClaimModes()
    status: _ClaimModes = _ClaimModes()


def parse_claim(raw: Raw) -> Claim:
    """A PersistentVolumeClaim. What its volume can do counts, once it has one: a shared volume is shared, whatever was asked for.

    ReadWriteOncePod is what the scheduler goes by as soon as the claim asks for it.
    """
    found = msgspec.convert(raw, _RawClaim)
    meta, asked, has = found.metadata, found.spec.access_modes, found.status.access_modes
    modes = asked if "ReadWriteOncePod" in asked or not has else has
    return Claim(meta.uid, meta.resource_version, modes, meta.deletion_timestamp is not None)


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
        created=node.metadata.creation_timestamp,
        resource_version=node.metadata.resource_version,
        labels=node.metadata.labels,
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in node.spec.taints),
        allocatable=amounts(node.status.allocatable),
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions),
        unschedulable=node.spec.unschedulable,
        reachable=all(c.status != "Unknown" for c in node.status.conditions if c.type == "Ready"),
        user_namespaces=any(h.features.user_namespaces for h in node.status.runtime_handlers if not h.name and h.features),
    )


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
    return PLACEMENT.dump_json(placement, by_alias=True, exclude_none=True).decode()

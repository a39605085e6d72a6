"""The parts of API objects that several kinds share, as msgspec reads them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from pydantic import TypeAdapter

from inference_operator.api import names
from inference_operator.api.job import KIND
from inference_operator.api.job_status import Placement
from inference_operator.api.model import KIND as MODEL_KIND
from inference_operator.api.schema import API_VERSION

PLACEMENT: TypeAdapter[Placement] = TypeAdapter(Placement)


class RawStruct(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an API object; what it does not name is passed over."""


class RawOwner(RawStruct, frozen=True):
    """meta/v1 OwnerReference."""

    uid: str
    api_version: str = ""
    kind: str = ""
    controller: bool = False


class RawMeta(RawStruct, frozen=True):
    """meta/v1 ObjectMeta."""

    name: str
    uid: str
    resource_version: str = ""
    namespace: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[RawOwner] = msgspec.field(default_factory=list)


class RawAmounts(RawStruct, frozen=True):
    """core/v1 ResourceRequirements."""

    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class RawCondition(RawStruct, frozen=True):
    """A condition of a pod or a node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


Raw = Mapping[str, Any]


def is_ours(meta: RawMeta) -> bool:
    """Labels can be written by anybody with a pod; what the pod is must also stand in its owner reference.

    So can that. One of our group and kind is collected where there is no such owner; one of an unknown group stays for ever.
    """
    uid = names.owner_uid(meta.labels)
    kind = KIND if names.LABEL_JOB_UID in meta.labels or names.LABEL_PLACEHOLDER in meta.labels else MODEL_KIND
    owned = any(o.controller and o.api_version == API_VERSION and o.kind == kind and o.uid == uid for o in meta.owner_references)
    return uid is not None and owned and meta.labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY


def owner_of(raw: Raw) -> str | None:
    """The uid of the job or model that an object of ours is of; None for what is not ours, whatever its labels say."""
    meta = msgspec.convert(raw["metadata"], RawMeta)
    return names.owner_uid(meta.labels) if is_ours(meta) else None


def is_newer(new: str, old: str) -> bool:
    """Compare resource versions. They are opaque by contract, numbers in fact; what can't be compared counts as newer."""
    if new.isdigit() and old.isdigit():
        return int(new) >= int(old)
    return True

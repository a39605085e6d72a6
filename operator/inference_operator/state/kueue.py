"""Kueue's objects, cut down to what decides about a batch, and parsed. Never raises on what a cluster can hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from inference_operator.api import names
from inference_operator.state.objects import Job, Key
from inference_operator.state.raw import Raw, RawMeta, RawStruct, is_newer, owner_of

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
# Conditions of a Workload.
QUOTA_RESERVED, ADMITTED, EVICTED, REQUEUED = "QuotaReserved", "Admitted", "Evicted", "Requeued"
FINISHED, PODS_READY = "Finished", "PodsReady"

_TRUE = "True"


class KueueApi(StrEnum):
    """Whether the cluster has a Kueue that this operator can ask."""

    DISABLED = "Disabled"
    MISSING = "Missing"
    SERVING = "Serving"


class WorkloadCondition(RawStruct, frozen=True):
    """A condition of a Workload: its time is kept as it was written, since it is written back."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """The Workload of a job. `flavors` are those of its quota reservation; None without one.

    `revision` says of what it was made, `suspended` that the job's own suspend made it inactive.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    job_uid: str
    deleting: bool = False
    revision: str = ""
    active: bool = True
    suspended: bool = False
    priority: int | None = None
    priority_class: str | None = None
    conditions: tuple[WorkloadCondition, ...] = ()
    flavors: tuple[str, ...] | None = None
    cluster_queue: str = ""

    def condition(self, kind: str) -> WorkloadCondition | None:
        """Return the condition of one type, if it is there."""
        return next((one for one in self.conditions if one.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether a condition is there and True."""
        found = self.condition(kind)
        return found is not None and found.status == _TRUE

    @property
    def reserved(self) -> bool:
        """Whether it has quota."""
        return self.holds(QUOTA_RESERVED) or self.flavors is not None


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: the labels of its nodes."""

    name: str
    uid: str
    node_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KueueObserved:
    """What a look at one job sees of Kueue."""

    api: KueueApi = KueueApi.DISABLED
    workload: Workload | None = None
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    # The value of each PriorityClass.
    priorities: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Queues:
    """What the watches and our own writes have shown of Kueue."""

    api: KueueApi = KueueApi.DISABLED
    workloads: dict[Key, Workload] = field(default_factory=dict)
    flavors: dict[str, Flavor] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)

    def put(self, workload: Workload | None) -> bool:
        """Take a Workload in; False when it is older than what is known, or nobody's of ours."""
        if workload is None:
            return False
        old = self.workloads.get(workload.key)
        same = old is not None and old.uid == workload.uid
        if old == workload or (same and old is not None and not is_newer(workload.resource_version, old.resource_version)):
            return False
        self.workloads[workload.key] = workload
        return True

    def of(self, job: Job) -> KueueObserved:
        """Return what concerns one job."""
        found = self.workloads.get(Key(job.key.namespace, names.workload_name(job.key.name, job.uid)))
        ours = found if found is not None and found.job_uid == job.uid else None
        return KueueObserved(self.api, ours, self.flavors, self.priorities)


class _PodSetAssignment(RawStruct, frozen=True):
    flavors: dict[str, str] = msgspec.field(default_factory=dict)


class _Admission(RawStruct, frozen=True):
    cluster_queue: str = ""
    pod_set_assignments: list[_PodSetAssignment] = msgspec.field(default_factory=list)


class _ClassRef(RawStruct, frozen=True):
    name: str = ""


class _WorkloadSpec(RawStruct, frozen=True):
    active: bool = True
    priority: int | None = None
    priority_class_ref: _ClassRef | None = None


class _WorkloadStatus(RawStruct, frozen=True):
    admission: _Admission | None = None
    conditions: list[WorkloadCondition] = msgspec.field(default_factory=list)


class _RawWorkload(RawStruct, frozen=True):
    metadata: RawMeta
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


def parse_workload(raw: Raw) -> Workload | None:
    """Return a Workload of ours; None for one of somebody else."""
    job = owner_of(raw)
    if job is None:
        return None
    found = msgspec.convert(raw, _RawWorkload)
    meta, spec, admission = found.metadata, found.spec, found.status.admission
    return Workload(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        job_uid=job,
        deleting=meta.deletion_timestamp is not None,
        revision=meta.labels.get(names.LABEL_REVISION, ""),
        active=spec.active,
        suspended=names.ANNOTATION_SUSPENDED in meta.annotations,
        priority=spec.priority,
        priority_class=spec.priority_class_ref.name if spec.priority_class_ref is not None else None,
        conditions=tuple(found.status.conditions),
        flavors=_flavors(admission) if admission is not None else None,
        cluster_queue=admission.cluster_queue if admission is not None else "",
    )


def _flavors(admission: _Admission) -> tuple[str, ...]:
    return tuple(sorted({name for one in admission.pod_set_assignments for name in one.flavors.values()}))


class _FlavorSpec(RawStruct, frozen=True):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)


class _RawFlavor(RawStruct, frozen=True):
    metadata: RawMeta
    spec: _FlavorSpec = _FlavorSpec()


def parse_flavor(raw: Raw) -> Flavor:
    """Return a ResourceFlavor."""
    found = msgspec.convert(raw, _RawFlavor)
    return Flavor(found.metadata.name, found.metadata.uid, found.spec.node_labels)


def parse_priority_class(raw: Raw) -> tuple[str, int]:
    """Return a PriorityClass's name and value."""
    return str(raw["metadata"]["name"]), int(raw.get("value", 0))

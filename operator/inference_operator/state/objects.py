"""The cluster as the operator sees it: nodes, pods and jobs, cut down to what decisions need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from inference_operator.api.conditions import Reason
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.job_status import InferenceJobStatus, Placement
from inference_operator.api.model import InferenceModelSpec, InferenceModelStatus
from inference_operator.state.resources import Amounts
from inference_protocol.messages import Telemetry, TerminationReport

TaskId = tuple[str, int]
"""A task on a warm worker: its job's uid, and which attempt it is."""


class Key(NamedTuple):
    """An object's namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Job:
    """An InferenceJob. `invalid` says what the API server let through and we can't read."""

    key: Key
    uid: str
    generation: int
    resource_version: str
    created: datetime
    deleting: bool
    spec: InferenceJobSpec | None
    status: InferenceJobStatus
    invalid: str | None = None
    # A status that we can't read was written by a version that knew more: acting on half of it could undo the other half.
    unreadable: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether it has an input; False where its spec can't be read."""
        return self.spec is not None and self.spec.input is not None


@dataclass(frozen=True, slots=True)
class Model:
    """An InferenceModel."""

    key: Key
    uid: str
    generation: int
    resource_version: str
    spec: InferenceModelSpec | None
    status: InferenceModelStatus
    invalid: str | None = None
    # See Job.
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget of ours: `job_uid` is its owner's. `min_available` is None where somebody made it say otherwise."""

    key: Key
    uid: str
    job_uid: str
    min_available: int | None


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what it can hold, and whether it takes pods."""

    name: str
    resource_version: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    allocatable: Amounts
    ready: bool
    unschedulable: bool
    uid: str = ""
    created: datetime | None = None
    # False once the control plane has lost touch with it (Ready is Unknown): what runs there can't be counted on.
    reachable: bool = True
    # The operator's own polls hear nothing from a worker there: nothing new goes to it.
    silent: bool = False
    # Whether its default runtime can give a pod a user namespace of its own.
    user_namespaces: bool = False


class PodPhase(StrEnum):
    """A pod's phase in core/v1."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Worker:
    """What only our own pods have. `job_uid` is the owner's: a job's, or for a worker of a warm pool (`pool`) its model's."""

    job_uid: str
    number: int
    revision: str
    accelerator: str
    placement: Placement | None
    pool: bool = False


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What only placeholder pods have: the job that one keeps a place for, and the accelerator class that is to grow."""

    job_uid: str
    accelerator: str


@dataclass(frozen=True, slots=True)
class PodProblem:
    """Why a pod does not get on, in the kubelet's or the scheduler's words. `container` is set where it is not the worker's own.

    `over_limit` says that the kubelet has ended it for what it used itself, and not for its node's sake.
    """

    reason: str
    message: str
    container: str = ""
    over_limit: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: what it takes on its node, and, if it is a worker, how it stands."""

    key: Key
    uid: str
    resource_version: str
    node: str | None
    requests: Amounts
    phase: PodPhase
    deleting: bool
    ready: bool = False
    # Since when it is ready; None where it is not, or nobody says.
    ready_since: datetime | None = None
    # Whether its worker's own container is ready, whatever those beside it are.
    worker_ready: bool = False
    # Whether all containers are, as their kubelet said last. `ready` the control plane takes away when it can't reach the node.
    containers_ready: bool = False
    # Containers beside a worker that has ended, which no kubelet ends: a mesh's proxy goes on for ever.
    lingering: tuple[str, ...] = ()
    address: str | None = None
    worker: Worker | None = None
    placeholder: Placeholder | None = None
    # Since when it has a node; None where nobody says.
    bound_since: datetime | None = None
    problem: PodProblem | None = None
    report: TerminationReport | None = None
    exit_code: int | None = None
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    # The PersistentVolumeClaims that it mounts.
    claims: tuple[str, ...] = ()
    # What a quota on limits counts, of workers only.
    limits: Amounts = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The attempt or replica that it is, counted from one; zero for pods that are no workers."""
        return self.worker.number if self.worker is not None else 0

    @property
    def owner_uid(self) -> str:
        """The uid of the job or the model that a pod of ours is of; empty for others."""
        return self.worker.job_uid if self.worker else self.placeholder.job_uid if self.placeholder else ""

    @property
    def terminal(self) -> bool:
        """Whether it holds nothing on its node any more."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    @property
    def over(self) -> bool:
        """Whether its worker has ended, though what runs beside it may still hold the place."""
        return self.terminal or self.exit_code is not None


@dataclass(frozen=True, slots=True)
class Reading:
    """One telemetry answer of a worker, with the time it was read."""

    telemetry: Telemetry
    time: datetime


@dataclass(frozen=True, slots=True)
class CreateFailure:
    """The API server refused to make something for a job: in whose words, when, and how often in a row.

    `accelerator` is the class of the worker that it was, empty for all else.
    """

    reason: Reason
    message: str
    time: datetime
    count: int
    accelerator: str = ""


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler.

    `job_uid` is that of the InferenceJob for which this operator made it, None for somebody else's; `revision` says of what it was
    made; `scaled_object` is the KEDA object behind it, if any. `spec` is only told of our own: others' is none of our business.
    """

    key: Key
    uid: str
    resource_version: str
    # The InferenceJob that it scales; None for other kinds, which are none of our business.
    target: Key | None
    job_uid: str | None = None
    revision: str = ""
    scaled_object: str | None = None
    spec: Mapping[str, object] = field(default_factory=dict)


class MetricsApiState(StrEnum):
    """Whether the HPA gets its metrics from us."""

    DISABLED = "Disabled"
    PENDING = "Pending"
    SERVING = "Serving"
    TAKEN = "Taken"


@dataclass(frozen=True, slots=True)
class MetricsApi:
    """How our custom metrics API stands. `owner` names who has it when `state` is TAKEN."""

    state: MetricsApiState
    owner: str = ""

"""What a plan may ask for: frozen, printable, idempotent, each with its reason and its precondition."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inference_operator.api.events import EventType
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.api.model import InferenceModelStatus
from inference_operator.state.node_caches import Prefetch
from inference_operator.state.objects import Key, Pod
from inference_protocol.messages import TaskOrder


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a worker. `assumed` stands for it in the store until the API server's answer is there."""

    manifest: dict[str, Any]
    assumed: Pod
    why: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this very pod (by uid); the worker drains within its grace."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class StartTask:
    """Have a warm worker run an attempt, or say how it stands if it has it already."""

    warm_worker: Key
    address: str
    order: TaskOrder


@dataclass(frozen=True, slots=True)
class StopTask:
    """Have a warm worker commit what it has of an attempt, and end it."""

    warm_worker: Key
    address: str
    uid: str
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the job's Service."""

    manifest: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class ApplyBudget:
    """Make the job's PodDisruptionBudget, or bring it (`uid`) to what it should say."""

    manifest: dict[str, Any]
    uid: str | None
    why: str


@dataclass(frozen=True, slots=True)
class DeleteBudget:
    """Delete this very PodDisruptionBudget."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Create the job's Workload of Kueue's."""

    manifest: dict[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class PatchWorkload:
    """Change this very Workload, which was seen in its `version`: of its status, or else of the rest, what the body says."""

    key: Key
    version: str
    body: dict[str, Any]
    why: str
    of_status: bool = False


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete this very Workload (by uid)."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class ApplySlice:
    """Make an EndpointSlice, or bring ours (`uid`) to what it should say."""

    manifest: dict[str, Any]
    uid: str | None
    why: str


@dataclass(frozen=True, slots=True)
class TakeSelector:
    """Take the selector from the job's Service (`uid`; None where it has none), and the Endpoints that were written by it."""

    key: Key
    uid: str | None
    why: str


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Delete this very EndpointSlice (by uid)."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete this very job (by uid)."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Replace the job's status, as far as we own it. `version` is the resource version that this was decided on."""

    key: Key
    uid: str
    status: InferenceJobStatus
    version: str


@dataclass(frozen=True, slots=True)
class WriteModelStatus:
    """Replace the model's status. `version` is the resource version that this was decided on."""

    key: Key
    uid: str
    status: InferenceModelStatus
    version: str


@dataclass(frozen=True, slots=True)
class ApplyAutoscaler:
    """Make the job's HPA, or bring ours (`uid`) to what it should be."""

    manifest: dict[str, Any]
    uid: str | None
    why: str


@dataclass(frozen=True, slots=True)
class DeleteAutoscaler:
    """Delete this very HPA (by uid), which is ours."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell about a transition, where `kubectl describe` shows it. The same `occasion` is told once."""

    key: Key
    uid: str
    type: EventType
    reason: str
    message: str
    occasion: str


Action = (
    CreatePod
    | DeletePod
    | StartTask
    | StopTask
    | CreateService
    | ApplyBudget
    | DeleteBudget
    | CreateWorkload
    | PatchWorkload
    | DeleteWorkload
    | DeleteJob
    | WriteStatus
    | WriteModelStatus
    | ApplyAutoscaler
    | DeleteAutoscaler
    | EmitEvent
)


EndpointsAction = ApplySlice | TakeSelector | DeleteSlice


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order, when to look again though nothing happens, and what caches of nodes should have meanwhile."""

    actions: tuple[Action, ...] = ()
    recheck: datetime | None = None
    prefetch: Prefetch | None = None

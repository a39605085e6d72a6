"""Condition types and reasons: closed lists, with kstatus's meaning for Ready, Reconciling and Stalled.

kstatus (sigs.k8s.io/cli-utils) reads a custom kind so: `Reconciling=True` is in progress, `Stalled=True` is failed, `Ready=True` is
current, `Ready` False or Unknown is in progress, and nothing of these is current. So a finished failure must be Stalled, and a
suspended job, which is where its user wants it, carries none of the three.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from inference_operator.api.schema import Instant, api_type
from inference_protocol.reasons import WorkerReason


class ConditionType(StrEnum):
    """Every condition type that an InferenceJob or InferenceModel may carry."""

    ACCEPTED = "Accepted"
    PLACED = "Placed"
    READY = "Ready"
    SUCCEEDED = "Succeeded"
    SUSPENDED = "Suspended"
    AUTOSCALED = "Autoscaled"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Truth(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Every reason that the operator itself gives; a worker's own words are `WorkerReason`."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    MODEL_UNKNOWN = "ModelUnknown"
    MODEL_VERSION_UNKNOWN = "ModelVersionUnknown"
    BACKEND_UNAVAILABLE = "BackendUnavailable"
    ACCELERATOR_UNKNOWN = "AcceleratorUnknown"
    NAME_TAKEN = "NameTaken"
    # Placed
    PLACED = "Placed"
    PENDING = "Pending"
    NO_FREE_CAPACITY = "NoFreeCapacity"
    NO_NODE_FITS = "NoNodeFits"
    DEADLINE_INFEASIBLE = "DeadlineInfeasible"
    QUOTA_EXCEEDED = "QuotaExceeded"
    POD_REFUSED = "PodRefused"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    BACKING_OFF = "BackingOff"
    PREEMPTED = "Preempted"
    # Ready and Succeeded
    STARTING = "Starting"
    RUNNING = "Running"
    SERVING = "Serving"
    SCALED_TO_ZERO = "ScaledToZero"
    SUCCEEDED = "Succeeded"
    ENDED = "Ended"
    SUSPENDED = "Suspended"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    WORKER_LOST = "WorkerLost"
    # Autoscaled
    FOLLOWING_LATENCY = "FollowingLatency"
    NO_METRIC_YET = "NoMetricYet"
    METRICS_API_DISABLED = "MetricsApiDisabled"
    METRICS_API_TAKEN = "MetricsApiTaken"
    LATENCY_TARGET_MISSING = "LatencyTargetMissing"
    LATENCY_TARGET_BELOW_FLOOR = "LatencyTargetBelowFloor"
    NO_RANGE = "NoRange"
    CAPACITY_LIMITED = "CapacityLimited"
    OTHER_AUTOSCALER = "OtherAutoscaler"
    LEFT_TO_OTHERS = "LeftToOthers"


AnyReason = Reason | WorkerReason

# Reasons for which a worker waits until there is room for it.
NO_PLACE = frozenset({Reason.NO_FREE_CAPACITY, Reason.NO_NODE_FITS})


@api_type()
class Condition:
    """One observation about an object, in the form of meta/v1 Condition."""

    type: Annotated[str, Field(max_length=316, description="What is observed.")]
    status: Annotated[Truth, Field(description="Whether it holds.")]
    reason: Annotated[str, Field(min_length=1, max_length=128, description="Why, in one word of a closed list.")]
    message: Annotated[str, Field(max_length=8192, description="Why, and what to do about it, for people.")]
    last_transition_time: Annotated[Instant, Field(description="When the status last changed.")]
    observed_generation: Annotated[int, Field(ge=0, description="The spec's generation that this speaks about.")] = 0


class UndatedCondition(NamedTuple):
    """A condition before it is dated."""

    type: ConditionType
    status: Truth
    reason: AnyReason
    message: str


def dated(
    conditions: Iterable[UndatedCondition], *, before: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Date findings: a transition time moves only when the status flips, so that equal answers stay equal."""
    old = {c.type: c for c in before}
    result = []
    for kind, status, reason, message in conditions:
        previous = old.get(kind)
        kept = previous is not None and previous.status == status
        result.append(
            Condition(
                type=kind.value,
                status=status,
                reason=reason.value,
                message=message[:8192],
                last_transition_time=previous.last_transition_time if kept and previous else now.replace(microsecond=0),
                observed_generation=generation,
            )
        )
    return tuple(result)


def find(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """The condition of one type, if it is there."""
    return next((c for c in conditions if c.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: ConditionType) -> bool:
    """Whether a condition is there and True."""
    found = find(conditions, kind)
    return found is not None and found.status is Truth.TRUE

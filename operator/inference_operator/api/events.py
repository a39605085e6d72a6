"""Every event that the operator emits on an InferenceJob: a closed list, each member with its type, its meaning and its cure."""

from enum import StrEnum
from typing import Self

from inference_operator.api.reasons import AnyReason, Reason
from inference_protocol.reasons import UNDESCRIBED, ReasonText, WorkerReason


class EventType(StrEnum):
    """An event's type, as in events.k8s.io/v1."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(StrEnum):
    """Every reason that an event may have, beside those of `STALLED_REASONS`."""

    event_type: EventType
    text: ReasonText

    # Without defaults a lookup by the word alone, EventReason("Placed"), would not pass the type check.
    def __new__(cls, word: str, event_type: EventType = EventType.WARNING, text: ReasonText = UNDESCRIBED) -> Self:
        """Return the member: a plain string that carries its type and its text."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.event_type = event_type
        member.text = text
        return member

    PLACED = "Placed", EventType.NORMAL, ReasonText("The operator has chosen a place for a worker.", "No action is needed.")
    PROVISIONING = (
        "Provisioning",
        EventType.NORMAL,
        ReasonText("The job has asked for a new node by a placeholder pod.", "No action is needed."),
    )
    NODE_TIMEOUT = (
        "NodeTimeout",
        EventType.WARNING,
        ReasonText(
            "A new node that the job had asked for did not come in time, or has no place for it.",
            "Read the events of the placeholder pod and the autoscaler's log; the job asks again by itself.",
        ),
    )
    STARTED = (
        "Started",
        EventType.NORMAL,
        ReasonText(
            "A batch has started its work from the first item, or a service answers for the first time.", "No action is needed."
        ),
    )
    PREEMPTED = (
        "Preempted",
        EventType.NORMAL,
        ReasonText(
            "The job makes room for work that can't be on time otherwise.",
            "Wait, or raise priority: the job continues after its last committed chunk.",
        ),
    )
    RESUMED = (
        "Resumed",
        EventType.NORMAL,
        ReasonText(
            "A batch continues after its last committed chunk, or a service that was suspended or had ended serves again.",
            "No action is needed.",
        ),
    )
    SUSPENDED = (
        "Suspended",
        EventType.NORMAL,
        ReasonText("spec.suspend has stopped the job; committed work is kept.", "Set suspend to false to continue."),
    )
    SUCCEEDED = (
        "Succeeded",
        EventType.NORMAL,
        ReasonText("All items of a batch are answered, or a service has reached serve.until.", "No action is needed."),
    )
    SCALED_UP = "ScaledUp", EventType.NORMAL, ReasonText("A service is to have more workers than before.", "No action is needed.")
    SCALED_DOWN = (
        "ScaledDown",
        EventType.NORMAL,
        ReasonText("A service is to have fewer workers than before.", "No action is needed."),
    )
    ROLLED_OUT = (
        "RolledOut",
        EventType.NORMAL,
        ReasonText("All workers of a service have its newest revision.", "No action is needed."),
    )
    ATTEMPT_FAILED = (
        "AttemptFailed",
        EventType.WARNING,
        ReasonText("An attempt of the job failed, and another one follows.", "Fix what the message names."),
    )
    ROUTE_REFUSED = (
        "RouteRefused",
        EventType.WARNING,
        ReasonText(
            "A Gateway does not take the route or the pool of a service, or the API server refuses it.",
            "Change the Gateway's listeners or its allowedRoutes as the message says.",
        ),
    )


# A job that stalls says so in an event too, of type Warning and with the reason of its condition Stalled. What keeps a pod from
# starting stalls a batch after its last attempt.
STALLED_REASONS: tuple[AnyReason, ...] = (
    Reason.INVALID_SPEC,
    Reason.BACKEND_UNAVAILABLE,
    Reason.DEADLINE_INFEASIBLE,
    Reason.DEADLINE_EXCEEDED,
    Reason.PENDING,
    Reason.POD_INVALID,
    Reason.UNSCHEDULABLE,
    Reason.IMAGE_UNAVAILABLE,
    Reason.VOLUME_UNAVAILABLE,
    Reason.STARTING,
    *(reason for reason in WorkerReason if reason is not WorkerReason.TERMINATED),
)

"""Conditions in the form of meta/v1: dated, found and read."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from inference_operator.api.condition_types import ConditionType
from inference_operator.api.reasons import NO_PLACE, AnyReason, Reason
from inference_operator.api.schema import Instant, api_type

__all__ = [
    "NO_PLACE",
    "AnyReason",
    "Condition",
    "ConditionType",
    "Reason",
    "Truth",
    "UndatedCondition",
    "calm",
    "dated",
    "find",
    "is_true",
]


class Truth(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


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
    """Date conditions: a transition time moves only when the status flips, so that equal answers stay equal."""
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


def calm(condition: Condition, before: Sequence[Condition]) -> Condition:
    """Keep the words of what waits for a place while spec, status and reason stand: the nodes that they count always change.

    Who was told that namespaces share the room is not told otherwise for each moment in which the others have nothing to do.
    """
    old = next((c for c in before if c.type == condition.type), None)
    if old is None or condition.reason not in NO_PLACE or old.status != condition.status:
        return condition
    if old.reason != condition.reason and (old.reason, condition.reason) != (Reason.FAIR_SHARE, Reason.NO_FREE_CAPACITY):
        return condition
    if old.observed_generation != condition.observed_generation:
        # Words about an earlier spec would stand as an answer to this one.
        return condition
    return replace(condition, reason=old.reason, message=old.message)

"""Reasons and events: each says what it means and what to do, each is used, and none stands where the lists don't have it."""

import re
from pathlib import Path

import pytest

from inference_operator.api.condition_types import ConditionType
from inference_operator.api.events import STALLED_REASONS, EventReason, EventType
from inference_operator.api.reasons import AnyReason, Reason
from inference_protocol.reasons import WorkerReason
from tests.unit.jobs.situations import SITUATIONS

ROOT = Path(__file__).resolve().parents[3]
MEMBERS: list[AnyReason | EventReason] = [*Reason, *WorkerReason, *EventReason]
# What repeats the reason of another condition.
REPEATS = {"Ready", "Reconciling", "Succeeded", "Stalled"}


def is_sentence(text: str) -> bool:
    return text.endswith(".") and ". " not in text and 0 < len(text.split()) <= 25


def label(value: object) -> str:
    return f"{type(value).__name__}.{value}"


def code() -> str:
    """All source files but those that define reasons and events."""
    files = [path for folder in ("operator", "protocol", "worker-image") for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text() for path in files if path.name != "reasons.py" and path.parts[-2:] != ("api", "events.py"))


CODE = code()


@pytest.mark.parametrize("member", MEMBERS, ids=label)
def test_a_reason_says_in_a_short_sentence_each_what_it_means_and_what_to_do(member: AnyReason | EventReason) -> None:
    assert is_sentence(member.text.meaning)
    assert is_sentence(member.text.cure)


@pytest.mark.parametrize("member", MEMBERS, ids=label)
def test_a_reason_is_one_word_in_pascal_case(member: AnyReason | EventReason) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", member.value)
    assert str(member) == member.value == f"{member}"


@pytest.mark.parametrize("enum", [Reason, WorkerReason, EventReason])
def test_a_reason_is_found_by_its_word(enum: type[Reason | WorkerReason | EventReason]) -> None:
    assert [enum(member.value) for member in enum] == list(enum)


def test_no_worker_has_a_reason_of_the_operator() -> None:
    assert not {*map(str, Reason)} & {*map(str, WorkerReason)}


@pytest.mark.parametrize("member", [*Reason, *WorkerReason], ids=label)
def test_a_reason_is_used(member: AnyReason) -> None:
    assert re.search(rf"\b{type(member).__name__}\.{member.name}\b", CODE)


@pytest.mark.parametrize("kind", ConditionType)
def test_a_condition_type_says_what_it_means(kind: ConditionType) -> None:
    assert is_sentence(kind.meaning)
    assert ConditionType(kind.value) is kind


# Events.


def test_success_is_normal_and_failure_is_a_warning() -> None:
    assert {reason for reason in EventReason if reason.event_type is EventType.WARNING} == {
        EventReason.ATTEMPT_FAILED,
        EventReason.NODE_TIMEOUT,
        EventReason.ROUTE_REFUSED,
    }


def test_no_event_has_the_reason_of_a_job_that_stalls() -> None:
    assert len(STALLED_REASONS) == len({*STALLED_REASONS})
    assert not {*map(str, STALLED_REASONS)} & {*map(str, EventReason)}


# Where they stand, by every situation that a job can be in.


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_reason_stands_where_its_types_say(name: str) -> None:
    for kind, (_, word) in SITUATIONS[name].conditions.items():
        if word in {*map(str, Reason)}:
            assert kind in {*REPEATS, *Reason(word).types}
        else:
            assert WorkerReason(word) and kind in {*REPEATS, "Placed"}


@pytest.mark.parametrize("name", [name for name, situation in SITUATIONS.items() if "Stalled" in situation.conditions])
def test_a_job_stalls_with_a_reason_of_the_list(name: str) -> None:
    assert SITUATIONS[name].conditions["Stalled"][1] in STALLED_REASONS


def test_an_end_in_itself_is_final() -> None:
    assert {reason for reason in Reason if reason.text.final} == {
        Reason.INVALID_SPEC,
        Reason.BACKEND_UNAVAILABLE,
        Reason.DEADLINE_INFEASIBLE,
        Reason.DEADLINE_EXCEEDED,
        Reason.SUCCEEDED,
        Reason.ENDED,
    }

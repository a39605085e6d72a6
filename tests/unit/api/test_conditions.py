"""Conditions: dated so that a time moves only when a status flips."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.conditions import Condition, ConditionType, Reason, Truth, UndatedCondition, calm, dated, find, is_true
from tests.builders import NOW, whole

LATER = NOW + timedelta(seconds=90)

conditions = st.builds(
    UndatedCondition, st.sampled_from(ConditionType), st.sampled_from(Truth), st.sampled_from(Reason), st.text(max_size=20)
)
sets_of_findings = st.lists(conditions, max_size=7, unique_by=lambda f: f.type)


def ready(status: Truth, message: str = "m", reason: Reason = Reason.RUNNING) -> UndatedCondition:
    return UndatedCondition(ConditionType.READY, status, reason, message)


def test_a_first_finding_is_dated_now_in_whole_seconds() -> None:
    (condition,) = dated([ready(Truth.TRUE)], before=(), generation=3, now=NOW)

    assert condition.last_transition_time == whole(NOW)
    assert condition.observed_generation == 3


def test_the_time_stays_while_only_reason_and_message_change() -> None:
    before = dated([ready(Truth.FALSE)], before=(), generation=1, now=NOW)
    (after,) = dated([ready(Truth.FALSE, "other", Reason.STARTING)], before=before, generation=2, now=LATER)

    assert after.last_transition_time == whole(NOW)
    assert (after.reason, after.message, after.observed_generation) == ("Starting", "other", 2)


@pytest.mark.parametrize(("old", "new"), [(a, b) for a in Truth for b in Truth if a != b])
def test_the_time_moves_when_the_status_flips(old: Truth, new: Truth) -> None:
    before = dated([ready(old)], before=(), generation=1, now=NOW)
    (after,) = dated([ready(new)], before=before, generation=1, now=LATER)

    assert after.last_transition_time == whole(LATER)


def test_a_condition_that_went_away_comes_back_with_a_new_time() -> None:
    before = dated([ready(Truth.TRUE)], before=(), generation=1, now=NOW)
    without = dated([], before=before, generation=1, now=NOW)
    (again,) = dated([ready(Truth.TRUE)], before=without, generation=1, now=LATER)

    assert without == ()
    assert again.last_transition_time == whole(LATER)


@given(sets_of_findings, sets_of_findings)
def test_dating_twice_is_dating_once(first: list[UndatedCondition], second: list[UndatedCondition]) -> None:
    before = dated(first, before=(), generation=1, now=NOW)
    once = dated(second, before=before, generation=1, now=LATER)

    assert dated(second, before=once, generation=1, now=LATER + timedelta(days=1)) == once


def waits(message: str, generation: int) -> Condition:
    (condition,) = dated([ready(Truth.FALSE, message, Reason.NO_NODE_FITS)], before=(), generation=generation, now=NOW)
    return condition


def test_the_words_of_what_waits_stand_while_its_spec_stands() -> None:
    assert calm(waits("of 3 nodes", 1), [waits("of 2 nodes", 1)]).message == "of 2 nodes"


def test_words_about_an_earlier_spec_do_not_answer_a_later_one() -> None:
    assert calm(waits("too large by 1", 2), [waits("too large by 100", 1)]) == waits("too large by 1", 2)


def test_a_long_message_is_cut_to_what_the_api_takes() -> None:
    (condition,) = dated([ready(Truth.TRUE, "x" * 100_000)], before=(), generation=1, now=NOW)

    assert len(condition.message) == 8192


def test_absence_is_not_true() -> None:
    present = dated([ready(Truth.UNKNOWN)], before=(), generation=1, now=NOW)

    assert not is_true(present, ConditionType.READY)
    assert not is_true(present, ConditionType.STALLED)
    assert find(present, ConditionType.STALLED) is None
    assert isinstance(find(present, ConditionType.READY), Condition)


def waits_for(reason: Reason, generation: int = 1) -> Condition:
    told = UndatedCondition(ConditionType.PLACED, Truth.FALSE, reason, f"words of {reason}")
    return dated([told], before=(), generation=generation, now=NOW)[0]


def test_a_job_is_told_once_that_namespaces_share_however_often_the_others_come_and_go() -> None:
    """A small job of another namespace, again and again, would have ten thousand waiting jobs written each time."""
    full, shares = waits_for(Reason.NO_FREE_CAPACITY), waits_for(Reason.FAIR_SHARE)

    assert calm(shares, [full]) == shares
    assert calm(full, [shares]) == shares
    assert calm(waits_for(Reason.NO_FREE_CAPACITY, 2), [shares]) == waits_for(Reason.NO_FREE_CAPACITY, 2)
    assert calm(waits_for(Reason.NAMESPACE_CAPPED), [shares]) == waits_for(Reason.NAMESPACE_CAPPED)

"""Every situation of a job: what is done, what is said, what kstatus makes of it, and that it is said only once."""

from datetime import timedelta

import pytest

from inference_operator.api.conditions import ConditionType, Reason
from inference_operator.api.events import EventType
from inference_operator.workers.actions import EmitEvent, WriteStatus
from inference_protocol.reasons import WorkerReason
from tests.unit.jobs.situations import SITUATIONS
from tests.unit.scheduling.support import after, decide, facts, kstatus, settled, status_of

every_situation = pytest.mark.parametrize("name", SITUATIONS)


@every_situation
def test_what_is_done(name: str) -> None:
    situation = SITUATIONS[name]
    done = decide(situation.seen, situation.scheduler, now=situation.now)

    assert tuple(type(a).__name__ for a in done.actions if not isinstance(a, EmitEvent)) == situation.actions
    assert tuple(a.reason for a in done.actions if isinstance(a, EmitEvent) and a.type is EventType.WARNING) == situation.events


@every_situation
def test_what_is_said(name: str) -> None:
    situation = SITUATIONS[name]
    status = status_of(decide(situation.seen, situation.scheduler, now=situation.now), situation.seen)

    assert facts(status.conditions) == situation.conditions
    assert status.phase == (situation.phase or None)
    assert situation.says in " ".join(c.message for c in status.conditions)
    assert "" not in [c.message for c in status.conditions if c.type != "Succeeded"]


@every_situation
def test_what_kstatus_makes_of_it(name: str) -> None:
    situation = SITUATIONS[name]
    seen = after(situation.seen, decide(situation.seen, situation.scheduler, now=situation.now), now=situation.now)

    assert kstatus(seen.job) == situation.kstatus


@pytest.mark.parametrize("name", [name for name, situation in SITUATIONS.items() if situation.recheck is not None])
def test_when_it_is_looked_at_again(name: str) -> None:
    situation = SITUATIONS[name]

    assert decide(situation.seen, situation.scheduler, now=situation.now).recheck == situation.recheck


SLACK = "report.py deadline_status: slack is taken from the unrounded estimate, at the next look from the rounded one"


@every_situation
def test_what_was_said_is_not_said_again(name: str) -> None:
    situation = SITUATIONS[name]
    seen = settled(situation.seen, situation.scheduler, now=situation.now, rounds=situation.looks)

    for later in (0.3, 0.7, 1.0):
        if situation.recheck is None or situation.now + timedelta(seconds=later) < situation.recheck:
            assert decide(seen, situation.scheduler, now=situation.now + timedelta(seconds=later)).actions == ()


@every_situation
def test_reconciling_and_stalled_are_never_both_true(name: str) -> None:
    situation = SITUATIONS[name]
    status = status_of(decide(situation.seen, situation.scheduler, now=situation.now), situation.seen)
    alarms = [c.type for c in status.conditions if c.type in ("Reconciling", "Stalled")]

    assert len(alarms) <= 1
    assert len({c.type for c in status.conditions}) == len(status.conditions)


@every_situation
def test_the_status_is_about_the_spec_that_was_seen(name: str) -> None:
    situation = SITUATIONS[name]
    for action in decide(situation.seen, situation.scheduler, now=situation.now).actions:
        if isinstance(action, WriteStatus):
            assert action.status.observed_generation == situation.seen.job.generation
            assert (action.key, action.uid) == (situation.seen.job.key, situation.seen.job.uid)


# Closed lists.


def conditions_of_all_situations() -> set[tuple[str, str]]:
    found = set()
    for situation in SITUATIONS.values():
        status = status_of(decide(situation.seen, situation.scheduler, now=situation.now), situation.seen)
        found |= {(c.type, c.reason) for c in status.conditions}
    return found


def test_every_type_and_reason_is_of_the_closed_lists() -> None:
    for kind, reason in conditions_of_all_situations():
        assert kind in [t.value for t in ConditionType]
        assert reason in [r.value for r in (*Reason, *WorkerReason)]


def test_every_condition_type_is_reached() -> None:
    # A model's own is tested in warmpools/test_model_status.py, that of nodes' caches in test_roll_out_caches.py: it needs settings.
    assert {kind for kind, _ in conditions_of_all_situations()} | {"InUse", "Prefetched"} == {t.value for t in ConditionType}


# Given by no code, as far as this table and a search can tell: words of the list that users will never see.
UNUSED: set[Reason] = set()
# In test_admission.py, test_bounds.py, test_queued.py, test_roll_out_caches.py and workers/test_classes.py (they need other settings), as the reason of an attempt, which is no condition, and of models.
OF_MODELS = {Reason.USABLE, Reason.USED_BY_JOBS, Reason.NOT_USED}
OF_CACHES = {Reason.MODEL_CACHED, Reason.PREFETCHING, Reason.PREFETCH_FAILED, Reason.NOT_PREFETCHED}
ELSEWHERE = {
    Reason.ACCELERATOR_UNKNOWN,
    Reason.ACCELERATOR_UNSUITABLE,
    Reason.HOST_FORBIDDEN,
    Reason.PRIORITY_LIMITED,
    Reason.PROVISIONING,
    Reason.TEMPLATE_FORBIDDEN,
    Reason.TLS_UNAVAILABLE,
    Reason.WAITING_FOR_QUOTA,
    Reason.WORKER_LOST,
    Reason.WORKLOAD_INACTIVE,
    Reason.WORKLOAD_REFUSED,
    *OF_CACHES,
    *OF_MODELS,
}


def test_every_reason_is_reached_or_known_to_be_unused() -> None:
    reached = {reason for _, reason in conditions_of_all_situations()}

    assert reached.isdisjoint(UNUSED | ELSEWHERE)
    assert {r.value for r in Reason} - reached == {r.value for r in UNUSED | ELSEWHERE}

"""What changes of jobs count: each thing once, and nothing that an earlier leader has counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from inference_operator.api.job_status import (
    AttemptOutcome,
    AttemptStatus,
    DeadlineStatus,
    EnergyStatus,
    InferenceJobStatus,
    Outlook,
)
from inference_operator.observability import metrics
from inference_operator.observability.history import NAMESPACES, History
from inference_operator.observability.namespaces import OTHERS, NamespaceLabels
from inference_operator.state.store import Store
from tests.builders import NOW, a_job

if TYPE_CHECKING:
    from inference_operator.state.objects import Job

_VERSIONS = iter(range(2, 10_000))


class Counted:
    """What the registry has gained since."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> dict[tuple[str, ...], float]:
        return {(s.name, *s.labels.values()): s.value for family in metrics.CLUSTER.collect() for s in family.samples}

    def since(self, *names: str) -> dict[tuple[str, ...], float]:
        gained = {key: value - self._before.get(key, 0) for key, value in self._now().items() if key[0] in names}
        return {key: value for key, value in gained.items() if value}


@pytest.fixture
def counted() -> Counted:
    return Counted()


def lives(*statuses: dict[str, Any], **job: Any) -> None:
    """Take a job through statuses."""
    store, born = Store(History()), a_job(**job)
    store.put_job(born)
    for status in statuses:
        store.put_job(with_status(born, **status))


def with_status(job: Job, **status: Any) -> Job:
    return replace(job, status=InferenceJobStatus(**status), resource_version=str(next(_VERSIONS)))


def attempt(number: int, outcome: AttemptOutcome, reason: str | None = None) -> AttemptStatus:
    return AttemptStatus(number=number, pod="p", outcome=outcome, reason=reason)


def deadline(outlook: Outlook) -> DeadlineStatus:
    return DeadlineStatus(time=NOW, outlook=outlook)


def test_an_attempt_counts_when_it_ends_and_once(counted: Counted) -> None:
    failed = attempt(1, AttemptOutcome.FAILED, "OutOfMemory")
    lives(
        {"last_attempt": attempt(1, AttemptOutcome.RUNNING)},
        {"last_attempt": failed},
        {"last_attempt": failed, "attempts": 1},
        {"last_attempt": attempt(2, AttemptOutcome.RUNNING)},
        {"last_attempt": attempt(2, AttemptOutcome.SUCCEEDED, "Succeeded")},
    )

    assert counted.since("inference_attempts_total") == {
        ("inference_attempts_total", "default", "batch", "Failed", "OutOfMemory"): 1,
        ("inference_attempts_total", "default", "batch", "Succeeded", "Succeeded"): 1,
    }


def test_workers_of_a_service_count_when_they_fail(counted: Counted) -> None:
    last = attempt(2, AttemptOutcome.FAILED, "WorkerFailed")
    lives({"failed_attempts": 2, "last_attempt": last}, {"failed_attempts": 0, "last_attempt": last}, serve=True)

    assert counted.since("inference_attempts_total") == {
        ("inference_attempts_total", "default", "service", "Failed", "WorkerFailed"): 2
    }


def test_a_reason_of_no_list_is_counted_as_other(counted: Counted) -> None:
    lives({"last_attempt": attempt(1, AttemptOutcome.FAILED, "SomethingOfAnotherVersion")})

    assert list(counted.since("inference_attempts_total")) == [("inference_attempts_total", "default", "batch", "Failed", "Other")]


def test_a_deadline_counts_when_it_is_met_or_missed(counted: Counted) -> None:
    lives(
        {"deadline": deadline(Outlook.AT_RISK)},
        {"deadline": deadline(Outlook.MET)},
        {"deadline": deadline(Outlook.MET), "attempts": 1},
    )
    lives({"deadline": deadline(Outlook.MISSED)}, serve=True)

    assert counted.since("inference_deadlines_total") == {
        ("inference_deadlines_total", "default", "batch", "Met"): 1,
        ("inference_deadlines_total", "default", "service", "Missed"): 1,
    }


def test_energy_counts_what_each_attempt_has_added(counted: Counted) -> None:
    lives({"energy": EnergyStatus(joules=5)}, {"energy": EnergyStatus(joules=12)}, {"energy": EnergyStatus(joules=1)})

    assert counted.since("inference_energy_joules_total") == {("inference_energy_joules_total", "default", "Modelled"): 12}


def test_times_count_from_the_jobs_creation(counted: Counted) -> None:
    begun = {"start_time": NOW - timedelta(seconds=4)}
    lives(begun, {**begun, "completion_time": NOW}, created_ago=10)

    assert counted.since("inference_time_to_place_seconds_sum", "inference_time_to_complete_seconds_sum") == {
        ("inference_time_to_place_seconds_sum", "batch"): pytest.approx(6, abs=1),
        ("inference_time_to_complete_seconds_sum", "batch"): pytest.approx(10, abs=1),
    }


def test_the_first_sight_of_a_job_counts_nothing(counted: Counted) -> None:
    Store(History()).put_job(with_status(a_job(), deadline=deadline(Outlook.MET), start_time=NOW, energy=EnergyStatus(joules=5)))

    assert counted.since("inference_deadlines_total", "inference_energy_joules_total", "inference_time_to_place_seconds_sum") == {}


def test_namespaces_that_come_and_go_do_not_add_up() -> None:
    namespaces = NamespaceLabels(NAMESPACES)
    labels = {namespaces.label(f"ci-{n}") for n in range(10_000)}

    assert len(labels) == NAMESPACES + 1
    assert namespaces.label("ci-0") == "ci-0" and namespaces.label("ci-9999") == OTHERS

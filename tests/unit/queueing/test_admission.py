"""What Kueue's conditions mean for a batch."""

from dataclasses import replace

import pytest

from inference_operator.queueing.admission import Admitted, Evicted, Inactive, Waiting, admission
from inference_operator.state.kueue import Flavor, Workload
from tests.builders import a_job
from tests.kueues import FLAVOR, a_workload, admitted, evicted, kueue, says, waiting

JOB = a_job(queue_name="team")


def found(workload: Workload | None, *flavors: Flavor, under_way: bool = False) -> object:
    return admission(kueue(workload, *flavors), under_way=under_way)


def test_without_a_workload_it_waits() -> None:
    assert found(None) == Waiting("its Workload is gone, or yet to be made")
    assert found(admitted(JOB, deleting=True)) == found(None)


def test_it_waits_with_kueues_own_words() -> None:
    words = "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor gpu, 1 more needed"
    assert found(waiting(JOB, words)) == Waiting(words)
    assert isinstance(seen := found(a_workload(JOB)), Waiting)
    assert "Kueue has yet to look at Workload job-" in seen.message


def test_quota_alone_is_no_admission() -> None:
    checks = says("Admitted", "False", "The workload has not all checks ready")
    workload = a_workload(JOB, says("QuotaReserved"), checks, flavors=("small",), cluster_queue="all")

    assert found(workload) == Waiting("quota is reserved in ClusterQueue all: The workload has not all checks ready")


def test_it_may_run_on_nodes_with_all_labels_of_its_flavors() -> None:
    other = Flavor("gpu", "uid-of-gpu", {"class": "gpu", "zone": "a"})

    assert found(admitted(JOB)) == Admitted((("zone", "a"),))
    assert found(admitted(JOB, flavors=("gpu", "small")), FLAVOR, other) == Admitted((("class", "gpu"), ("zone", "a")))
    assert found(admitted(JOB, flavors=("small", "gpu")), FLAVOR) == Waiting("ResourceFlavor gpu of its quota is not known yet")


def test_what_is_evicted_stops() -> None:
    assert found(evicted(JOB, "preempted"), under_way=True) == Evicted("preempted")
    # Until its quota is taken back, it has not left.
    assert found(evicted(JOB, "preempted")) == Evicted("preempted")


def test_what_was_evicted_once_may_run_again() -> None:
    assert isinstance(found(admitted(JOB, says("Evicted", "False"))), Admitted)


def test_what_has_given_its_quota_back_waits_again() -> None:
    left = waiting(JOB, "Preempted to accommodate a workload")
    again = replace(left, conditions=(*left.conditions, says("Evicted", message="preempted")))

    assert found(again) == Waiting("Preempted to accommodate a workload")


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (None, "its Workload is gone"),
        (waiting(JOB, "no quota"), "no quota"),
        (waiting(JOB, active=False), "is inactive"),
        (admitted(JOB, says("Finished")), "counts as finished"),
    ],
)
def test_an_attempt_without_admission_is_an_eviction(workload: Workload | None, words: str) -> None:
    seen = found(workload, under_way=True)

    assert isinstance(seen, Evicted)
    assert seen.message.startswith("it has no quota any more: ")
    assert words in seen.message


def test_what_somebody_has_taken_out_of_the_queue_says_who_can_put_it_back() -> None:
    seen = found(a_workload(JOB, says("Evicted", message="The workload is deactivated"), active=False))

    assert isinstance(seen, Inactive)
    assert "The workload is deactivated" in seen.message
    assert seen.message.endswith("set its spec.active to true to queue it again")


def test_what_the_jobs_own_suspend_took_out_only_waits() -> None:
    assert isinstance(found(a_workload(JOB, active=False, suspended=True)), Waiting)

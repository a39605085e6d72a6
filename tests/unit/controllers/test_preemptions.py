"""Preemptions across namespaces are counted from statuses: once each, for an hour, and by a new operator too."""

from datetime import timedelta

from inference_operator.api.job_status import InferenceJobStatus, PreemptionStatus
from inference_operator.controllers.preemptions import Preemptions
from inference_operator.state.objects import Job
from tests.builders import NOW, a_job


def made_room(uid: str, *, ago: float, by: str) -> Job:
    told = PreemptionStatus(time=NOW - timedelta(seconds=ago), namespace=by)
    return a_job(namespace="modest", uid=uid, status=InferenceJobStatus(preemptions=1, last_preemption=told))


def test_a_preemption_counts_once_however_often_its_status_is_read() -> None:
    found = Preemptions()
    for _ in range(3):
        found.read(made_room("a", ago=10, by="greedy"))
    found.read(made_room("b", ago=10, by="greedy"))

    assert found.by_namespace(NOW) == {"greedy": 2}


def test_each_preemption_of_one_job_counts() -> None:
    found = Preemptions()
    found.read(made_room("a", ago=60, by="greedy"))
    found.read(made_room("a", ago=10, by="greedy"))

    assert found.by_namespace(NOW) == {"greedy": 2}


def test_after_an_hour_it_counts_no_longer() -> None:
    found = Preemptions()
    found.read(made_room("a", ago=3599, by="greedy"))

    assert found.by_namespace(NOW) == {"greedy": 1}
    assert found.by_namespace(NOW + timedelta(seconds=1)) == {}


def test_what_makes_room_inside_its_namespace_harms_no_other() -> None:
    found = Preemptions()
    found.read(made_room("a", ago=10, by="modest"))

    assert found.by_namespace(NOW) == {}

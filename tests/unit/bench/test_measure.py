"""How late the simulated kubelets were, and whose writes they were."""

import pytest

from bench.plane.audit import Request
from bench.plane.measure import lag, per_job
from bench.plane.simulated_kubelets import AGENT, PodRun


def a_request(actor: str, verb: str, resource: str, name: str = "pod", *, at: float) -> Request:
    return Request(actor, verb, resource, "default", name, 200, received=at, answered=at + 0.01)


def a_run(pod: str, late: float) -> PodRun:
    return PodRun(pod, "job", "cpu", 2.0, started=1.0, ended=3.0, late=late, outcome="Succeeded")


def statuses_of(pod: str) -> list[Request]:
    """Bound at 1.0 (answered 1.01), said to run at 1.31, and to have ended at 3.0."""
    return [
        a_request("kube-scheduler", "create", "pods/binding", pod, at=1.0),
        *(a_request(AGENT, "patch", "pods/status", pod, at=at) for at in (3.0, 1.31)),
    ]


def test_lateness_is_the_kubelets_own_and_what_the_server_took_stands_beside_it() -> None:
    found = lag(statuses_of("a"), [a_run("a", 0.004)])

    assert (found["lagP99Ms"], found["void"]) == (4.0, False)
    assert found["bindToRunningP99Ms"] == 300.0


def test_a_run_is_void_when_one_pod_of_a_hundred_is_late_and_sound_when_it_is_rarer() -> None:
    requests = [r for n in range(200) for r in statuses_of(str(n))]
    prompt = [a_run(str(n), 0.001) for n in range(198)]

    assert lag(requests, [*prompt, a_run("198", 0.2), a_run("199", 0.001)])["void"] is False
    assert lag(requests, [*prompt, *(a_run(str(n), 0.2) for n in (198, 199, 200))])["void"] is True


def test_a_run_without_pods_has_no_lateness() -> None:
    with pytest.raises(ValueError, match="no values"):
        lag([], [])


def test_writes_of_the_load_itself_are_left_out() -> None:
    requests = [
        a_request("bench", "create", "inferencejobs", at=1),
        a_request("inference-operator", "create", "pods", at=1),
        a_request("inference-operator", "patch", "inferencejobs/status", at=1),
        a_request("inference-operator", "create", "events", at=1),
    ]

    found = per_job(requests, 2, without=("bench",))

    assert found["writesPerJob"] == 1.0
    assert found["eventsPerJob"] == 0.5
    assert found["writesPerJobByActor"] == {"inference-operator": 1.0}

"""How late the player was, and whose writes they were."""

from bench.plane.audit import Request
from bench.plane.measure import lag, per_job
from bench.plane.player import AGENT, Life


def a_request(actor: str, verb: str, resource: str, name: str = "pod", *, at: float) -> Request:
    return Request(actor, verb, resource, "default", name, 200, received=at, answered=at + 0.01)


def a_life(seconds: float, *, outcome: str = "Succeeded") -> Life:
    return Life("pod", "job", "cpu", seconds, started=1.0, ended=1.0 + seconds, outcome=outcome)


def played(*, running: float, ended: float) -> list[Request]:
    """Bound at 1.0 (answered 1.01), then patched twice."""
    return [
        a_request("kube-scheduler", "create", "pods/binding", at=1.0),
        a_request(AGENT, "patch", "pods/status", at=running),
        a_request(AGENT, "patch", "pods/status", at=ended),
    ]


def test_a_prompt_player_is_not_late() -> None:
    found = lag(played(running=1.02, ended=3.025), [a_life(2.0)])

    assert found.p99 < 0.011
    assert not found.void


def test_late_to_start_or_late_to_end_makes_a_run_void() -> None:
    assert lag(played(running=1.2, ended=3.2), [a_life(2.0)]).void
    assert lag(played(running=1.02, ended=3.2), [a_life(2.0)]).void


def test_a_pod_that_was_stopped_ends_when_it_is_told_to() -> None:
    assert not lag(played(running=1.02, ended=9.0), [a_life(2.0, outcome="Drained")]).void


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

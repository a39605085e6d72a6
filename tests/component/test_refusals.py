"""Writes that the API server refuses, loses or delays: tried again where that helps, else told, and never in a hot loop."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.component.api_server import ApiServer, ConnectionCutError, RefusalError
from tests.component.kubelet import Kubelet
from tests.component.objects import a_batch, a_model, a_node, a_pod, a_server, condition, reason, succeeded
from tests.component.operators import Operator, Ward, until, until_status

if TYPE_CHECKING:
    from tests.component.api_server import Act, Call, Carry
    from tests.component.kinds import Raw

QUOTA = 'pods "job-1" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=4, limited: pods=4'
# More requests than any sane retry makes while one marker job is handled; a hot loop makes hundreds.
FEW = 12


def refuse(code: int, why: str, message: str = "", *, retry_after: int | None = None) -> Act:
    async def act(call: Call, carry: Carry) -> Raw:
        raise RefusalError(code, why, message or why, retry_after=retry_after)

    return act


async def lose_answer(call: Call, carry: Carry) -> Raw:
    """Carry out, and never say so."""
    carry()
    raise ConnectionCutError


@pytest.fixture
async def operator(server: ApiServer, ward: Ward) -> Operator:
    server.create(a_node())
    server.create(a_model())
    return await ward.lead(server)


@pytest.mark.parametrize(("code", "why"), [(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")])
async def test_a_status_write_that_fails_for_now_is_tried_again_and_written_once(
    server: ApiServer, operator: Operator, kubelet: Kubelet, code: int, why: str
) -> None:
    failing = server.script("PATCH", "/status$", refuse(code, why), times=2)

    server.create(a_batch(model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "job")) == "ModelUnknown", "the status")
    await _marker(server)

    assert failing.used == 2
    assert _statuses(server, "job") == [code, code, 200]


async def test_a_retry_waits_as_long_as_the_server_asks(server: ApiServer, operator: Operator) -> None:
    server.script("PATCH", "/status$", refuse(429, "TooManyRequests", retry_after=2), times=1)

    server.create(a_batch(model="unknown"))
    await until(lambda: len(server.calls("PATCH", "/job/status$")) == 2, "the second try")

    first, second = (c.time for c in server.calls("PATCH", "/job/status$"))
    assert second - first >= 1.95


async def test_a_status_write_whose_answer_is_lost_is_not_a_second_change(
    server: ApiServer, operator: Operator, kubelet: Kubelet
) -> None:
    server.script("PATCH", "/status$", lose_answer, times=1)

    server.create(a_batch())
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert len(kubelet.seen) == 1


async def test_a_storm_of_conflicts_passes(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    storm = server.script("PATCH", "/job/status$", refuse(409, "Conflict"), times=3)

    server.create(a_batch())
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert storm.used == 3
    assert len(kubelet.seen) == 1
    assert len(server.writes_for_jobs()) <= 4 + storm.used
    # That it can be used, that a job uses it, and how fast it was.
    assert len(server.writes_about_models()) <= 3


async def test_one_write_that_hangs_holds_no_other_job_up(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    async def hang(call: Call, carry: Carry) -> Raw:
        await until(lambda: succeeded(server.get("inferencejobs", "other")), "the other's success")
        return carry()

    server.script("PATCH", "/job/status$", hang)
    server.create(a_batch())
    await kubelet.worker("job")

    server.create(a_batch("other"))
    await kubelet.play("other")

    await until(lambda: reason(server.get("inferencejobs", "job")) == "Starting", "the slow one")


@pytest.mark.parametrize("lost", [lose_answer, refuse(500, "InternalError")], ids=["answer lost", "500"])
async def test_a_pod_whose_creation_fails_is_made_once(server: ApiServer, operator: Operator, kubelet: Kubelet, lost: Act) -> None:
    server.script("POST", "/pods$", lost, times=1)

    server.create(a_batch())
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert len(kubelet.seen) == 1
    assert server.get("inferencejobs", "job")["status"]["attempts"] == 1


async def test_our_own_pod_from_before_a_restart_is_taken_over_and_no_second_is_made(
    server: ApiServer, ward: Ward, operator: Operator, kubelet: Kubelet
) -> None:
    server.script_when(lambda c: c.method == "PATCH" and c.who == "operator", refuse(500, "InternalError"))
    server.create(a_batch())
    await kubelet.worker("job")
    operator.kill()
    server.delete("leases", "inference-operator", "operator-system")

    # The new one learns of the pod from AlreadyExists alone: lists of pods come back empty, and no event tells of it.
    server.script_when(lambda c: c.method == "GET" and c.path == "/api/v1/pods" and not c.is_watch, _without_items)
    ward.start(server.url, who="successor")
    await until(lambda: [c for c in server.calls("POST", "/pods$") if c.status == 409], "AlreadyExists")
    # A list after the pod has changed would hide that, too: from here on events tell of it.
    await until(lambda: any(c.is_watch and c.who == "successor" and c.path == "/api/v1/pods" for c in server.journal), "the watch")
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert len(kubelet.seen) == 1
    assert server.get("inferencejobs", "job")["status"]["attempts"] == 1


@pytest.mark.parametrize(
    "then", [refuse(404, "NotFound"), refuse(500, "InternalError")], ids=["there is no such pod", "the look at it fails"]
)
async def test_a_conflict_that_is_nobodys_pod_is_tried_again_soon(
    server: ApiServer, operator: Operator, kubelet: Kubelet, then: Act
) -> None:
    # The quota controller answers 409 too, when two creations meet: "the object has been modified".
    server.script("POST", "/pods$", refuse(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "compute"'), times=1)
    server.script("GET", "/pods/", then, times=1)

    server.create(a_batch())

    await until(lambda: kubelet.seen, "the pod")


async def test_a_foreign_pod_in_the_way_is_told_and_the_job_goes_on_when_it_is_gone(
    server: ApiServer, operator: Operator, kubelet: Kubelet
) -> None:
    _take_names(server)
    server.create(a_batch())
    await until(lambda: condition(server.get("inferencejobs", "job"), "Placed"), "the condition")

    said = condition(server.get("inferencejobs", "job"), "Placed")
    assert said is not None and (said["status"], said["reason"]) == ("False", "NameTaken")
    assert "somebody else" in said["message"] and "delete it or rename the job" in said["message"]
    server.scripts.clear()
    server.delete("pods", _taken(server))
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


async def test_an_exceeded_quota_is_told_tried_again_ever_more_rarely_and_got_over(
    server: ApiServer, operator: Operator, kubelet: Kubelet
) -> None:
    full = server.script("POST", "/pods$", refuse(403, "Forbidden", QUOTA))
    server.create(a_batch())
    await until(lambda: full.used >= 5, "five tries")

    said = condition(server.get("inferencejobs", "job"), "Placed")
    assert said is not None and (said["status"], said["reason"]) == ("False", "QuotaExceeded")
    assert "exceeded quota: compute" in said["message"]
    assert len(_statuses(server, "job")) == 1, "the same refusal again is no news"
    times = [c.time for c in server.calls("POST", "/pods$")]
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert all(wait >= 0.05 * 2**n for n, wait in enumerate(waits)), waits

    server.scripts.clear()
    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


INVALID = 'Pod "job-1" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'


async def test_an_invalid_pod_stalls_its_job_and_is_tried_again_when_the_spec_changes(
    server: ApiServer, operator: Operator, kubelet: Kubelet
) -> None:
    invalid = server.script("POST", "/pods$", refuse(422, "Invalid", INVALID))
    server.create(a_batch())
    await until(lambda: condition(server.get("inferencejobs", "job"), "Stalled"), "the condition")

    said = condition(server.get("inferencejobs", "job"), "Stalled")
    assert said is not None and (said["status"], said["reason"]) == ("True", "PodInvalid")
    assert said["message"].startswith(INVALID)
    await _marker(server)
    assert invalid.used == 1, "the same pod would be refused again"

    server.scripts.clear()
    server.update("inferencejobs", "job", lambda o: o["spec"].update(resources={"requests": {"cpu": "1"}}))
    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


@pytest.mark.parametrize("why", ["quota", "foreign"])
async def test_a_refused_service_makes_no_hot_loop(server: ApiServer, operator: Operator, why: str) -> None:
    if why == "quota":
        server.script("POST", "/services$", refuse(403, "Forbidden", "exceeded quota: compute, requested: services=1"))
    else:
        server.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "job"}, "spec": {}})

    server.create(a_server())
    await until(lambda: server.calls("POST", "/services$"), "the try")
    await _marker(server)

    assert len(server.calls("POST", "/services$")) <= FEW
    assert reason(server.get("inferencejobs", "job")) == {"quota": "QuotaExceeded", "foreign": "NameTaken"}[why]


async def test_a_job_that_is_gone_unseen_makes_no_hot_loop(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    server.create(a_batch())
    pod = await kubelet.worker("job")
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Starting", "the start")
    server.script("PATCH", "/job/status$", refuse(404, "NotFound"))

    kubelet.run(pod)
    await until(lambda: 404 in _statuses(server, "job"), "the write")
    await _marker(server)

    assert _statuses(server, "job").count(404) <= FEW


@pytest.mark.parametrize("lag", ["hold", "drop_events"])
async def test_a_pod_whose_deletion_is_not_seen_yet_is_not_deleted_over_and_over(
    server: ApiServer, operator: Operator, kubelet: Kubelet, lag: str
) -> None:
    server.create(a_server())
    pod = await kubelet.worker("job")
    kubelet.run(pod)
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Serving", "the service")

    getattr(server, lag)("pods")
    server.update("inferencejobs", "job", lambda o: o["spec"].update(suspend=True))
    await until(lambda: server.calls("DELETE", "/pods/"), "the deletion")
    await _marker(server)

    assert len(server.calls("DELETE", "/pods/")) <= FEW


async def test_a_job_whose_time_is_up_is_deleted_once(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    server.create(a_batch(ttlSecondsAfterFinished=0))
    await kubelet.worker("job")
    server.drop_events("inferencejobs")
    await kubelet.play("job", patient=False)
    await until(lambda: server.calls("DELETE", "/inferencejobs/"), "the deletion")
    server.drop_events("inferencejobs", drops=False)
    await _marker(server)

    assert len(server.calls("DELETE", "/inferencejobs/")) <= FEW


async def test_a_status_meant_for_a_job_never_reaches_its_successor_of_the_same_name(
    server: ApiServer, operator: Operator, kubelet: Kubelet
) -> None:
    server.create(a_batch())
    pod = await kubelet.worker("job")
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Starting", "the start")
    writes = len(server.calls("PATCH", "/job/status$"))

    # Deleted and made anew while the operator still looks at the first, whose worker ends just now.
    server.hold("inferencejobs")
    server.delete("inferencejobs", "job", orphan=True)
    server.create(a_batch())
    kubelet.end(pod)
    await until(lambda: [c for c in server.calls("PATCH", "/job/status$")[writes:] if c.status], "the write")

    assert "status" not in server.get("inferencejobs", "job"), "the second counts as succeeded, and will never run"
    kubelet.die(pod)
    server.release("inferencejobs")
    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the second's success")
    assert len({uid for uid, _, _ in kubelet.seen}) == 2
    assert _statuses(server, "job").count(409) <= FEW


async def test_an_event_that_is_refused_holds_nothing_up(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    server.script("POST", "/events$", refuse(403, "Forbidden", "namespace is being terminated"))
    server.create(a_batch(input={"data": '{"x": 1}'}, backend="triton"))

    await until(lambda: reason(server.get("inferencejobs", "job"), "Stalled"), "the refusal")
    await _marker(server)

    assert len(server.calls("POST", "/events$")) == 1


def _statuses(server: ApiServer, job: str) -> list[int | None]:
    """The answers to status writes, in order."""
    return [c.status for c in server.calls("PATCH", f"/{job}/status$")]


async def _marker(server: ApiServer) -> None:
    """See another job through: what a hot loop would do meanwhile is plenty."""
    for number in range(10):
        server.create(a_batch(f"marker-{number}", model="unknown"))
        await until_status(reason, server, f"marker-{number}")


def _take_names(server: ApiServer) -> None:
    """Whatever pod the operator wants to make, somebody else has just made one of that name."""

    async def act(call: Call, carry: Carry) -> Raw:
        name = call.body["metadata"]["name"]
        if not server.has("pods", name):
            server.create(a_pod(name))
        return carry()

    server.script("POST", "/pods$", act)


def _taken(server: ApiServer) -> str:
    return next(p["metadata"]["name"] for p in server.all("pods"))


async def _without_items(call: Call, carry: Carry) -> Raw:
    return {**carry(), "items": []}

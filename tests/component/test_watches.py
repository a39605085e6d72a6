"""What the operator sees: lists in pages, streams that break, events that are late, lost, old or twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.component.api_server import ApiServer, RefusalError
from tests.component.kubelet import SUCCESS, Kubelet
from tests.component.objects import a_batch, a_model, a_node, a_pod, a_server, condition, reason, succeeded
from tests.component.operators import Operator, Ward, until

if TYPE_CHECKING:
    from tests.component.api_server import Call, Carry
    from tests.component.kinds import Raw

OFTEN = {"resyncSeconds": 0.2}


async def test_the_first_sync_takes_in_every_page(server: ApiServer, ward: Ward) -> None:
    for number in range(1200):
        server.create(a_batch(f"job-{number:04}", model="unknown"))

    operator = ward.start(server.url)

    await operator.says("synced: 1200 jobs")
    pages = [c for c in server.calls("GET", "/inferencejobs$") if c.query.get("limit") == "500"]
    assert sum("continue" in c.query for c in pages) >= 2
    await until(lambda: len(server.calls("PATCH", "/status$")) == 1200, "a status of each", seconds=300)
    assert all(reason(job) == "ModelUnknown" for job in server.all("inferencejobs"))


async def test_a_page_token_that_expires_starts_the_first_list_anew(server: ApiServer, ward: Ward) -> None:
    for number in range(600):
        server.create(a_batch(f"job-{number:04}", model="unknown"))
    gone = server.script_when(lambda c: "continue" in c.query, _refuse(410, "Expired"), times=1)

    operator = ward.start(server.url)
    await until(lambda: gone.used, "the expired token")
    await until(lambda: "the first list is tried again" in operator.log or operator.code is not None, "a consequence")
    if operator.code is not None:
        # kopf met it: the process ends (docs/adr/0001) and the kubelet starts it again.
        operator = ward.start(server.url)

    await operator.says("synced: 600 jobs")


@pytest.mark.parametrize("abrupt", [True, False], ids=["by a reset", "by the server's timeout"])
async def test_a_watch_that_ends_is_taken_up_where_it_was(server: ApiServer, ward: Ward, kubelet: Kubelet, *, abrupt: bool) -> None:
    await _started(server, ward)
    # The operator's, kopf's, and the operator's after that.
    await until(lambda: _lists(server, "inferencejobs") == 3, "the first lists")
    watches = _watches(server)

    server.cut("inferencejobs", abrupt=abrupt)
    server.cut("pods", abrupt=abrupt)
    server.create(a_batch())
    await until(lambda: _watches(server) >= watches + 2, "the new watches")
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert _lists(server, "inferencejobs") == 3, "a cut costs no new list"


async def test_after_a_410_the_view_is_complete_again(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _started(server, ward)

    server.drop_events("inferencejobs")
    server.create(a_batch())
    server.drop_events("inferencejobs", drops=False)
    server.inject("inferencejobs", {"type": "ERROR", "object": RefusalError(410, "Expired", "too old").status()})

    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


@pytest.mark.parametrize("when", ["between the first list and kopf's", "before a list that kopf begins anew"])
async def test_a_pod_that_went_unseen_holds_no_room_for_long(server: ApiServer, ward: Ward, kubelet: Kubelet, when: str) -> None:
    """It was known until the next resync, which is minutes later: as a worker it was in EndpointSlices, and had no successor."""
    server.create(a_node(cpu="1"))
    server.create(a_model())
    server.create(a_pod("stranger", cpu="1"))
    if when == "between the first list and kopf's":
        seen = []

        def second(call: Call) -> bool:
            seen.extend([call] if call.path.endswith("/pods") and not call.is_watch else [])
            return len(seen) == 2

        async def go_before(_: Call, carry: Carry) -> Raw:
            server.delete("pods", "stranger")
            return carry()

        server.script_when(second, go_before, times=1)
        await ward.lead(server)
    else:
        await ward.lead(server)
        await until(lambda: _lists(server, "pods") == 3, "the first lists")
        server.drop_events("pods")
        server.delete("pods", "stranger")
        server.create(a_pod("another", cpu="0.1", node="elsewhere"))
        server.drop_events("pods", drops=False)
        server.inject("pods", {"type": "ERROR", "object": RefusalError(410, "Expired", "too old").status()})
    server.create(a_batch())

    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


@pytest.mark.parametrize("stale", ["pod", "worker", "job"])
async def test_what_was_deleted_unseen_holds_no_room_after_a_resync(
    server: ApiServer, ward: Ward, kubelet: Kubelet, stale: str
) -> None:
    server.create(a_node(cpu="1"))
    server.create(a_model())
    if stale == "pod":
        server.create(a_pod("stranger", cpu="1"))
    else:
        server.create(a_server("first", resources={"requests": {"cpu": "1"}}))
    await ward.lead(server, settings=OFTEN)
    if stale != "pod":
        await kubelet.worker("first")
        await until(lambda: reason(server.get("inferencejobs", "first")) == "Starting", "the first")
    server.create(a_batch("second"))
    await until(lambda: reason(server.get("inferencejobs", "second")) == "NoFreeCapacity", "that the second waits")

    for plural in ("pods", "inferencejobs", "services"):
        server.drop_events(plural)
    match stale:
        case "pod":
            server.delete("pods", "stranger")
        case "worker":
            server.update("inferencejobs", "first", lambda o: o["spec"].update(suspend=True))
            kubelet.die(kubelet.pods_of("first")[0])
        case "job":
            server.delete("inferencejobs", "first")
    for plural in ("pods", "inferencejobs", "services"):
        server.drop_events(plural, drops=False)
        server.inject(plural, {"type": "ERROR", "object": RefusalError(410, "Expired", "too old").status()})

    await kubelet.play("second")
    await until(lambda: succeeded(server.get("inferencejobs", "second")), "the second's success")


async def test_a_node_that_was_deleted_unseen_gets_no_work_after_a_resync(server: ApiServer, ward: Ward) -> None:
    server.create(a_node())
    operator = await _started(server, ward, settings=OFTEN)

    server.drop_events("nodes")
    server.delete("nodes", "node-1")
    server.drop_events("nodes", drops=False)
    server.inject("nodes", {"type": "ERROR", "object": RefusalError(410, "Expired", "too old").status()})
    await _resyncs(server, 3)
    server.create(a_batch())

    await until(lambda: reason(server.get("inferencejobs", "job")), "an answer")
    assert reason(server.get("inferencejobs", "job")) == "NoNodeFits", operator.log
    assert not server.all("pods")


async def test_a_model_that_was_replaced_unseen_is_known_after_a_resync(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _started(server, ward, settings=OFTEN)
    server.create(a_server())
    pod = await kubelet.worker("job")
    kubelet.run(pod)
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Serving", "the service")

    server.hold("inferencemodels")
    server.delete("inferencemodels", "digits")
    server.create(a_model())
    await _resyncs(server, 3)

    written = [c.body["status"]["reason"] for c in server.calls("PATCH", "/job/status$")]
    assert "ModelUnknown" not in written
    assert not server.calls("DELETE", "/pods/")


async def test_a_lost_event_about_a_worker_is_made_good_by_a_resync(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _started(server, ward, settings=OFTEN)
    server.create(a_batch())
    pod = await kubelet.worker("job")
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Starting", "the start")

    server.drop_events("pods")
    kubelet.end(pod, SUCCESS)
    server.drop_events("pods", drops=False)

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


async def test_a_404_that_was_wrong_is_made_good_by_a_resync(server: ApiServer, ward: Ward) -> None:
    await _started(server, ward, settings=OFTEN)
    # As a proxy in between, or an API server that does not know its CRDs yet, may say it.
    wrong = server.script("PATCH", "/job/status$", _refuse(404, "NotFound"), times=1)

    server.create(a_batch(model="unknown"))
    await until(lambda: wrong.used, "the wrong answer")
    await _resyncs(server, 3)

    await until(lambda: reason(server.get("inferencejobs", "job")) == "ModelUnknown", "a status")


async def test_an_old_event_about_a_job_brings_no_second_pod_and_no_write(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _started(server, ward)
    first = server.create(a_batch())
    await kubelet.worker("job")
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Starting", "the start")
    writes = len(server.writes())

    for _ in range(3):
        server.inject("inferencejobs", {"type": "MODIFIED", "object": first})
    # What comes after the old events on the same stream shows that they were taken in.
    server.create(a_batch("marker", model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "marker")), "the marker")

    assert len(server.writes()) == writes + 1
    assert len(kubelet.seen) == 1


async def test_an_old_event_about_a_worker_does_not_turn_the_view_back(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _started(server, ward)
    server.create(a_batch())
    pod = await kubelet.worker("job")
    kubelet.end(pod, SUCCESS)
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    writes = len(server.writes())

    server.inject("pods", {"type": "MODIFIED", "object": pod})
    server.create(a_pod("marker", cpu="100"))
    server.create(a_batch("marker", model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "marker")), "the marker")

    assert len(server.writes()) == writes + 1


async def test_while_streams_lag_far_behind_no_attempt_is_started_twice(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _started(server, ward, settings=OFTEN)
    for plural in ("pods", "inferencejobs"):
        server.hold(plural)
    server.create(a_batch())

    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    for plural in ("pods", "inferencejobs"):
        server.release(plural)
    server.create(a_batch("marker", model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "marker")), "the marker")

    assert len(kubelet.seen) == 1
    assert succeeded(server.get("inferencejobs", "job"))


async def test_a_list_that_is_slow_to_arrive_does_not_turn_a_newer_event_about_a_node_back(server: ApiServer, ward: Ward) -> None:
    await _started(server, ward, settings=OFTEN)
    slow = _Slow()
    server.script_when(lambda c: c.method == "GET" and c.path == "/api/v1/nodes" and not c.is_watch, slow.answer, times=1)
    await until(lambda: slow.holds, "a list under way")
    server.update("nodes", "node-1", lambda o: o["spec"].update(unschedulable=True))
    server.create(a_batch())
    await until(
        lambda: "were unschedulable" in str(condition(server.get("inferencejobs", "job"), "Placed")), "that the operator saw it"
    )

    slow.open = True
    await _resyncs(server, 3)

    assert not server.all("pods"), "a pod was placed on a cordoned node"


async def test_an_object_that_cannot_be_read_hides_no_other(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    odd = a_pod("odd", cpu="banana")
    null = a_pod("null")
    null["status"] = {"phase": "Running", "conditions": None, "containerStatuses": None}
    for obj in (odd, null, {**a_batch("no-spec"), "spec": {"model": 7, "deadline": "tomorrow"}}, a_batch()):
        server.create(obj)
    await _started(server, ward)

    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert reason(server.get("inferencejobs", "no-spec"), "Accepted") == "InvalidSpec"


class _Slow:
    """Answers with what was so when it was asked, once it may."""

    def __init__(self) -> None:
        self.holds = False
        self.open = False

    async def answer(self, call: Call, carry: Carry) -> Raw:
        body = carry()
        self.holds = True
        await until(lambda: self.open, "leave to answer")
        return body


def _refuse(code: int, why: str):
    async def act(call: Call, carry: Carry) -> Raw:
        raise RefusalError(code, why, why)

    return act


async def _started(server: ApiServer, ward: Ward, *, settings: dict | None = None) -> Operator:
    if not server.has("nodes", "node-1"):
        server.create(a_node())
    server.create(a_model())
    return await ward.lead(server, settings=settings)


def _lists(server: ApiServer, plural: str) -> int:
    """The lists of a kind, of one page each."""
    return sum(not call.is_watch for call in server.calls("GET", f"/{plural}$"))


def _watches(server: ApiServer) -> int:
    return sum(c.is_watch for c in server.journal)


async def _resyncs(server: ApiServer, rounds: int) -> None:
    """Wait until so many more whole resyncs are over."""
    before = len(server.calls("GET", "^/apis/inference.myorg/v1/inferencejobs$"))
    await until(
        lambda: len(server.calls("GET", "^/apis/inference.myorg/v1/inferencejobs$")) >= before + rounds, f"{rounds} resyncs"
    )

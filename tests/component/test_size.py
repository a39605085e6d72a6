"""Thousands of jobs that wait: each is told once, and after that nothing is written while nothing changes."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from tests.component.objects import a_batch, a_model, a_node, a_pod, reason
from tests.component.operators import Ward, until

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer

FAST = {"requestsPerSecond": 100_000, "burst": 100_000, "schedulingIntervalSeconds": 0.05}
EACH = 500
SOME = 200


async def test_two_thousand_jobs_that_wait_are_written_once_each(server: ApiServer, ward: Ward) -> None:
    _full_cluster(server)
    for number in range(EACH):
        server.create(a_batch(f"no-room-{number:03}"))
        server.create(a_batch(f"no-node-{number:03}", resources={"requests": {"cpu": "999"}}))
        server.create(a_batch(f"no-model-{number:03}", model="unknown"))
        server.create(a_batch(f"stopped-{number:03}", suspend=True))

    first = ward.start(server.url, settings={**FAST, "resyncSeconds": 1})
    await until(lambda: len(server.writes_for_jobs()) >= 4 * EACH, "a status of each", seconds=300)
    # Time goes by: heartbeats of the node, two whole resyncs, new streams.
    rounds = len(server.calls("GET", "/inferencejobs$"))
    beats = count()
    for _ in range(3):
        server.update("nodes", "node-1", lambda o: o["status"].update(heartbeat=next(beats)))
    for plural in ("nodes", "pods", "inferencejobs"):
        server.cut(plural, abrupt=False)
    await until(lambda: len(server.calls("GET", "/inferencejobs$")) >= rounds + 2 * 5, "two resyncs", seconds=300)

    first.kill()
    told = Counter(c.path for c in server.writes_for_jobs())
    assert len(told) == 4 * EACH
    assert set(told.values()) == {1}
    # However many jobs there are: it is told of the first at once, and of all of them once.
    assert len(server.writes_about_models()) <= 3
    reasons = Counter(_why(job) for job in server.all("inferencejobs"))
    assert reasons == dict.fromkeys(("NoFreeCapacity", "NoNodeFits", "ModelUnknown", "Suspended"), EACH)


async def test_a_new_operator_finds_nothing_to_say_about_jobs_that_wait(server: ApiServer, ward: Ward) -> None:
    await _waiting_for_room(server, ward)

    await _succession(server, ward)

    assert len(server.writes_for_jobs()) == SOME + 1


async def test_a_count_that_has_moved_in_a_message_is_no_news(server: ApiServer, ward: Ward) -> None:
    _full_cluster(server)
    for number in range(SOME):
        server.create(a_batch(f"no-room-{number:03}"))
    await ward.lead(server, settings=FAST)
    await until(lambda: len(server.writes_for_jobs()) >= SOME, "a status of each")

    # Half a core is wanted; now a tenth is free where nothing was. That alone wakes nobody, but a word about the model does.
    server.update("pods", "full", lambda o: o["spec"]["containers"][0]["resources"]["requests"].update(cpu="900m"))
    server.create(a_batch("marker"))
    await until(
        lambda: "Insufficient cpu (0.5 requested, 0.1 of 1 free)" in str(server.get("inferencejobs", "marker")), "that it was seen"
    )
    server.update("inferencemodels", "digits", lambda o: o["metadata"].update(labels={"touched": "yes"}))
    server.create(a_batch("last", model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "last")), "the last one")

    assert len(server.writes_for_jobs()) == SOME + 2


def _full_cluster(server: ApiServer) -> None:
    server.create(a_node(cpu="1"))
    server.create(a_pod("full", cpu="1"))
    server.create(a_model())


async def _waiting_for_room(server: ApiServer, ward: Ward) -> None:
    _full_cluster(server)
    for number in range(SOME):
        server.create(a_batch(f"no-room-{number:03}"))
    operator = ward.start(server.url, settings=FAST)
    await until(lambda: len(server.writes_for_jobs()) >= SOME, "a status of each")
    operator.kill()
    server.delete("leases", "inference-operator", "operator-system")


async def _succession(server: ApiServer, ward: Ward) -> None:
    """Start another operator, and wait until it has looked at every job: it takes keys in turn, and the marker came last."""
    await ward.lead(server, settings=FAST)
    server.create(a_batch("marker", model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "marker")), "the marker")


def _why(job: dict) -> str:
    return reason(job) or reason(job, "Suspended")

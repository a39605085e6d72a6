"""The process: how it starts, what ends it, and with which exit code."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from tests.component.api_server import ApiServer, RefusalError
from tests.component.objects import a_batch, a_model, a_node, reason, succeeded
from tests.component.operators import WATCHED, Ward, until

if TYPE_CHECKING:
    from tests.component.api_server import Call, Carry
    from tests.component.kinds import Raw
    from tests.component.kubelet import Kubelet


async def test_an_operator_without_api_server_waits_says_so_and_goes_on_when_it_comes(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    for obj in (a_node(), a_model(), a_batch()):
        server.create(obj)
    url = server.url
    await server.stop()
    operator = ward.start_process(url)
    await operator.says("the first list is tried again")

    await server.start()
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert operator.code is None


async def test_sigterm_while_leading_ends_the_process_with_code_zero(server: ApiServer, ward: Ward) -> None:
    operator = ward.start_process(server.url)
    await operator.says("leading as")

    operator.send(signal.SIGTERM)

    assert await operator.ended() == 0


async def test_sigterm_while_waiting_for_the_api_server_ends_the_process_with_code_zero(server: ApiServer, ward: Ward) -> None:
    url = server.url
    await server.stop()
    operator = ward.start(url)
    await operator.says("the first list is tried again")

    operator.send(signal.SIGTERM)

    assert await operator.ended() == 0


async def test_sigterm_stops_within_the_grace_that_kubernetes_gives_though_a_request_hangs(server: ApiServer, ward: Ward) -> None:
    for obj in (a_node(), a_model(), a_batch()):
        server.create(obj)
    hanging = server.script("POST", "/pods$", _never)
    operator = ward.start(server.url)
    await until(lambda: hanging.used, "the hanging request")

    operator.send(signal.SIGTERM)

    assert await operator.ended() == 0


async def test_an_operator_whose_watch_fails_for_good_ends_rather_than_hear_nothing(server: ApiServer, ward: Ward) -> None:
    first, second = (ward.start(server.url, who=who) for who in ("first", "second"))
    await until(lambda: all(server.streams(plural) == 2 for plural in WATCHED), "the watches of both")

    async def unauthorized(call: Call, carry: Carry) -> Raw:
        raise RefusalError(401, "Unauthorized", "Unauthorized")

    server.script_when(lambda c: c.is_watch and c.who == "second", unauthorized, times=1)
    unwell = RefusalError(500, "InternalError", "etcd is unwell").status()
    server.inject("inferencejobs", {"type": "ERROR", "object": unwell}, who="first")
    server.cut("inferencejobs", who="second")

    # Each takes kopf five seconds, so both at once.
    assert list(await asyncio.gather(first.ended(), second.ended())) == [1, 1]


async def test_an_operator_begins_anew_where_the_api_server_was_restored_from_a_backup(server: ApiServer, ward: Ward) -> None:
    server.create(a_node())
    operator = await ward.lead(server, settings={"resyncSeconds": 0.2})

    # What came after the backup is gone, with its versions; no watch tells of that.
    server.get("nodes", "node-1")["metadata"]["resourceVersion"] = "7"

    assert await operator.ended() == 1
    assert "older in the list" in operator.log


async def test_the_api_server_may_restart_under_a_running_operator(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    for obj in (a_node(), a_model()):
        server.create(obj)
    operator = await ward.lead(server)

    await server.stop()
    server.create(a_batch())
    await server.start()
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert operator.code is None


async def test_an_operator_that_was_there_before_the_crds_sees_jobs_made_after_them(server: ApiServer, ward: Ward) -> None:
    server.absent_groups.add("inference.myorg")
    operator = ward.start(server.url)
    await operator.says("are the CRDs and the RBAC rules installed?")

    server.absent_groups.clear()
    # Either it leads and watches, or it ended, and the kubelet starts it anew.
    await until(lambda: "leading as" in operator.log or operator.code is not None, "a healed operator")
    if operator.code is not None:
        ward.start(server.url)
    server.create(a_batch(model="unknown"))

    await until(lambda: reason(server.get("inferencejobs", "job")) == "ModelUnknown", "a status")


async def test_settings_that_make_no_sense_end_the_process_with_code_two(server: ApiServer, ward: Ward) -> None:
    operator = ward.start_process(server.url, settings={"workerz": 3})

    assert await operator.ended() == 2
    assert "workerz" in operator.log


async def _never(call: Call, carry: Carry) -> Raw:
    await until(lambda: False, "nothing", seconds=3600)
    return carry()

"""kill -9 at every write of a job's life: whatever the moment, the next operator finishes the work and starts nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.component.api_server import ApiServer, ConnectionCutError
from tests.component.kubelet import FAILURE, SUCCESS, Kubelet
from tests.component.objects import a_batch, a_model, a_node, a_server, reason, succeeded
from tests.component.operators import Ward, until, until_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.component.api_server import Call, Carry, Script
    from tests.component.kinds import Raw
    from tests.component.operators import Operator

# Fewer writes than these in a whole life would mean that the test no longer sees them.
_LEAST_WRITES = 6


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_batch_job_survives_a_kill_at_each_of_its_writes(ward: Ward, side: str) -> None:
    async def live(server: ApiServer, kubelet: Kubelet) -> None:
        server.create(a_batch())
        await kubelet.play("job", FAILURE, SUCCESS)
        await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")

    async for number, server, kubelet in _lives(ward, side, live):
        status = server.get("inferencejobs", "job")["status"]
        where = f"killed {side} write {number}"
        assert [attempt for _, attempt, _ in kubelet.seen] == ["1", "2"], where
        assert (status["attempts"], status["failedAttempts"]) == (2, 1), where
        assert status["lastAttempt"]["outcome"] == "Succeeded", where
        assert status["placement"]["pod"] == kubelet.seen[-1][2], where


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_serving_job_survives_a_kill_at_each_of_its_writes(ward: Ward, side: str) -> None:
    async def live(server: ApiServer, kubelet: Kubelet) -> None:
        server.create(a_server(replicas=2))
        for number in (1, 2):
            kubelet.run(await kubelet.worker("job", number))
        await until(lambda: reason(server.get("inferencejobs", "job")) == "Serving", "the service")

    async for number, server, kubelet in _lives(ward, side, live, least=4):
        where = f"killed {side} write {number}"
        assert [attempt for _, attempt, _ in kubelet.seen] == ["1", "2"], where
        assert len(server.all("services")) == 1, where
        assert server.get("inferencejobs", "job")["status"]["readyReplicas"] == 2, where


async def _lives(
    ward: Ward,
    side: str,
    live: Callable[[ApiServer, Kubelet], Awaitable[None]],
    *,
    least: int = _LEAST_WRITES,
) -> AsyncIterator[tuple[int, ApiServer, Kubelet]]:
    """One whole life for each write that there is: the operator is killed at it, and another one takes over."""
    for number in count(1):
        server = ApiServer()
        await server.start()
        kubelet = Kubelet(server)
        for obj in (a_node(), a_model()):
            server.create(obj)
        killer = _kill_at(server, ward.start(server.url), number, side, ward)
        await live(server, kubelet)
        await _rest(server)
        _no_name_twice(kubelet)
        yield number, server, kubelet
        ward.end()
        await server.stop()
        if not killer.used:
            assert number > least, f"only {number - 1} writes"
            return


def _kill_at(server: ApiServer, operator: Operator, number: int, side: str, ward: Ward) -> Script:
    """Kill the operator at its n-th write, let its Lease expire, and start another one."""

    async def act(call: Call, carry: Carry) -> Raw:
        if side == "after":
            carry()
        operator.kill()
        if server.has("leases", "inference-operator", "operator-system"):
            server.delete("leases", "inference-operator", "operator-system")
        ward.start(server.url, who="successor")
        raise ConnectionCutError

    def matches(call: Call) -> bool:
        # The call itself is in the journal already.
        return call.who == "operator" and call.is_write and "/leases" not in call.path and len(server.writes()) == number

    return server.script_when(matches, act, times=1)


async def _rest(server: ApiServer) -> None:
    """Wait until nobody writes any more: a whole marker job passes by without another write."""
    while True:
        before = len(server.writes())
        name = f"marker-{before}"
        server.create(a_batch(name, model="unknown"))
        await until_status(reason, server, name)
        await asyncio.sleep(0)
        if len(server.writes()) == before + 1:
            return


def _no_name_twice(kubelet: Kubelet) -> None:
    assert not [name for name, times in Counter(name for _, _, name in kubelet.seen).items() if times > 1]

"""A holder of the Lease whose process ends: a standby knows by its connections, and by nothing less."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inference_operator.api.names import ANNOTATION_HOLDER
from inference_operator.kube import holder as module
from inference_operator.kube.holder import Holder, HolderWatch
from inference_operator.kube.leaderelection import LONGEST_SECONDS, Leadership, Lease
from tests.clock import Clock
from tests.loopback import free_ports
from tests.unit.kube.test_leadership import LeaseServer


class Process:
    """What a leader is for its peers: a port, and connections that a kernel ends with it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.connected = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port)

    async def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connected.set()

    def hang_up(self) -> None:
        self.connected.clear()
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def end(self) -> None:
        if self._server is not None:
            self._server.close()
        self.hang_up()

    @property
    def holder(self) -> Holder:
        return Holder("first-1", "127.0.0.1", self.port)


@asynccontextmanager
async def a_process() -> AsyncIterator[Process]:
    process = Process(free_ports(1)[0])
    await process.start()
    try:
        yield process
    finally:
        process.end()


async def still(waits: Awaitable[object]) -> bool:
    """Whether it goes on waiting for a while."""
    task = asyncio.ensure_future(waits)
    done, _ = await asyncio.wait({task}, timeout=0.1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return not done


async def test_the_end_of_a_process_is_seen() -> None:
    async with a_process() as process:
        seen = asyncio.create_task(process.holder.ended())
        await process.connected.wait()
        process.end()

        assert await seen


async def test_a_process_that_ends_its_connections_before_its_port_is_seen_to_end() -> None:
    """The next connection was made, and ended too: the one after it was refused, which was taken for nothing."""
    async with a_process() as process:
        seen = asyncio.create_task(process.holder.ended())
        await process.connected.wait()
        process.hang_up()
        await process.connected.wait()
        process.end()

        assert await seen


async def test_a_server_that_hangs_up_and_listens_lives() -> None:
    async with a_process() as process:
        seen = asyncio.create_task(process.holder.ended())
        for _ in range(3):
            await process.connected.wait()
            process.hang_up()
        await process.connected.wait()

        assert await still(asyncio.shield(seen))
        seen.cancel()


async def test_of_one_who_was_never_heard_nothing_is_known() -> None:
    """A firewall may refuse connections in the name of a leader that lives."""
    nobody = Holder("first-1", "127.0.0.1", free_ports(1)[0])

    assert not await nobody.ended()
    assert await nobody.refuses()


async def test_silence_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that dies with its leader says nothing, and its Lease has to end."""

    async def silent(*_: object, **__: object) -> None:
        await asyncio.sleep(3600)

    async with a_process() as process:
        assert await still(process.holder.ended())
        monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.01)
        monkeypatch.setattr(asyncio, "open_connection", silent)
        assert (await process.holder.ended(), await process.holder.refuses()) == (False, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first-1",
        "second-1 10.0.0.1 8080",
        "first-1 10.0.0.1",
        "first-1 10.0.0.1 0",
        "first-1 h 99999",
        "first-1 h x",
        "first-1 a b 1",
    ],
)
def test_what_is_no_address_of_this_holder_is_none(text: str) -> None:
    """An operator of an older version leaves the address of the holder before it."""
    assert Holder.parse(text, "first-1") is None
    assert Holder.parse(str(Holder("first-1", "::1", 8080)), "first-1") == Holder("first-1", "::1", 8080)


def a_lease(server: LeaseServer, me: str, port: int | None) -> Lease:
    clock = Clock()
    return Lease(
        server,  # type: ignore[arg-type]
        clock,
        Leadership(clock.boottime),
        namespace="n",
        name="l",
        identity=me,
        seconds=LONGEST_SECONDS,
        listens=("127.0.0.1", port) if port is not None else None,
    )


async def standing_by(server: LeaseServer, process: Process) -> asyncio.Task[None]:
    """A standby whose clock stands, so that no Lease ends for it, connected to the leader."""
    second = asyncio.create_task(a_lease(server, "second-1", None).acquire())
    await process.connected.wait()
    return second


def holder_of(server: LeaseServer) -> str:
    assert server.lease is not None
    return str(server.lease["spec"]["holderIdentity"])


async def test_a_standby_takes_the_lease_of_a_process_that_has_ended() -> None:
    server = LeaseServer()
    async with a_process() as process:
        await a_lease(server, "first-1", process.port).acquire()
        second = await standing_by(server, process)
        assert not second.done()
        process.end()
        await second

    assert holder_of(server) == "second-1"
    assert server.lease is not None and server.lease["metadata"]["annotations"][ANNOTATION_HOLDER] == ""


async def during_the_next_read(server: LeaseServer, do: Callable[[], Any]) -> None:
    """Do it once, when the Lease has been read next."""
    plain, read = server.get, asyncio.Event()

    async def get(path: str) -> dict[str, Any]:
        found = await plain(path)
        server.get = plain  # type: ignore[method-assign]
        do()
        read.set()
        return found

    server.get = get  # type: ignore[method-assign]
    await read.wait()


async def test_a_process_that_was_restarted_since_its_end_was_seen_keeps_its_lease() -> None:
    """It has the name and the address of the one before."""
    watch = HolderWatch()
    async with a_process() as process:
        watch.follow(process.holder)
        await process.connected.wait()
        process.end()
        await watch.wait(60.0)
        assert await watch.has_ended()
        await process.start()

        assert not await watch.has_ended()
        watch.follow(process.holder)
        assert not await watch.has_ended()
        watch.stop()


async def test_a_process_that_was_restarted_and_leads_again_keeps_its_lease() -> None:
    """It has the name and the address of the one before. It writes the Lease after the standby has read it, or listens by then."""
    server = LeaseServer()
    async with a_process() as process:
        await a_lease(server, "first-1", process.port).acquire()
        second = await standing_by(server, process)
        process.end()
        await process.start()
        await process.connected.wait()
        assert await still(asyncio.shield(second))
        assert holder_of(server) == "first-1"

        def renewed() -> None:
            assert server.lease is not None
            server.lease = {**server.lease, "metadata": {**server.lease["metadata"], "resourceVersion": "another"}}

        process.end()
        await during_the_next_read(server, renewed)
        assert holder_of(server) == "first-1"
        second.cancel()

"""Large bodies of HTTP/1.1 are read straight to where they stay; what comes before, in between and behind is as ever."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.serve import http
from inference_worker.serve.connections import Connections
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http_large_body import LARGE_BYTES, LargeBody
from inference_worker.serve.http_messages import Request, Response
from tests.authority import Authority
from tests.process.wire import request
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.served import Served

if TYPE_CHECKING:
    from pathlib import Path

HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\n"


def pattern(size: int) -> bytes:
    """Bytes that tell where they belong."""
    return bytes(range(251)) * (size // 251 + 1)


def body_of(number: int, size: int) -> bytes:
    return pattern(size)[number : number + size]


SIZES = st.sampled_from([0, 1, 1000, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES])


@given(st.lists(SIZES, min_size=1, max_size=4), st.lists(st.integers(0, 4 * LARGE_BYTES), max_size=8))
@settings(STEADY, max_examples=60)
async def test_bodies_of_any_size_cut_anywhere_are_what_was_sent(sizes: list[int], cuts: list[int]) -> None:
    sent = [body_of(number, size) for number, size in enumerate(sizes)]
    raw = b"".join(request("POST", f"/{number}", body) for number, body in enumerate(sent))
    at = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    served = Served()

    replies = await served.answers(*(raw[begin:end] for begin, end in itertools.pairwise(at)))

    assert [reply.body for reply in replies] == [f"POST /{n} ".encode() + body for n, body in enumerate(sent)]
    assert served.transport.get_protocol() is served.protocol


async def test_a_large_body_is_read_by_another_until_it_is_whole() -> None:
    served = Served().feed(HEAD + b"Content-Length: 100000\r\n\r\n")
    assert isinstance(served.transport.get_protocol(), LargeBody) and served.connections.budget.taken >= 100_000

    (reply,) = await served.answers(bytes(99_999), b"x")

    assert reply.body == b"POST /a " + bytes(99_999) + b"x"
    assert served.transport.get_protocol() is served.protocol


async def test_a_caller_that_asks_first_is_told_to_send_its_large_body() -> None:
    served = Served()

    (interim,) = await served.answers(HEAD + b"Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n")
    replies = await served.answers(bytes(100_000) + request("GET", "/b"))

    assert [reply.status for reply in (interim, *replies)] == [100, 100, 200, 200]


async def test_a_caller_that_leaves_within_a_large_body_costs_nothing_more() -> None:
    served = Served().feed(HEAD + b"Content-Length: 100000\r\n\r\n", bytes(50_000))

    assert not served.transport.get_protocol().eof_received()  # type: ignore[attr-defined]
    served.transport.close()
    await served.settle()

    assert served.handled == [] and served.connections.budget.taken == 0 and not served.connections.open


async def test_a_large_body_that_stalls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALL_SECONDS", 0.01)
    served = Served().feed(HEAD + b"Content-Length: 100000\r\n\r\n", bytes(50_000))
    while not served.transport.closed:
        await asyncio.sleep(0.005)

    assert [reply.status for reply in served.replies] == [408]
    assert served.transport.get_protocol() is served.protocol and served.connections.budget.taken == 0


def echo(request: Request) -> None:
    request.reply(Response(HTTPStatus.OK, bytes(request.body), "application/octet-stream"))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_the_real_loop_hands_over_and_back(tmp_path: Path, *, secure: bool) -> None:
    """Sixteen callers at once, each with small and large bodies one behind the other, in pieces of any size."""
    server_side, client_side = contexts(tmp_path) if secure else (None, None)
    sizes = [1000, 200_000, 0, 3_000_000, 70_000, 65_536, 17] * 3

    async def call(port: int) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_side, server_hostname="x" if secure else None)

        async def send() -> None:
            raw = b"".join(request("POST", "/a", body_of(number, size)) for number, size in enumerate(sizes))
            for begin in range(0, len(raw), 333_333):
                writer.write(raw[begin : begin + 333_333])
                await writer.drain()

        sending = asyncio.create_task(send())
        answers = []
        for _ in sizes:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answers.append(await reader.readexactly(length))
        await sending
        writer.close()
        return answers

    async def both() -> list[list[bytes]]:
        connections = Connections()
        server = await asyncio.get_running_loop().create_server(
            lambda: HttpProtocol(echo, connections), "127.0.0.1", 0, ssl=server_side
        )
        async with server, asyncio.timeout(60):
            return await asyncio.gather(*(call(server.sockets[0].getsockname()[1]) for _ in range(16)))

    expected = [body_of(number, size) for number, size in enumerate(sizes)]
    assert all(answers == expected for answers in uvloop.run(both()))


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority()
    authority.server("x").put(folder)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return server, ssl.create_default_context(cadata=authority.pem)

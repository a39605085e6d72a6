"""A fault of the worker's own costs the request that met it: its caller is told, and all others are answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from inference_worker.frontends.arena import Reader, create
from inference_worker.frontends.link import Link
from inference_worker.frontends.messages import Answered, Asked, FromFrontend, FromWorker, Opened, Received, Reset
from inference_worker.frontends.remote import Remote
from inference_worker.serve.budget import Budget
from inference_worker.serve.http_messages import Request, Response

if TYPE_CHECKING:
    from inference_worker.serve.http2_stream import Stream

SIZE = 1 << 16


def fails(request: Request) -> None:
    if request.path == "/bad":
        raise KeyError("nobody thought of it")
    request.reply(Response(200))  # type: ignore[arg-type]


class Refuses:
    def data(self, chunk: object) -> None:
        raise KeyError("nobody thought of it")


def opens(stream: Stream) -> None:
    if stream.headers[":path"] == "/bad":
        raise KeyError("nobody thought of it")
    stream.receiver = Refuses()  # type: ignore[assignment]


async def test_a_request_on_which_the_worker_fails_is_answered_and_so_are_the_next() -> None:
    remote = Remote(Reader(create(SIZE)), Budget(SIZE), fails, opens)
    link: Link[FromWorker, FromFrontend] = Link(msgspec.msgpack.Decoder(list[FromFrontend]), remote.take, lambda: None)
    remote.link = link
    asked: list[FromFrontend] = [Asked(n, "GET", path, {}, b"", 0.0, 0.0) for n, path in enumerate(("/bad", "/good"))]
    asked += [Opened(2, {":path": "/bad"}, 0.0), Opened(3, {":path": "/good"}, 0.0), Received(3, b"x")]
    piece = msgspec.msgpack.encode(asked)

    link.data_received(len(piece).to_bytes(8, "big") + piece)
    told = list(link.told)
    await asyncio.sleep(0)

    assert [(one.id, int(one.status)) for one in told if isinstance(one, Answered)] == [(0, 500), (1, 200)]
    assert [one.id for one in told if isinstance(one, Reset)] == [2, 3]


async def test_a_message_that_can_not_be_taken_holds_up_no_other() -> None:
    taken: list[int] = []

    def take(message: FromFrontend) -> None:
        assert isinstance(message, Opened)
        if message.id == 1:
            raise KeyError("nobody thought of it")
        taken.append(message.id)

    link: Link[FromWorker, FromFrontend] = Link(msgspec.msgpack.Decoder(list[FromFrontend]), take, lambda: None)
    piece = msgspec.msgpack.encode([Opened(n, {}, 0.0) for n in range(40)])
    link.data_received(len(piece).to_bytes(8, "big") + piece)
    for _ in range(5):
        await asyncio.sleep(0)

    assert taken == [0, *range(2, 40)]

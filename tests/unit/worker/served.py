"""One HTTP connection without a network: bytes go in as they are cut, answers come out to be read."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from inference_worker.serve.connections import Connections
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http_messages import Request, Response
from tests.process.wire import Reply
from tests.transports import ReadTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class FakeTransport(ReadTransport):
    """Keeps what is written and whether reading is paused; closes as a real one does, a moment later."""

    def __init__(self, protocol: HttpProtocol) -> None:
        super().__init__(protocol)
        self.written = b""
        self.closed = False
        self.paused = False
        self.pauses = 0

    def can_write_eof(self) -> bool:
        """As over TLS: what is refused is closed at once."""
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after the close"
        self.written += bytes(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(cast(asyncio.Protocol, self.protocol).connection_lost, None)

    def abort(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        self.paused = False


class Gate:
    """Holds requests back until it is set; they are answered then, the last first."""

    def __init__(self) -> None:
        self.held: list[Request] = []

    def set(self) -> None:
        while self.held:
            echo(self.held.pop())


def echo(request: Request) -> None:
    body = f"{request.method} {request.path} ".encode() + request.body
    request.reply(Response(HTTPStatus.OK, body, "text/plain"))


class Served:
    """A connection to a handler that echoes, waits at its gate, or fails, by the path."""

    def __init__(self, handler: Callable[[Request], None] | None = None) -> None:
        self.gate = Gate()
        self.handled: list[Request] = []
        self.cancelled: list[str] = []
        self.connections = Connections()
        self.protocol = HttpProtocol(handler or self._handle, self.connections)
        self.transport = FakeTransport(self.protocol)
        self.protocol.connection_made(self.transport)

    def _handle(self, request: Request) -> None:
        self.handled.append(request)
        if request.path == "/fail":
            raise KeyError("a bug of ours")
        if request.path == "/wait":
            self.gate.held.append(request)
            request.on_abandoned = lambda: self.cancelled.append(request.path)
        else:
            echo(request)

    def feed(self, *parts: bytes) -> Served:
        for part in parts:
            if not self.transport.closed:
                self.transport.deliver(part)
        return self

    async def settle(self) -> Served:
        """Let everything run that does not wait for the gate or a timer."""
        for _ in range(120):
            await asyncio.sleep(0)
        return self

    async def answers(self, *parts: bytes) -> list[Reply]:
        self.feed(*parts)
        await self.settle()
        return self.replies

    @property
    def replies(self) -> list[Reply]:
        return list(_split(self.transport.written))


def _split(raw: bytes) -> list[Reply]:
    replies = []
    while raw:
        head, found, raw = raw.partition(b"\r\n\r\n")
        assert found, head
        first, *lines = head.decode("latin-1").split("\r\n")
        assert first.startswith("HTTP/1.1 "), first
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        size = 0 if status < 200 else int(headers["content-length"])
        replies.append(Reply(status, headers, raw[:size]))
        raw = raw[size:]
    return replies

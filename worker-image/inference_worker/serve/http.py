"""A small HTTP/1.1 server on httptools: one protocol object a connection, requests answered in order.

It is our own because the frameworks cost three to ten times the CPU of the parser and the handler together on small tensors
(figures in docs/). Limits come first: a body over the limit is refused before it is buffered, a body that stalls is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import httptools
import orjson

BODY_LIMIT_BYTES = 64 << 20
HEADER_LIMIT_BYTES = 64 << 10
STALL_SECONDS = 30.0
_PIPELINE_LIMIT = 32


@dataclass(slots=True)
class Request:
    """One request, whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. The body is sent as it is."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = field(default=())


Handler = Callable[[Request], Awaitable[Response]]


class HttpProtocol(asyncio.Protocol):
    """Parses a connection's bytes into requests and writes the handler's answers in the same order."""

    def __init__(self, handler: Handler, connections: set["HttpProtocol"]) -> None:
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._closing = False
        self._reset()

    def _reset(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        # uvloop's transports do not derive from asyncio's, so only the type checker can be told.
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The caller is gone: nobody waits for what is queued or running for it."""
        self._connections.discard(self)
        self._transport = None
        self._queue.clear()
        self._clear_stall()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a request that breaks HTTP or a limit ends the connection with an answer that says so."""
        if self._closing:
            return
        self._arm_stall()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, "protocol upgrades are not supported")
        except _LimitError as limit:
            self._refuse(limit.status, limit.message)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _LimitError):
                self._refuse(cause.status, cause.message)
            else:
                self._refuse(HTTPStatus.BAD_REQUEST, f"malformed request: {error}")

    # httptools callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        self._reset()

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self._path += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count_header(len(name) + len(value))
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Refuse by the announced length, before anything is buffered."""
        length = self._headers.get("content-length")
        if length is not None and int(length) > BODY_LIMIT_BYTES:
            raise _LimitError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body's limit is {BODY_LIMIT_BYTES} bytes")
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_LIMIT_BYTES:
            raise _LimitError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body's limit is {BODY_LIMIT_BYTES} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is whole: queue it, and stop reading when the caller pipelines more than is sensible."""
        self._clear_stall()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = self._parser.get_method().decode()
        path = self._path.decode("latin-1").partition("?")[0]
        self._queue.append(Request(method, path, self._headers, body, self._parser.should_keep_alive()))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve())
        if len(self._queue) >= _PIPELINE_LIMIT and self._transport is not None:
            self._transport.pause_reading()

    # answering

    async def _serve(self) -> None:
        try:
            while self._queue:
                request = self._queue.popleft()
                response = await self._handler(request)
                last = self._closing and not self._queue
                self._write(response, keep_alive=request.keep_alive and not last)
                if self._transport is not None and not self._closing:
                    self._transport.resume_reading()
        finally:
            self._task = None
        if self._closing and self._transport is not None:
            self._transport.close()

    def _write(self, response: Response, *, keep_alive: bool) -> None:
        if self._transport is None:
            return
        head = [
            f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n",
            f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n",
            *(f"{name}: {value}\r\n" for name, value in response.headers),
            "\r\n" if keep_alive else "Connection: close\r\n\r\n",
        ]
        self._transport.write("".join(head).encode("latin-1") + response.body)
        if not keep_alive:
            self._closing = True
            self._transport.close()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._clear_stall()
        self._queue.clear()
        self._write(Response(status, error_body(message)), keep_alive=False)

    def shut(self) -> None:
        """Answer what was received, then close: used while draining."""
        self._closing = True
        if self._task is None and self._transport is not None:
            self._transport.close()

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_LIMIT_BYTES:
            raise _LimitError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers are limited to {HEADER_LIMIT_BYTES} bytes")

    def _arm_stall(self) -> None:
        if self._stall is None:
            loop = asyncio.get_running_loop()
            self._stall = loop.call_later(STALL_SECONDS, self._stalled)

    def _clear_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _stalled(self) -> None:
        self._stall = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the request was not whole within {STALL_SECONDS:.0f} s")


class _LimitError(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def error_body(message: str) -> bytes:
    """The protocol's error object."""
    return orjson.dumps({"error": message})

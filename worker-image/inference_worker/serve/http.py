"""A small HTTP/1.1 server on httptools: one protocol object a connection, requests answered in order.

It is our own because the frameworks cost three to ten times the CPU of the parser and the handler together on small tensors
(figures in docs/). Limits come first: a body over the limit is refused before it is buffered, a body that stalls is dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import httptools
import orjson

log = logging.getLogger(__name__)

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
    version: str = "1.1"


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. The body is sent as it is."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = field(default=())


Handler = Callable[[Request], Awaitable[Response]]


class Connections:
    """All open connections. While draining, each is closed after its next answer, and says so to its caller."""

    def __init__(self) -> None:
        self.open: set[HttpProtocol] = set()
        self.draining = False
        self._none = asyncio.Event()
        self._none.set()

    def add(self, connection: "HttpProtocol") -> None:
        """A connection is there."""
        self.open.add(connection)
        self._none.clear()

    def discard(self, connection: "HttpProtocol") -> None:
        """A connection is gone."""
        self.open.discard(connection)
        if not self.open:
            self._none.set()

    async def drained(self, seconds: float) -> int:
        """Close idle connections, let the others have their answers, and count those that did not get them in time."""
        for connection in list(self.open):
            connection.close_when_idle()
        try:
            await asyncio.wait_for(self._none.wait(), seconds)
        except TimeoutError:
            return len(self.open)
        return 0


class _Continue:
    """Stands in the queue for the interim answer that a caller waits for before it sends its body."""


class HttpProtocol(asyncio.Protocol):
    """Parses a connection's bytes into requests and answers them in the same order; refusals wait for their turn too."""

    def __init__(self, handler: Handler, connections: Connections) -> None:
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request | Response | _Continue] = deque()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        # Nothing is read any more: the last answer is on its way, or in the queue.
        self._ending = False
        self._mid_message = False
        self._reset()

    def _reset(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._in_headers = True
        self._head_bytes = 0
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
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """The caller reads slower than we answer: no further answer is made until it has caught up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The caller has caught up."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a request that breaks HTTP or a limit is answered in its turn, and is the last."""
        if self._ending:
            return
        self._head_bytes += len(data)
        try:
            self._feed(data)
            if self._in_headers and self._mid_message and self._head_bytes > HEADER_LIMIT_BYTES:
                raise _HEADERS_TOO_LARGE
        except _LimitError as limit:
            self._refuse(limit.status, limit.message)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _LimitError):
                self._refuse(cause.status, cause.message)
            else:
                self._refuse(HTTPStatus.BAD_REQUEST, f"malformed request: {error}")
        if self._mid_message and self._stall is None and not self._ending:
            self._stall = asyncio.get_running_loop().call_later(STALL_SECONDS, self._stalled)

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # An offer that we may decline (RFC 9110, 7.8): the request itself is answered as it is.
                data = data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                if data and not self._ending:
                    continue
            return

    # httptools callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        self._reset()
        self._mid_message = True

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self._path += url
        if len(self._path) > HEADER_LIMIT_BYTES:
            raise _HEADERS_TOO_LARGE

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers come here too; they count, but are not taken: a body must not change its own head."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_LIMIT_BYTES:
            raise _HEADERS_TOO_LARGE
        if self._in_headers:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Refuse by the announced length, before anything is buffered."""
        self._in_headers = False
        if self._parser.get_method() == b"CONNECT":
            raise _LimitError(HTTPStatus.NOT_IMPLEMENTED, "this is no proxy")
        length = self._headers.get("content-length")
        if length is not None and int(length) > BODY_LIMIT_BYTES:
            raise _BODY_TOO_LARGE
        if self._headers.get("expect", "").lower() == "100-continue":
            self._enqueue(_Continue())

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_LIMIT_BYTES:
            raise _BODY_TOO_LARGE
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is whole: queue it, and stop reading when the caller pipelines more than is sensible."""
        self._clear_stall()
        self._mid_message = False
        self._head_bytes = 0
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        keep_alive = self._parser.should_keep_alive()
        method = self._parser.get_method().decode()
        self._enqueue(Request(method, self._target(), self._headers, body, keep_alive, self._parser.get_http_version()))
        # What a caller sends behind its last request is nobody's.
        self._ending = self._ending or not keep_alive
        if len(self._queue) >= _PIPELINE_LIMIT and self._transport is not None:
            self._transport.pause_reading()

    def _target(self) -> str:
        """The path of the target, which may come as a whole URL (RFC 9112, 3.2.2)."""
        path = self._path
        if not path.startswith((b"/", b"*")):
            try:
                path = httptools.parse_url(path).path or b"/"
            except httptools.HttpParserInvalidURLError:
                path = self._path
        return path.decode("latin-1").partition("?")[0]

    # answering

    def _enqueue(self, item: Request | Response | _Continue) -> None:
        self._queue.append(item)
        if self._task is None and self._transport is not None:
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self._queue and self._transport is not None:
                await self._writable.wait()
                await self._answer(self._queue.popleft())
                if self._transport is not None and not self._ending:
                    self._transport.resume_reading()
        finally:
            self._task = None

    async def _answer(self, item: Request | Response | _Continue) -> None:
        match item:
            case _Continue():
                if self._transport is not None:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            case Response():
                self._write(item, keep_alive=False)
            case Request():
                try:
                    response = await self._handler(item)
                except Exception:
                    log.exception("a request failed")
                    response = Response(HTTPStatus.INTERNAL_SERVER_ERROR, error_body("the worker failed on this request"))
                last = self._connections.draining and not self._queue
                self._write(response, keep_alive=item.keep_alive and not last, head=item.method == "HEAD", version=item.version)

    def _write(self, response: Response, *, keep_alive: bool, head: bool = False, version: str = "1.1") -> None:
        if self._transport is None:
            return
        lines = [
            f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n",
            f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n",
            *(f"{name}: {value}\r\n" for name, value in response.headers),
        ]
        if not keep_alive:
            lines.append("Connection: close\r\n")
        elif version == "1.0":
            lines.append("Connection: keep-alive\r\n")
        lines.append("\r\n")
        self._transport.write("".join(lines).encode("latin-1") + (b"" if head else response.body))
        if not keep_alive:
            self._ending = True
            self._queue.clear()
            self._transport.close()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer with a refusal once all that came before is answered, and close."""
        self._clear_stall()
        self._mid_message = False
        self._ending = True
        self._enqueue(Response(status, error_body(message)))

    def close_when_idle(self) -> None:
        """Close now if nobody waits for an answer here (half a request is nobody's); else the next answer closes."""
        if self._task is None and not self._queue and self._transport is not None:
            self._transport.close()

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


_HEADERS_TOO_LARGE = _LimitError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers are limited to {HEADER_LIMIT_BYTES} bytes")
_BODY_TOO_LARGE = _LimitError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body's limit is {BODY_LIMIT_BYTES} bytes")


def error_body(message: str) -> bytes:
    """The protocol's error object."""
    return orjson.dumps({"error": message})

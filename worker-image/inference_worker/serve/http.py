"""A small HTTP/1.1 server on httptools: one protocol object a connection, requests answered in order.

It is our own because the frameworks cost three to ten times the CPU of the parser and the handler together on small tensors
(figures in docs/). Limits come first: a body over the limit is refused before it is buffered, a body that stalls is dropped.
The module is longer than others, since the connection's state machine stays one
class: each call between two objects would be paid for by every request.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools

from inference_worker.errors import RequestError
from inference_worker.serve.connections import LINGER_SECONDS, STALL_SECONDS, CallerTimers, Connections
from inference_worker.serve.http_heads import Head, without_offer
from inference_worker.serve.http_large_body import LARGE_BYTES, LargeBody
from inference_worker.serve.http_messages import (
    BODY_LIMIT_BYTES,
    BODY_TOO_LARGE,
    HEADER_LIMIT_BYTES,
    HEADERS_TOO_LARGE,
    STATUS_LINES,
    LimitError,
    Payload,
    Request,
    Response,
    error_body,
    path_of,
    refusal,
)

log = logging.getLogger(__name__)

_LINGERS = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.SERVICE_UNAVAILABLE})
"""Refusals of what is well formed: their callers may still be sending it."""

_PIPELINE_LIMIT = 32
# What may be said about each byte of a chunk: those of one byte have five around it.
_BYTES_A_BYTE = 8


Handler = Callable[[Request], None]


class _Continue:
    """Stands in the queue for the interim answer that a caller waits for before it sends its body."""


_CONTINUE = _Continue()
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpProtocol(CallerTimers, asyncio.Protocol):
    """Parses a connection's bytes into requests and answers them in the same order; refusals wait for their turn too."""

    # Python is slow with more than thirty attributes otherwise.
    __slots__ = (
        "_begun",
        "_body",
        "_body_bytes",
        "_budget",
        "_connections",
        "_ending",
        "_half_closed",
        "_handler",
        "_head_bytes",
        "_header_bytes",
        "_headers",
        "_in_headers",
        "_large",
        "_later",
        "_latest",
        "_mid_message",
        "_offered",
        "_parser",
        "_path",
        "_paused",
        "_queue",
        "_reserved",
        "_taken",
        "_turn",
        "_writable",
        "unread",
        "used",
    )

    def __init__(self, handler: Handler, connections: Connections) -> None:
        CallerTimers.__init__(self)
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._budget = connections.budget
        self._queue: deque[Request | Response | _Continue] = deque()
        # Those of the queue that are not begun while the caller is behind; they are empty unless reading is paused.
        self._later: deque[Request] = deque()
        self._writable = True
        self._paused = False
        # Nothing is read any more: the last answer is on its way, or in the queue.
        self._ending = False
        self._half_closed = False
        self._mid_message = False
        self._begun = self.used = 0.0
        # Bytes of the budget: for answers that are not taken, and for the request that is not whole.
        self.unread = self._reserved = 0
        # Requests that were begun in this round of the event loop.
        self._turn = 0
        self._taken = 0
        self._latest: Head | None = None
        # Of the request whose body is read by another protocol.
        self._large: Head | None = None
        self._reset()

    def _reset(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._in_headers = True
        # Whether the caller offers another protocol, so that this parser does not read the body.
        self._offered = False
        self._head_bytes = 0
        self._header_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        # uvloop's transports do not derive from asyncio's, so only the type checker can be told.
        self._transport = cast(asyncio.Transport, transport)
        self.used = time.monotonic()
        if not self._connections.add(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the worker has all the connections that it may; try again later")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The caller is gone: nobody waits for what is queued or running for it."""
        self._transport = None
        self._connections.discard(self)
        self._clear_stall()
        self._clear_untaken()
        self._abandon()

    def eof_received(self) -> bool:
        """The caller sends nothing more, and may wait for what it has asked (RFC 9112, 9.6). Half a request is nobody's.

        A caller that is gone looks the same until it is sent something: HTTP/1.1 has interim answers. TLS closes both ways.
        """
        self._clear_stall()
        self._release()
        if self._mid_message and self._queue and self._queue[-1] is _CONTINUE:
            self._queue.pop()
        self._mid_message = False
        self._ending = True
        if not self._queue or self._transport is None or self._transport.get_extra_info("sslcontext") is not None:
            return False
        self._half_closed = True
        if isinstance(self._queue[0], Request) and self._queue[0].version == "1.1":
            self._transport.write(_INTERIM)
        self._watch_leaving()
        return True

    def pause_writing(self) -> None:
        """The caller reads slower than we answer: nothing further is read or begun until it has caught up."""
        self._writable = False
        self._pause()
        if self._transport is not None:
            self._watch_taken(self._transport)

    def resume_writing(self) -> None:
        """The caller has caught up."""
        self._writable = True
        self._clear_untaken()
        self.flush()

    def _count_unread(self) -> None:
        if self._transport is None:
            return
        size = sum(item.unsent_bytes for item in self._queue if isinstance(item, Request))
        if not self._writable:
            size += self._transport.get_write_buffer_size()
        if size or self.unread:
            self._connections.left_unread(self, size)

    def _yield(self) -> None:
        """Go on in the event loop's next round: one packet can ask for thousands of answers, and others wait for theirs."""
        self._pause()
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = 0
        self.flush()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a request that breaks HTTP or a limit is answered in its turn, and is the last."""
        if self._ending:
            self._discard(len(data))
            return
        self._turn = 0
        self._head_bytes += len(data)
        try:
            self._feed(data)
            if self._in_headers and self._mid_message and self._head_bytes > HEADER_LIMIT_BYTES:
                raise HEADERS_TOO_LARGE
            if self._mid_message and not self._ending:
                self._require_dense()
                self._reserve()
                self._hand_over()
        except LimitError as limit:
            self._refuse(limit.status, limit.message)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, LimitError):
                self._refuse(cause.status, cause.message)
            else:
                self._refuse(HTTPStatus.BAD_REQUEST, f"malformed request: {error}")
        if self._mid_message and self._stall is None and not self._ending:
            self._stall = asyncio.get_running_loop().call_later(STALL_SECONDS, self._stalled)
        self.flush()

    def _hand_over(self) -> None:
        """Have the rest of a large body read straight to where it stays. The parser has ended with the head."""
        length = int(self._headers.get("content-length", 0))
        if self._in_headers or self._offered or length - self._body_bytes < LARGE_BYTES:
            return
        self._large = self._head(length)
        self._parser = httptools.HttpRequestParser(self)
        self._read_by(LargeBody(self, self._body, length, self._large_whole))
        self._body = []

    def _large_whole(self, body: memoryview) -> None:
        head = self._large
        self._take_back()
        if head is not None and not self._ending:
            self._turn = 0
            self._complete(head, body)
            self.flush()

    def _take_back(self) -> None:
        if self._large is not None:
            self._large = None
            self._read_by(self)

    def _read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what comes from now on to this one. A transport asks who reads when it begins to."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not self._paused:
            transport.pause_reading()
        transport.set_protocol(protocol)
        if not self._paused:
            transport.resume_reading()

    def _require_dense(self) -> None:
        """Raise LimitError for chunks that have next to no content for what is said about them (CVE-2024-22019, CVE-2023-39326)."""
        if self._head_bytes > 2 * HEADER_LIMIT_BYTES + _BYTES_A_BYTE * self._body_bytes:
            raise LimitError(HTTPStatus.BAD_REQUEST, "the chunks say more of themselves than they hold")

    def _reserve(self) -> None:
        """Take from the budget what a request needs that is not whole: all that it announces. Raises LimitError."""
        wanted = self._head_bytes
        if not self._in_headers:
            wanted = self._header_bytes + max(self._body_bytes, int(self._headers.get("content-length", 0)))
        if wanted > self._reserved:
            if not self._budget.has(wanted - self._reserved):
                raise LimitError(HTTPStatus.SERVICE_UNAVAILABLE, self._budget.refusal)
            self._reserved = wanted

    def _release(self) -> None:
        if self._reserved:
            self._budget.give(self._reserved)
            self._reserved = 0

    def _known(self, data: bytes) -> bytes:
        """Take the whole requests at the front of `data` whose heads were parsed before; returns what is left.

        Programs send the same head again and again. The same bytes mean the same, so only the body has to be cut off.
        """
        heads = self._connections.heads
        while data and not self._ending:
            end = data.find(b"\r\n\r\n") + 4
            head = heads.get(data[:end]) if end > 4 else None
            if head is None or len(data) < end + head.length:
                break
            self._begun = self.used = time.monotonic()
            body = data[end : end + head.length]
            data = data[end + head.length :]
            self._take(
                Request(head.method, head.path, head.headers, body, head.keep_alive, head.version, self._begun, connection=self)
            )
        return data

    def _feed(self, data: bytes) -> None:
        if not self._mid_message:
            data = self._known(data)
            if not data or self._ending:
                return
        fresh, taken, whole = not self._mid_message, self._taken, data
        self._parse(data)
        if fresh and self._taken == taken + 1 and self._latest is not None:
            self._connections.heads.remember(whole, self._latest)
        # An idle connection holds no body.
        self._latest = None

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # An offer that we may decline (RFC 9110, 7.8). This parser is done at the end of the head, and would take the body
                # for the next request: another one gets the head without the offer, and then the body.
                head = without_offer(self._parser.get_method(), self._path, self._parser.get_http_version(), self._headers)
                data = head + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                continue
            return

    # httptools callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        self._reset()
        self._begun = self.used = time.monotonic()
        self._mid_message = True

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self._path += url
        if len(self._path) > HEADER_LIMIT_BYTES:
            raise HEADERS_TOO_LARGE

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header. Trailers come here too; they count, but are not taken: a body must not change its own head."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_LIMIT_BYTES:
            raise HEADERS_TOO_LARGE
        if self._in_headers:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Refuse by the announced length, before anything is buffered."""
        self._in_headers = False
        if self._parser.get_method() == b"CONNECT":
            raise LimitError(HTTPStatus.NOT_IMPLEMENTED, "this is no proxy")
        if self._parser.should_upgrade():
            self._offered = True
            return
        length = self._headers.get("content-length")
        if length is not None and int(length) > BODY_LIMIT_BYTES:
            raise BODY_TOO_LARGE
        # A caller of HTTP/1.0 knows no interim answers: it would take this one for the last (RFC 9110, 10.1.1).
        if self._headers.get("expect", "").lower() == "100-continue" and self._parser.get_http_version() != "1.0":
            self._reserve()
            self._queue.append(_CONTINUE)
            self.flush()

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_LIMIT_BYTES:
            raise BODY_TOO_LARGE
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is whole: queue it, and stop reading when the caller pipelines more than is sensible."""
        if self._offered:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        # As it came: whoever answers may put another body and other headers in their place.
        self._latest = head = self._head(len(body))
        self._complete(head, body)

    def _head(self, length: int) -> Head:
        parser = self._parser
        method, version = parser.get_method().decode(), parser.get_http_version()
        return Head(method, path_of(self._path), self._headers, parser.should_keep_alive(), version, length)

    def _complete(self, head: Head, body: Payload) -> None:
        self._clear_stall()
        self._mid_message = False
        self._head_bytes = 0
        request = Request(head.method, head.path, head.headers, body, head.keep_alive, head.version, self._begun, connection=self)
        if self._reserved:
            # The body stays until it is answered.
            self._budget.lend(request, self._reserved)
            self._reserved = 0
        self._take(request)

    def _take(self, request: Request) -> None:
        self._taken += 1
        request.whole = time.monotonic()
        # What a caller sends behind its last request is nobody's.
        self._ending = self._ending or not request.keep_alive
        self._queue.append(request)
        if self._paused:
            self._later.append(request)
            return
        self._handle(request)
        self._turn += 1
        if self._turn >= _PIPELINE_LIMIT:
            self._yield()
        elif len(self._queue) >= _PIPELINE_LIMIT:
            self._pause()

    # answering

    def _handle(self, request: Request) -> None:
        try:
            self._handler(request)
        except Exception:
            log.exception("a request failed")
            request.reply(Response(HTTPStatus.INTERNAL_SERVER_ERROR, error_body("the worker failed on this request")))

    def flush(self) -> None:
        """Write every answer whose turn it is."""
        queue = self._queue
        while queue and self._writable and self._transport is not None:
            match queue[0]:
                case Request(response=None):
                    break
                case Request() as request:
                    queue.popleft()
                    assert request.response is not None
                    last = (self._connections.draining or self._half_closed) and not queue and not self._mid_message
                    keep_alive = request.keep_alive and not last
                    self._write(request.response, keep_alive=keep_alive, head=request.method == "HEAD", version=request.version)
                case Response() as refusal:
                    queue.popleft()
                    self._write(refusal, keep_alive=False, lingers=refusal.status in _LINGERS and self._begun > 0)
                case _Continue():
                    queue.popleft()
                    self._transport.write(_INTERIM)
        if len(queue) > 1 or self.unread:
            self._count_unread()
        if self._paused:
            self._go_on()

    def _go_on(self) -> None:
        """Begin what was put off, and read on, as far as the caller has caught up."""
        queue, later = self._queue, self._later
        if not self._writable or max(self._turn, len(queue) - len(later)) >= _PIPELINE_LIMIT or self._transport is None:
            return
        self._paused = False
        while later and not self._paused:
            self._handle(later.popleft())
            self._turn += 1
            if self._turn >= _PIPELINE_LIMIT:
                self._yield()
            elif len(queue) - len(later) >= _PIPELINE_LIMIT:
                self._paused = True
        if not self._paused and not self._ending and self._transport is not None:
            self._transport.resume_reading()

    def _abandon(self) -> None:
        """Nobody waits for what is queued or running here."""
        requests = [item for item in self._queue if isinstance(item, Request)]
        self._queue.clear()
        self._later.clear()
        self._release()
        for request in requests:
            request.connection = None
            callback, request.on_abandoned = request.on_abandoned, None
            if callback is not None:
                callback()

    def _write(
        self, response: Response, *, keep_alive: bool, head: bool = False, version: str = "1.1", lingers: bool = False
    ) -> None:
        if self._transport is None:
            return
        text = f"{STATUS_LINES[response.status]}Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n"
        for name, value in response.headers:
            text += f"{name}: {value}\r\n"
        if not keep_alive:
            text += "Connection: close\r\n"
        elif version == "1.0":
            text += "Connection: keep-alive\r\n"
        start = (text + "\r\n").encode("latin-1")
        if head:
            self._transport.write(start)
        elif len(response.body) < LARGE_BYTES:
            self._transport.write(start + response.body)
        else:
            self._transport.writelines((start, response.body))
        if not keep_alive:
            self._ending = True
            if lingers and self._transport.can_write_eof():
                self._linger(self._transport)
            else:
                self._transport.close()
            self._abandon()

    def _linger(self, transport: asyncio.Transport) -> None:
        """Say that nothing follows, and read on for a moment without a look.

        To close while a request comes resets the connection, and its caller may never see the answer (RFC 9112, 9.6). A proxy
        takes that for a worker that is gone.
        """
        transport.write_eof()
        self._head_bytes = 0
        if self._paused:
            self._paused = False
            transport.resume_reading()
        self._stall = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)

    def _discard(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > 2 * BODY_LIMIT_BYTES and self._transport is not None:
            self._transport.close()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer with a refusal once all that came before is answered, and close. What follows a last request is nobody's."""
        if self._ending:
            return
        self._clear_stall()
        self._mid_message = False
        self._ending = True
        self._release()
        self._take_back()
        self._queue.append(refusal(RequestError(status, message)))
        self.flush()

    @property
    def idle(self) -> bool:
        """See Connection."""
        return not self._queue

    def announce_end(self) -> None:
        """See Connection: HTTP/1.1 tells with its next answer."""

    def end_stalled(self, before: float) -> None:
        """See Connection: every request has a timer of its own here."""

    def close_when_idle(self) -> None:
        """Close now if nobody waits for an answer here (half a request is nobody's); else the next answer closes."""
        if not self._queue and self._transport is not None:
            if self._transport.is_closing():
                # Its caller does not take the rest.
                self._transport.abort()
            self._transport.close()

    def end_unread(self) -> None:
        """See Connection."""
        self._ending = True
        if self._transport is not None:
            self._transport.abort()

    def _stalled(self) -> None:
        self._stall = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the request was not whole within {STALL_SECONDS:.0f} s")

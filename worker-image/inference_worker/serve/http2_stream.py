"""A stream of an HTTP/2 connection: one request and its answer, and what flow control holds back of it."""

import time
from collections import deque
from typing import Protocol

from inference_worker.serve.budget import Budget
from inference_worker.serve.connections import SLOWEST_BYTES
from inference_worker.serve.http2_frames import Code, Flag, Kind, frame
from inference_worker.serve.http_messages import Payload

STREAM_WINDOW = 4 << 20

# Comparing with an enum's member costs a look-up each time; these are written for every answer.
_DATA, _HEADERS = int(Kind.DATA), int(Kind.HEADERS)


class Sender(Protocol):
    """What a stream sends through.

    `send_window` and `frame_bytes` are what the peer allows the connection; `frame_bytes` is 0 while it takes nothing.
    """

    budget: Budget
    send_window: int
    frame_bytes: int

    def held_back(self, change: int) -> None:
        """Count that flow control holds so many more bytes of answers back than before; fewer where it is negative."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def refill(self, stream: "Stream") -> None:
        """Open the stream's window again as far as it has been used."""
        ...

    def finished(self, stream: "Stream") -> None:
        """The stream's answer is on its way."""
        ...

    def reset(self, number: int, code: Code) -> None:
        """End a stream with an error."""
        ...


class Receiver(Protocol):
    """What a stream's bytes go to."""

    def data(self, chunk: Payload) -> None:
        """More of the body."""
        ...

    def end(self) -> None:
        """The caller has sent all that it will."""
        ...

    def abandoned(self) -> None:
        """The caller is gone; no answer is wanted."""
        ...

    def drain(self) -> None:
        """The worker leaves: what is owed will be answered, and nothing else begun."""
        ...

    def resume(self) -> None:
        """All that was held back of the answers is on its way."""
        ...


class Stream:
    """One request and its answer."""

    __slots__ = (
        "_connection",
        "_pending",
        "_sent",
        "announced",
        "arrived",
        "blocked_since",
        "ended_here",
        "ended_there",
        "headers",
        "held",
        "id",
        "incomplete_since",
        "receive_window",
        "received",
        "receiver",
        "send_window",
    )

    def __init__(self, connection: Sender, number: int, headers: dict[str, str], send_window: int) -> None:
        self._connection = connection
        self.id = number
        self.headers = headers
        self.arrived = time.monotonic()
        self.receiver: Receiver | None = None
        self.ended_there = self.ended_here = False
        self.send_window = send_window
        self.receive_window = STREAM_WINDOW
        self.received = 0
        length = headers.get("content-length")
        self.announced = int(length) if length is not None and length.isdecimal() and len(length) < 16 else None
        self.incomplete_since: float | None = None
        # While held, the caller's window is not opened again: it sends no more than it may already.
        self.held = False
        # What flow control holds back: (bytes, header block) with either empty.
        self._pending: deque[tuple[memoryview, bytes]] = deque()
        # Since when its peer has taken less of that than it has to (time.monotonic), and how much it has since.
        self.blocked_since: float | None = None
        self._sent = 0

    @property
    def budget(self) -> Budget:
        """That of the connection."""
        return self._connection.budget

    @property
    def waiting(self) -> bool:
        """Whether something is held back by flow control."""
        return bool(self._pending)

    def respond(self, head: bytes, body: bytes, trailers: bytes) -> None:
        """Head, body and trailers at once: the whole of a unary answer."""
        connection, size = self._connection, len(body)
        if size <= self.send_window and size <= connection.send_window and size <= connection.frame_bytes and not self.ended_here:
            self.ended_here = True
            connection.send_window -= size
            connection.write(
                frame(_HEADERS, Flag.END_HEADERS, self.id, head)
                + frame(_DATA, 0, self.id, body)
                + frame(_HEADERS, Flag.END_HEADERS | Flag.END_STREAM, self.id, trailers)
            )
            connection.finished(self)
            return
        self.start(head)
        self.write(body)
        self.finish(trailers)

    def start(self, head: bytes) -> None:
        """Send the head."""
        if not self.ended_here:
            self._connection.write(frame(_HEADERS, Flag.END_HEADERS, self.id, head))

    def write(self, body: bytes) -> None:
        """Send a part of the body, as far as flow control allows; the rest follows when it does."""
        if self.ended_here or not body:
            return
        connection, size = self._connection, len(body)
        if not self._pending and size <= self.send_window and size <= connection.send_window and size <= connection.frame_bytes:
            self.send_window -= size
            connection.send_window -= size
            connection.write(frame(_DATA, 0, self.id, body))
        else:
            self._pending.append((memoryview(body), b""))
            if self.blocked_since is None:
                self.blocked_since, self._sent = time.monotonic(), 0
            connection.held_back(size)
        self.flush()

    def finish(self, trailers: bytes) -> None:
        """Send trailers (or a head that is all there is) behind everything else, and end the stream."""
        if not self.ended_here:
            self.ended_here = True
            self._pending.append((memoryview(b""), trailers))
            self.flush()

    def release(self) -> None:
        """Let the caller send on."""
        if self.held:
            self.held = False
            self._connection.refill(self)

    def reset(self, code: Code) -> None:
        """End the stream with an error."""
        if not self.ended_here:
            self.ended_here = True
        self.drop()
        self._connection.reset(self.id, code)

    def drop(self) -> None:
        """Let go of what is held back: nobody will take it."""
        size = sum(len(body) for body, _ in self._pending)
        self._pending.clear()
        self.blocked_since = None
        if size:
            self._connection.held_back(-size)

    def flush(self) -> None:
        """Send what is held back, as far as the windows allow."""
        connection, pending = self._connection, self._pending
        waited = bool(pending)
        while pending:
            body, trailers = pending[0]
            if trailers:
                pending.popleft()
                connection.write(frame(_HEADERS, Flag.END_HEADERS | Flag.END_STREAM, self.id, trailers))
                connection.finished(self)
                return
            room = min(self.send_window, connection.send_window, connection.frame_bytes)
            if room <= 0:
                return
            part = body[:room]
            self.send_window -= len(part)
            connection.send_window -= len(part)
            connection.write(frame(_DATA, 0, self.id, bytes(part)))
            connection.held_back(-len(part))
            self._sent += len(part)
            if self._sent >= SLOWEST_BYTES:
                self.blocked_since, self._sent = time.monotonic(), 0
            if len(part) < len(body):
                pending[0] = (body[room:], b"")
            else:
                pending.popleft()
        self.blocked_since = None
        if waited and self.receiver is not None:
            self.receiver.resume()

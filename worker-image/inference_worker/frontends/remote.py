"""In the worker: requests and streams whose callers are connected to a frontend, as if they were connected here."""

import logging
from collections.abc import Callable

from inference_worker.errors import unforeseen
from inference_worker.frontends.arena import Reader
from inference_worker.frontends.link import Link
from inference_worker.frontends.messages import (
    Answered,
    Asked,
    Body,
    Extent,
    Finish,
    Free,
    FromFrontend,
    FromWorker,
    Hold,
    Left,
    Opened,
    Parting,
    Patient,
    Received,
    Reset,
    Respond,
    Start,
    Taken,
    Write,
)
from inference_worker.serve.budget import Budget
from inference_worker.serve.http2_frames import Code
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import Request, refusal

log = logging.getLogger(__name__)

_WRITTEN_BYTES = 64 << 10
"""What is written to a stream before its caller has to take some."""

HandleRequest = Callable[[Request], None]
HandleStream = Callable[[Stream], None]


class Remote:
    """All requests and streams of one frontend that are under way."""

    def __init__(self, arena: Reader, budget: Budget, request: HandleRequest, stream: HandleStream) -> None:
        """`request` and `stream` answer what comes, as they do for connections of the worker's own."""
        self.link: Link[FromWorker, FromFrontend]
        self.send_window = self.frame_bytes = 1 << 62
        self.budget = budget
        self._arena = arena
        self._handle_request = request
        self._handle_stream = stream
        self._requests: dict[int, Request] = {}
        self._streams: dict[int, RemoteStream] = {}

    def take(self, message: FromFrontend) -> None:
        """Do what a caller asks."""
        match message:
            case Asked():
                self._ask(message)
            case Opened():
                self._open(message)
            case Received():
                if (stream := self._streams.get(message.id)) is not None:
                    self._receive(stream, message)
                elif isinstance(message.body, Extent):
                    self.link.tell(Free([message.body.offset]))
            case Left():
                self._leave(message.id)
            case Parting():
                if (stream := self._streams.get(message.id)) is not None and stream.receiver is not None:
                    stream.receiver.drain()
            case Taken():
                if (stream := self._streams.get(message.id)) is not None:
                    stream.taken(message.size)
            case _:
                raise AssertionError(message)

    def _receive(self, stream: "RemoteStream", received: Received) -> None:
        try:
            stream.receive(self._bytes(received.body), ended=received.ended)
        except Exception:
            log.exception("a request failed")
            stream.reset(Code.INTERNAL_ERROR)

    def _bytes(self, body: Body) -> bytes | memoryview:
        return self._arena.body(body) if isinstance(body, Extent) else body

    def _ask(self, asked: Asked) -> None:
        request = Request(
            asked.method, asked.path, asked.headers, self._bytes(asked.body), True, arrived=asked.arrived, whole=asked.whole
        )
        request.connection = _Answers(self, asked.id, request)
        self._requests[asked.id] = request
        try:
            self._handle_request(request)
        except Exception:
            log.exception("a request failed")
            request.reply(refusal(unforeseen()))

    def _open(self, opened: Opened) -> None:
        stream = self._streams[opened.id] = RemoteStream(self, opened)
        try:
            self._handle_stream(stream)
        except Exception:
            log.exception("a request failed")
            stream.reset(Code.INTERNAL_ERROR)
        if stream.incomplete_since is None and not stream.ended_here:
            self.link.tell(Patient(opened.id))

    def answer(self, number: int, request: Request) -> None:
        """Send a request's answer."""
        del self._requests[number]
        request.connection = None
        response = request.response
        assert response is not None
        self.free()
        self.link.tell(Answered(number, response.status, response.body, response.content_type, response.headers))

    def free(self) -> None:
        """Give the frontend back what nobody reads any more."""
        if freed := self._arena.freed():
            self.link.tell(Free(freed))

    def tell(self, message: FromWorker) -> None:
        """Send what a stream says."""
        self.free()
        self.link.tell(message)

    def end(self, message: Respond | Finish | Reset) -> None:
        """Send what ends a stream."""
        if self._streams.pop(message.id, None) is not None:
            self.tell(message)

    def _leave(self, number: int) -> None:
        if (request := self._requests.pop(number, None)) is not None:
            request.connection = None
            callback, request.on_abandoned = request.on_abandoned, None
            if callback is not None:
                callback()
        elif (stream := self._streams.pop(number, None)) is not None:
            stream.leave()

    def abandon(self) -> None:
        """The frontend is gone, and all its callers with it."""
        for number in [*self._requests, *self._streams]:
            self._leave(number)

    # Sender, for what a stream asks of its connection

    def held_back(self, change: int) -> None:
        """See Sender: the frontend holds answers back."""

    def write(self, data: bytes) -> None:
        """See Sender: no frames are made here."""

    def refill(self, stream: Stream) -> None:
        """See Sender."""

    def finished(self, stream: Stream) -> None:
        """See Sender."""

    def reset(self, number: int, code: Code) -> None:
        """See Sender."""


class _Answers:
    """The way back of one request. Implements Caller."""

    __slots__ = ("_number", "_remote", "_request")

    def __init__(self, remote: Remote, number: int, request: Request) -> None:
        self._remote = remote
        self._number = number
        self._request = request

    def flush(self) -> None:
        """See Caller."""
        self._remote.answer(self._number, self._request)


class RemoteStream(Stream):
    """A stream whose frames a frontend reads and writes."""

    __slots__ = ("_held", "_remote", "_written")

    def __init__(self, remote: Remote, opened: Opened) -> None:
        self._remote = remote
        self._held = False
        # Bytes that are not on their way to the caller, as far as is known.
        self._written = 0
        super().__init__(remote, opened.id, opened.headers, remote.send_window)
        self.arrived = opened.arrived

    def receive(self, data: bytes | memoryview, *, ended: bool) -> None:
        """Whole messages, or the end."""
        if data and self.receiver is not None:
            self.receiver.data(data)
        if ended and self.receiver is not None and not self.ended_here:
            self.ended_there = True
            self.receiver.end()

    @property
    def waiting(self) -> bool:
        """See Stream."""
        return self._written >= _WRITTEN_BYTES

    def taken(self, size: int) -> None:
        """The caller takes what it is sent."""
        waited = self.waiting
        self._written -= size
        if waited and not self.waiting and self.receiver is not None:
            self.receiver.resume()

    @property
    def held(self) -> bool:
        """See Stream."""
        return self._held

    @held.setter
    def held(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            self._remote.tell(Hold(self.id, held))

    def release(self) -> None:
        """See Stream."""
        self.held = False

    def respond(self, head: bytes, body: bytes, trailers: bytes) -> None:
        """See Stream."""
        self._end(Respond(self.id, head, body, trailers))

    def start(self, head: bytes) -> None:
        """See Stream."""
        if not self.ended_here:
            self._remote.tell(Start(self.id, head))

    def write(self, body: bytes) -> None:
        """See Stream."""
        if not self.ended_here and body:
            self._written += len(body)
            self._remote.tell(Write(self.id, body))

    def finish(self, trailers: bytes) -> None:
        """See Stream."""
        self._end(Finish(self.id, trailers))

    def reset(self, code: Code) -> None:
        """See Stream."""
        self._end(Reset(self.id, code))

    def _end(self, message: Respond | Finish | Reset) -> None:
        if not self.ended_here:
            self.ended_here = True
            self._remote.end(message)
            self.receiver = None

    def leave(self) -> None:
        """The caller is gone."""
        self.ended_here = True
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.abandoned()

"""In a frontend: whole requests and messages go to the worker, and what it says of them to their callers.

It knows of gRPC that messages have a prefix with their length, and of nothing else that is said.
"""

from itertools import count

from inference_worker.errors import RequestError
from inference_worker.frontends.arena import SMALLEST_BYTES, Allocator
from inference_worker.frontends.link import Link
from inference_worker.frontends.messages import (
    Answered,
    Asked,
    Body,
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
from inference_worker.serve.budget import Budget, Loan
from inference_worker.serve.grpc_status import refusal
from inference_worker.serve.http2_frames import Code
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES, Payload, Request, Response

_PREFIX = 5
_TAKEN_BYTES = 16 << 10


class Relay:
    """All requests and streams of a frontend that are under way."""

    def __init__(self, arena: Allocator) -> None:
        self.link: Link[FromFrontend, FromWorker]
        self._arena = arena
        self._ids = count()
        self._requests: dict[int, Request] = {}
        self._streams: dict[int, StreamRelay] = {}

    def request(self, request: Request) -> None:
        """Hand a request over HTTP/1.1 to the worker."""
        number = next(self._ids)
        self._requests[number] = request
        request.on_abandoned = lambda: self.left(number)
        body = self.body([request.body], len(request.body))
        self.link.tell(Asked(number, request.method, request.path, request.headers, body, request.arrived, request.whole))
        # It would be held twice until the answer.
        request.body = b""

    def stream(self, stream: Stream) -> None:
        """Hand a stream of gRPC to the worker."""
        number = next(self._ids)
        stream.receiver = self._streams[number] = StreamRelay(self, number, stream)
        self.link.tell(Opened(number, stream.headers, stream.arrived))

    def body(self, parts: list[Payload], size: int) -> Body:
        """Bytes as they go to the worker."""
        extent = self._arena.write(parts, size) if size >= SMALLEST_BYTES else None
        if extent is not None:
            return extent
        return b"".join(parts)

    def left(self, number: int) -> None:
        """A caller is gone."""
        if self._requests.pop(number, None) is not None or self._streams.pop(number, None) is not None:
            self.link.tell(Left(number))

    def take(self, message: FromWorker) -> None:
        """Do as the worker says."""
        match message:
            case Answered():
                request = self._requests.pop(message.id, None)
                if request is not None:
                    request.reply(Response(message.status, message.body, message.content_type, message.headers))
            case Free():
                for offset in message.offsets:
                    self._arena.free(offset)
            case Respond() | Finish() | Reset():
                if (ended := self._streams.pop(message.id, None)) is not None:
                    ended.end_with(message)
            case Start() | Write() | Hold() | Patient():
                if (stream := self._streams.get(message.id)) is not None:
                    stream.do(message)
            case _:
                raise AssertionError(message)


class StreamRelay:
    """Gathers the messages of a stream and does to it what the worker says. Implements Receiver."""

    def __init__(self, relay: Relay, number: int, stream: Stream) -> None:
        self._relay = relay
        self._id = number
        self._stream = stream
        self._chunks: list[Payload] = []
        self._size = self._wanted = 0
        self._untold = 0
        self._patient = self._begun = self._refused = False
        self._newest: Received | None = None
        # Room for a message that comes in pieces, until the stream ends.
        self._reserved: Loan | None = None
        # From the first moment: a head whose message never comes is given up too.
        stream.incomplete_since = stream.arrived

    def data(self, chunk: Payload) -> None:
        """See Receiver."""
        if self._refused:
            return
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._wanted:
            return
        try:
            whole = self._whole()
        except RequestError as error:
            self._relay.left(self._id)
            self._stream.finish(refusal(error))
            return
        if whole:
            self._begun = True
            self._hand(whole)
        self._watch_stall()

    def _watch_stall(self) -> None:
        lacking = self._size or not (self._begun or self._patient)
        self._stream.incomplete_since = self._stream.arrived if lacking else None

    def _whole(self) -> int:
        """How many of the gathered bytes are whole messages. Raises RequestError where there is no room for the next one."""
        if self._wanted and self._size == self._wanted:
            # One message in several pieces, which are put together where they go.
            self._wanted = 0
            return self._size
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = [data]
        position = self._wanted = 0
        while len(data) - position >= _PREFIX:
            length = int.from_bytes(data[position + 1 : position + _PREFIX], "big")
            end = position + _PREFIX + length
            if length > BODY_LIMIT_BYTES:
                # The worker refuses it by its prefix.
                self._refused = True
                return len(data)
            if end > len(data):
                self._wanted = end - position
                self._reserve(self._wanted)
                break
            position = end
        return position

    def _reserve(self, size: int) -> None:
        budget: Budget = self._stream.budget
        self._reserved = None
        budget.take(size)
        # Not the stream: it and this know each other, and such pairs go late.
        self._reserved = Loan()
        budget.lend(self._reserved, size)

    def _hand(self, size: int) -> None:
        """Send the first `size` of the gathered bytes, and keep what follows."""
        if size == self._size:
            parts, self._chunks, self._size = self._chunks, [], 0
        else:
            (data,) = self._chunks
            parts, self._chunks, self._size = [data[:size]], [data[size:]], self._size - size
        self._newest = Received(self._id, self._relay.body(parts, size))
        self._relay.link.tell(self._newest)

    def end(self) -> None:
        """See Receiver."""
        told = self._relay.link.told
        if self._size:
            # Half a message: of that the worker tells the caller.
            self._hand(self._size)
        if self._newest is not None and told and told[-1] is self._newest:
            self._newest.ended = True
        else:
            self._relay.link.tell(Received(self._id, b"", ended=True))
        self._newest = None

    def abandoned(self) -> None:
        """See Receiver."""
        self._reserved = None
        self._relay.left(self._id)

    def drain(self) -> None:
        """See Receiver."""
        self._relay.link.tell(Parting(self._id))

    def resume(self) -> None:
        """See Receiver."""
        self._tell_taken()

    def _tell_taken(self) -> None:
        if self._untold >= _TAKEN_BYTES and not self._stream.waiting:
            self._relay.link.tell(Taken(self._id, self._untold))
            self._untold = 0

    def do(self, message: Start | Write | Hold | Patient) -> None:
        """What does not end the stream."""
        stream = self._stream
        match message:
            case Start():
                stream.start(message.head)
            case Write():
                stream.write(message.body)
                self._untold += len(message.body)
                self._tell_taken()
            case Hold(held=True):
                stream.held = True
            case Hold():
                stream.release()
            case Patient():
                self._patient = True
                self._watch_stall()

    def end_with(self, message: Respond | Finish | Reset) -> None:
        """What ends the stream."""
        self._reserved = None
        match message:
            case Respond():
                self._stream.respond(message.head, message.body, message.trailers)
            case Finish():
                self._stream.finish(message.trailers)
            case Reset():
                self._stream.reset(Code(message.code))

"""gRPC's calls over HTTP/2 streams: messages that come in pieces, and what answers them (grpc/grpc, doc/PROTOCOL-HTTP2.md).

Calls of one message and one answer are here, those of several in `grpc_streams`.

Knows nothing of models: a method is what takes a message and answers the call.
"""

from collections.abc import Callable
from http import HTTPStatus

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.budget import Loan
from inference_worker.serve.grpc_compression import Compression
from inference_worker.serve.grpc_status import CODED_HEADS, HEAD, OK, refusal
from inference_worker.serve.http2_frames import Code
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES, Payload
from inference_worker.serve.inference import Arrival

Reply = Callable[[bytes | RequestError], None]
Method = Callable[["Call", Payload], None]


class Call:
    """One call of a method: gathers messages from a stream's bytes and sends what comes back. Implements Receiver."""

    # Of the few whose message is compressed; the others should not pay for them.
    _flag = 0
    _loan: Loan | None = None
    # Of the few whose message comes in pieces: room for it, until it is answered.
    _reserved: Loan | None = None

    def __init__(self, stream: Stream, method: Method, arrival: Arrival, compression: Compression | None = None) -> None:
        self._stream = stream
        self._method = method
        self._compression = compression
        self._chunks: list[Payload] = []
        self._size = 0
        self._wanted = 0
        self._begun = False
        self._message: Payload | None = None
        self.arrival = arrival
        # From the first moment: a head whose message never comes is given up too.
        stream.incomplete_since = stream.arrived
        self.on_abandoned: Callable[[], None] | None = None

    def data(self, chunk: Payload) -> None:
        """See Receiver."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._wanted:
            return
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        try:
            position = self._messages(data)
        except RequestError as error:
            self.fail(error)
            return
        rest = data[position:]
        self._chunks, self._size = ([rest], len(rest)) if rest else ([], 0)
        self._stream.incomplete_since = self._stream.arrived if rest or self._lacking else None

    def _messages(self, data: Payload) -> int:
        position = 0
        self._wanted = 0
        while len(data) - position >= 5 and not self._stream.ended_here:
            length = int.from_bytes(data[position + 1 : position + 5], "big")
            if length > BODY_LIMIT_BYTES:
                raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message's limit is {BODY_LIMIT_BYTES} bytes")
            end = position + 5 + length
            if end > len(data):
                self._wanted = end - position
                self._reserve(self._wanted)
                break
            if (flag := data[position]) and (flag != 1 or self._compression is None):
                raise RequestError(HTTPStatus.NOT_IMPLEMENTED, "a compressed message in an encoding that was not announced")
            self._take(flag, data[position + 5 : end])
            position = end
        return position

    def _reserve(self, size: int) -> None:
        """Take from the budget what the message needs that is not whole. Raises RequestError(429), which is RESOURCE_EXHAUSTED."""
        budget = self._stream.budget
        self._reserved = None
        budget.take(size)
        # Not the call: it and its stream know each other, and such pairs go late.
        self._reserved = Loan()
        budget.lend(self._reserved, size)

    def _take(self, flag: int, payload: Payload) -> None:
        if self._message is not None:
            raise bad("a second message in a call that takes one")
        self._message = payload
        if flag:
            self._flag = flag

    def end(self) -> None:
        """See Receiver."""
        if self._message is None or self._size:
            self.fail(bad("the call ended before its message did"))
            return
        payload, self._message, self._begun = self._message, b"", True
        if self._flag and self._compression is not None:
            self._loan = Loan()
            self._compression.inflate(payload, self._loan, self._inflated)
        else:
            self._method(self, payload)

    def _inflated(self, payload: Payload | RequestError) -> None:
        if self.gone:
            return
        if isinstance(payload, RequestError):
            self.fail(payload)
        else:
            self._method(self, payload)

    def abandoned(self) -> None:
        """See Receiver."""
        self._loan = self._reserved = None
        callback, self.on_abandoned = self.on_abandoned, None
        if callback is not None:
            callback()

    def resume(self) -> None:
        """See Receiver."""

    @property
    def _head(self) -> bytes:
        compression = self._compression
        return HEAD if compression is None or not compression.answers else CODED_HEADS[compression.coding]

    @property
    def _lacking(self) -> bool:
        """Whether the call can't begin yet."""
        return self._message is None

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._stream.ended_here

    def answer(self, payload: bytes) -> None:
        """Send the one answer, and that all went well."""
        self.on_abandoned = self._reserved = None
        if self._compression is None:
            self._stream.respond(HEAD, b"\x00" + len(payload).to_bytes(4, "big") + payload, OK)
        else:
            self._loan = None
            self._compression.deflate(payload, self._respond)

    def _respond(self, message: bytes) -> None:
        if not self.gone:
            self._stream.respond(self._head, message, OK)

    def fail(self, error: RequestError) -> None:
        """Send that the call failed: a head that is all there is."""
        self.on_abandoned = self._loan = self._reserved = None
        self._stream.finish(refusal(error))

    def drain(self) -> None:
        """See Receiver: a request that is not whole is nobody's, and its caller may send it elsewhere."""
        if not self._begun:
            self._stream.reset(Code.REFUSED_STREAM)

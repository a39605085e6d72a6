"""gRPC's calls over HTTP/2 streams: messages that come in pieces, and what answers them (grpc/grpc, doc/PROTOCOL-HTTP2.md).

Knows nothing of models: a method is what takes a message and answers the call.
"""

import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.grpc_status import HEAD, LEAVING, OK, ending, refusal
from inference_worker.serve.http2_frames import Code
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from inference_worker.serve.inference import Arrival
from inference_worker.serve.messages import ModelInferResponse, ModelStreamInferResponse

_STREAM_BACKLOG = 64
"""Messages of one stream that are under way at a time."""

Reply = Callable[[bytes | RequestError], None]
Method = Callable[["Call", bytes], None]
Infer = Callable[[bytes, Arrival, Reply], Callable[[], None] | None]
"""Run one ModelInferRequest and tell the reply, now or later; returns what to call when the caller leaves."""


class Call:
    """One call of a method: gathers messages from a stream's bytes and sends what comes back. Implements Receiver."""

    def __init__(self, stream: Stream, method: Method, arrival: Arrival, decompress: Callable[[bytes], bytes] | None) -> None:
        self._stream = stream
        self._method = method
        self._decompress = decompress
        self._buffer = b""
        self._chunks: list[bytes] = []
        self._size = 0
        self._wanted = 0
        self._begun = False
        self._message: bytes | None = None
        self.arrival = arrival
        # From the first moment: a head whose message never comes is given up too.
        stream.incomplete_since = stream.arrived
        self.on_abandoned: Callable[[], None] | None = None

    def data(self, chunk: bytes) -> None:
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

    def _messages(self, data: bytes) -> int:
        position = 0
        self._wanted = 0
        while len(data) - position >= 5 and not self._stream.ended_here:
            length = int.from_bytes(data[position + 1 : position + 5], "big")
            if length > BODY_LIMIT_BYTES:
                raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message's limit is {BODY_LIMIT_BYTES} bytes")
            end = position + 5 + length
            if end > len(data):
                self._wanted = end - position
                break
            self._take(self._plain(data[position], data[position + 5 : end]))
            position = end
        return position

    def _plain(self, flag: int, payload: bytes) -> bytes:
        if flag == 0:
            return payload
        if flag != 1 or self._decompress is None:
            raise RequestError(HTTPStatus.NOT_IMPLEMENTED, "a compressed message in an encoding that was not announced")
        return self._decompress(payload)

    def _take(self, payload: bytes) -> None:
        if self._message is not None:
            raise bad("a second message in a call that takes one")
        self._message = payload

    def end(self) -> None:
        """See Receiver."""
        if self._message is None or self._size:
            self.fail(bad("the call ended before its message did"))
            return
        payload, self._message, self._begun = self._message, b"", True
        self._method(self, payload)

    def abandoned(self) -> None:
        """See Receiver."""
        callback, self.on_abandoned = self.on_abandoned, None
        if callback is not None:
            callback()

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
        self.on_abandoned = None
        self._stream.respond(HEAD, b"\x00" + len(payload).to_bytes(4, "big") + payload, OK)

    def fail(self, error: RequestError) -> None:
        """Send that the call failed: a head that is all there is."""
        self.on_abandoned = None
        self._stream.finish(refusal(error))

    def drain(self) -> None:
        """See Receiver: a request that is not whole is nobody's, and its caller may send it elsewhere."""
        if not self._begun:
            self._stream.reset(Code.REFUSED_STREAM)


class StreamCall(Call):
    """A call that takes and gives messages one after another. Answers keep the order of their requests."""

    def __init__(self, infer: Infer, stream: Stream, arrival: Arrival, decompress: Callable[[bytes], bytes] | None) -> None:
        super().__init__(stream, _no_single_message, arrival, decompress)
        self._infer = infer
        self._slots: list[list[bytes]] = []
        self._cancels: dict[int, Callable[[], None]] = {}
        # A stream may be silent for as long as it likes.
        stream.incomplete_since = None
        self._held: deque[bytes] = deque()
        self._ended = self._started = False
        self._trailers = OK

    def _take(self, payload: bytes) -> None:
        if len(self._slots) >= _STREAM_BACKLOG or self._held:
            # Read later: its sender is kept waiting by its window, not refused.
            self._held.append(payload)
            self._stream.held = True
            return
        self._ask(payload)

    @property
    def _lacking(self) -> bool:
        return False

    def _ask(self, payload: bytes) -> None:
        slot: list[bytes] = []
        self._slots.append(slot)

        def reply(answer: bytes | RequestError) -> None:
            self._cancels.pop(id(slot), None)
            slot.append(_stream_message(answer))
            self._send()

        cancel = self._infer(payload, self._arrival(), reply)
        if cancel is not None and not slot:
            self._cancels[id(slot)] = cancel

    def _arrival(self) -> Arrival:
        """Of one message: what its own parameters allow counts from now, the stream's time-out from the stream's beginning."""
        now, timeout = time.monotonic(), self.arrival.timeout_seconds
        left = None if timeout is None else self.arrival.instant + timeout - now
        return Arrival(now, left, self.arrival.traceparent)

    def end(self) -> None:
        """See Receiver."""
        if self._size:
            self.fail(bad("the stream ended before its message did"))
            return
        self._ended = True
        self._send()

    def drain(self) -> None:
        """See Receiver: no message is taken any more; the stream ends when those that were are answered."""
        self._held.clear()
        self._ended, self._trailers = True, LEAVING
        self._send()

    def fail(self, error: RequestError) -> None:
        """See Call; once the head is sent, only trailers can follow."""
        if not self._started:
            super().fail(error)
            return
        self._stream.finish(ending(error))

    def abandoned(self) -> None:
        """See Receiver."""
        cancels, self._cancels = list(self._cancels.values()), {}
        for cancel in cancels:
            cancel()

    def _send(self) -> None:
        if self.gone:
            return
        if not self._started:
            self._started = True
            self._stream.start(HEAD)
        while self._slots and self._slots[0]:
            (payload,) = self._slots.pop(0)
            self._stream.write(b"\x00" + len(payload).to_bytes(4, "big") + payload)
        while self._held and len(self._slots) < _STREAM_BACKLOG and not self.gone:
            self._ask(self._held.popleft())
        if not self._held:
            self._stream.release()
        if self._ended and not self._slots and not self._held:
            self._stream.finish(self._trailers)


def _no_single_message(call: Call, payload: bytes) -> None:
    raise AssertionError(f"a stream has no single message ({call}, {len(payload)} bytes)")


def _stream_message(answer: bytes | RequestError) -> bytes:
    if isinstance(answer, RequestError):
        failed: bytes = ModelStreamInferResponse(error_message=answer.message).SerializeToString()
        return failed
    response = ModelStreamInferResponse(infer_response=ModelInferResponse.FromString(answer))
    # Every request has one answer here, which is therefore its last; clients of models that give several wait for this.
    response.infer_response.parameters["triton_final_response"].bool_param = True
    sent: bytes = response.SerializeToString()
    return sent

"""gRPC's calls of several messages: those that are told many, and those that take and give one after another."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.grpc_calls import Call, Reply
from inference_worker.serve.grpc_compression import Compression, framed
from inference_worker.serve.grpc_status import LEAVING, OK, ending
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import Payload
from inference_worker.serve.inference import Arrival

_BACKLOG = 64
"""Messages of one stream that are under way at a time."""

Answerer = Callable[[Payload, Arrival, Reply], Callable[[], None] | None]
"""Answer one message of a stream and tell the reply, now or later; returns what to call when the caller leaves."""


class WatchCall(Call):
    """A call that takes one message and is told many. `on_abandoned` is called at its end, whichever that is."""

    def __init__(
        self,
        watch: Callable[[WatchCall, Payload], None],
        stream: Stream,
        arrival: Arrival,
        compression: Compression | None = None,
    ) -> None:
        super().__init__(stream, lambda _, payload: watch(self, payload), arrival, compression)
        self._started = False

    @property
    def held_back(self) -> bool:
        """Whether the caller has not read what it was told."""
        return self._stream.waiting

    def tell(self, payload: bytes) -> None:
        """Send one message."""
        if self.gone:
            return
        if not self._started:
            self._started = True
            self._stream.start(self._head)
        self._stream.write(framed(payload))

    def drain(self) -> None:
        """See Receiver."""
        if not self._started:
            super().drain()
            return
        self.abandoned()
        self._stream.finish(LEAVING)


class StreamCall(Call):
    """A call that takes and gives messages one after another. Answers keep the order of their requests."""

    def __init__(
        self,
        answer: Answerer,
        stream: Stream,
        arrival: Arrival,
        compression: Compression | None = None,
        *,
        told: Callable[[RequestError], bytes] | None = None,
    ) -> None:
        """`told` makes the message that tells a refusal; without it a refusal ends the stream."""
        super().__init__(stream, _no_single_message, arrival, compression)
        self._answer_one = answer
        self._told = told
        self._slots: list[list[bytes]] = []
        self._cancels: dict[int, Callable[[], None]] = {}
        # A stream may be silent for as long as it likes.
        stream.incomplete_since = None
        # As they came: what is inflated in advance would be bounded by nothing.
        self._held: deque[tuple[int, Payload]] = deque()
        self._ended = self._started = self._sending = False
        self._trailers = OK

    def _take(self, flag: int, payload: Payload) -> None:
        if len(self._slots) >= _BACKLOG or self._held or self._stream.waiting:
            # Read later: its sender is kept waiting by its window, not refused. So is one that does not read its answers.
            self._held.append((flag, payload))
            self._stream.held = True
            return
        self._ask(flag, payload)

    @property
    def _lacking(self) -> bool:
        return False

    def _ask(self, flag: int, payload: Payload) -> None:
        # Whole: what it takes from now on is bounded by the messages that are under way.
        self._reserved = None
        slot: list[bytes] = []
        self._slots.append(slot)
        arrival, compression = self._arrival(), self._compression

        def send(message: bytes) -> None:
            slot.append(message)
            self._send()

        def reply(answer: bytes | RequestError) -> None:
            self._cancels.pop(id(slot), None)
            if not isinstance(answer, RequestError):
                message = answer
            elif self._told is not None:
                message = self._told(answer)
            else:
                self.fail(answer)
                return
            if compression is None:
                send(framed(message))
            else:
                compression.deflate(message, send)

        def ask(plain: Payload | RequestError) -> None:
            if self.gone:
                return
            if isinstance(plain, RequestError):
                # Without room for one message the others go on; what is damaged ends the stream.
                (reply if plain.status is HTTPStatus.TOO_MANY_REQUESTS else self.fail)(plain)
                return
            cancel = self._answer_one(plain, arrival, reply)
            if cancel is not None and not slot:
                self._cancels[id(slot)] = cancel

        if flag and compression is not None:
            compression.inflate(payload, reply, ask)
        else:
            ask(payload)

    def _arrival(self) -> Arrival:
        """Of one message: what its own parameters allow counts from now, the stream's time-out from the stream's beginning."""
        now, timeout = time.monotonic(), self.arrival.timeout_seconds
        left = None if timeout is None else self.arrival.instant + timeout - now
        return Arrival(now, left, headers=self.arrival.headers)

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
        self._reserved = None
        self._stream.finish(ending(error))

    def abandoned(self) -> None:
        """See Receiver."""
        self._reserved = None
        cancels, self._cancels = list(self._cancels.values()), {}
        for cancel in cancels:
            cancel()

    def resume(self) -> None:
        """See Receiver."""
        self._send()

    def _send(self) -> None:
        # An answer at once comes back here: the loop that asked goes on with it, or each message would be a level deeper.
        if self.gone or self._sending:
            return
        self._sending = True
        if not self._started:
            self._started = True
            self._stream.start(self._head)
        while not self.gone:
            if self._slots and self._slots[0]:
                (message,) = self._slots.pop(0)
                self._stream.write(message)
            elif self._held and len(self._slots) < _BACKLOG and not self._stream.waiting:
                self._ask(*self._held.popleft())
            else:
                break
        self._sending = False
        if self.gone:
            return
        if not self._held:
            self._stream.release()
        if self._ended and not self._slots and not self._held:
            self._stream.finish(self._trailers)


def _no_single_message(call: Call, payload: Payload) -> None:
    raise AssertionError(f"a stream has no single message ({call}, {len(payload)} bytes)")

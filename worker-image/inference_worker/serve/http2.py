"""A small HTTP/2 server for gRPC: one protocol object a connection, streams that talk to whoever handles them.

It is our own because grpcio's Python server costs two to three times the CPU of all of this with the handler (docs/adr/0005). It
speaks what a gRPC server needs of RFC 9113: no push, no upgrade, no priorities. What a peer can make us keep or send is bounded:
header blocks, frames, streams, resets and control frames without work.

The module is longer than others, since the connection's state machine stays one
class: its frames change the same fields, and each call between two objects would be paid
for by every request. What has no state is in `http2_frames`, what belongs to one request in `http2_stream`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from inference_worker.serve.connections import STALL_SECONDS, CallerTimers, Connections
from inference_worker.serve.http2_frames import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    FRAME_HEADER_BYTES,
    HEADER_LIST_BYTES,
    LARGEST_WINDOW,
    PREFACE,
    Code,
    ConnectionFaultError,
    Flag,
    Kind,
    Setting,
    StreamFaultError,
    frame,
    goaway,
    read_frame_head,
    read_settings,
    settings_frame,
    unpadded,
    window_update,
    without_priority,
)
from inference_worker.serve.http2_headers import HeaderReader
from inference_worker.serve.http2_stream import STREAM_WINDOW, Stream

log = logging.getLogger(__name__)

# Comparing with an enum's member costs a look-up each time; these are compared for every frame.
DATA, HEADERS, CONTINUATION, SETTINGS = int(Kind.DATA), int(Kind.HEADERS), int(Kind.CONTINUATION), int(Kind.SETTINGS)

MAX_STREAMS = 1024
FRAME_LIMIT_BYTES = 1 << 20
"""Larger frames than the default 16 KiB, since a tensor of a megabyte should not be sixty-four of them."""

CONNECTION_WINDOW = 16 << 20
_TURN_BYTES = 1 << 16
"""After so much, others come first. The loop would read on from a caller that sends as fast as it is read, 32 times, and all that
time no run would be begun and nobody answered."""

_IDLE_CHATTER = 1000
"""Control frames that a peer may send without any request among them, and resets beyond the streams that it let end."""

_RESETS_A_SECOND = 100.0
# A malformed header block counts as one reset more for each so many bytes.
_RESET_BYTES = 64
_SETTINGS_LIMIT = 64
HIGH_WATER_BYTES = 16 << 20
"""While flow control holds more of the answers back, no further request is begun on the connection."""

_OUT_FRAMES = 64
"""After so many answers at once others have their turn, and the transport says whether it is full."""

Handler = Callable[[Stream], None]


class Http2Protocol(CallerTimers, asyncio.Protocol):
    """Parses a connection's bytes into frames and keeps its streams."""

    # Python is slow with more than thirty attributes otherwise.
    __slots__ = (
        "_block",
        "_block_at",
        "_buffer",
        "_buffered",
        "_chatter",
        "_connections",
        "_deferred",
        "_deferred_bytes",
        "_ending",
        "_frame_bytes",
        "_greeted",
        "_handler",
        "_headers",
        "_held_back",
        "_initial_window",
        "_last",
        "_out",
        "_part_since",
        "_reading",
        "_receive_window",
        "_reset_at",
        "_reset_by_us",
        "_resets",
        "_resuming",
        "_settled",
        "_streams",
        "_taking",
        "budget",
        "frame_bytes",
        "send_window",
        "unread",
        "used",
    )

    def __init__(self, handler: Handler, connections: Connections) -> None:
        """`handler` is called with each new stream and gives it a receiver."""
        CallerTimers.__init__(self)
        self._handler = handler
        self._connections = connections
        self.budget = connections.budget
        # Whether frames are taken: the connection is there, and its peer takes what it is sent.
        self._taking = False
        self._buffer = b""
        self._buffered = 0
        self._part_since: float | None = None
        self._out: list[bytes] = []
        self._reading = False
        self._greeted = self._settled = False
        self._headers = HeaderReader(self.budget)
        self._block: tuple[int, int, bytearray] | None = None
        self._block_at = 0.0
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._reset_by_us: deque[int] = deque(maxlen=256)
        self._chatter = 0
        self._resets = self._reset_at = 0.0
        self._receive_window = CONNECTION_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._ending = False
        self.send_window = DEFAULT_WINDOW
        self.frame_bytes = self._frame_bytes = DEFAULT_FRAME_BYTES
        self.used = 0.0
        # Answers: what flow control holds back, what the transport did when it was full, and both.
        self._held_back = self.unread = 0
        # What is not given to its stream while too many answers wait, and its size.
        self._deferred: deque[tuple[Stream, bytes, bool]] = deque()
        self._deferred_bytes = 0
        self._resuming = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what we allow."""
        # uvloop's transports do not derive from asyncio's, so only the type checker can be told.
        self._transport = cast(asyncio.Transport, transport)
        self._taking = True
        self.used = time.monotonic()
        if not self._connections.add(self):
            self.write(settings_frame({}))
            self._end(Code.ENHANCE_YOUR_CALM, "the worker has all the connections that it may")
            return
        self._stall = asyncio.get_running_loop().call_later(STALL_SECONDS, self._stalled)
        self.write(
            settings_frame(
                {
                    Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
                    Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                    Setting.MAX_FRAME_SIZE: FRAME_LIMIT_BYTES,
                    Setting.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES,
                }
            )
            + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
        )

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The caller is gone: nobody waits for what its streams asked."""
        self._transport = None
        self._taking = False
        self._clear_stall()
        self._clear_untaken()
        self._abandon_all()
        self._keep(b"")
        self._headers.forget()
        self._connections.discard(self)

    def pause_writing(self) -> None:
        """The peer takes less than it is sent: nothing more is read, and no body sent, until it has caught up."""
        self._taking = False
        self.frame_bytes = 0
        if self._transport is not None:
            self._transport.pause_reading()
            self._watch_taken(self._transport)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._clear_untaken()
        if self._transport is None or self._transport.is_closing():
            return
        self._unsent = 0
        self._taking, self.frame_bytes = True, self._frame_bytes
        self._count_unread()
        self._send_held_back()
        self._read_on()

    def _read_on(self) -> None:
        """Take the frames that came while the peer was behind, and then those that come."""
        if self._buffer and self._taking:
            self.data_received(b"")
        if self._taking and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole; what they cause to be sent goes out together."""
        if self._ending and not self._streams:
            return
        self.used = time.monotonic()
        self._reading = True
        try:
            self._read(self._buffer + data if self._buffer else data)
        except ConnectionFaultError as fault:
            self._end(fault.code, str(fault))
        finally:
            self._reading = False
            self._flush_out()
        if len(data) >= _TURN_BYTES and self._taking and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._taking and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # reading

    def _read(self, data: bytes) -> None:
        position = 0
        if not self._greeted:
            if not data.startswith(PREFACE):
                if PREFACE.startswith(data):
                    self._keep(data)
                    return
                raise ConnectionFaultError(Code.PROTOCOL_ERROR, "not the preface of HTTP/2")
            self._greeted, position = True, len(PREFACE)
            self._clear_stall()
        size = len(data)
        while size - position >= FRAME_HEADER_BYTES and self._taking:
            word, flags, stream = read_frame_head(data, position)
            if word >> 8 > FRAME_LIMIT_BYTES:
                raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "a frame is too large")
            end = position + FRAME_HEADER_BYTES + (word >> 8)
            if end > size:
                break
            try:
                self._frame(word & 0xFF, flags, stream & LARGEST_WINDOW, data[position + FRAME_HEADER_BYTES : end])
            except StreamFaultError as fault:
                self._fail_stream(fault.stream, fault.code)
                # Whoever has us reset streams costs as much as one that resets them itself (CVE-2025-8671).
                self._count_reset()
            position = end
            if len(self._out) >= _OUT_FRAMES:
                self._yield()
        if position < size or self._buffered:
            if position:
                self._part_since = None
            self._keep(data[position:])

    def _keep(self, rest: bytes) -> None:
        """Keep what is not taken yet: a frame that is not whole, or all that follows while the peer is behind."""
        self.budget.hold(len(rest) - self._buffered)
        self._buffer, self._buffered = rest, len(rest)
        if not rest:
            self._part_since = None
        elif self._part_since is None:
            self._part_since = self.used

    def _yield(self) -> None:
        """Send what has gathered, and read on in the event loop's next round: one packet can ask for thousands of answers."""
        self._flush_out()
        if self._taking and self._transport is not None:
            self._taking = False
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._take_on)

    def _take_on(self) -> None:
        # Nothing to do where the transport has said by now that it is full.
        if self.frame_bytes and self._transport is not None and not self._transport.is_closing():
            self._taking = True
            self._read_on()

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a header block is interrupted")
        if not self._settled and kind != SETTINGS:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == DATA:
            self._on_data(flags, stream, payload)
        elif kind == HEADERS:
            self._on_headers(flags, stream, payload)
        else:
            self._seldom(kind, flags, stream, payload)

    def _seldom(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        match kind:
            case Kind.WINDOW_UPDATE:
                self._on_window_update(stream, payload)
            case Kind.RST_STREAM:
                self._on_reset(stream, payload)
            case Kind.CONTINUATION:
                self._on_continuation(flags, stream, payload)
            case Kind.PRIORITY:
                self._on_priority(stream, payload)
            case Kind.PUSH_PROMISE:
                raise ConnectionFaultError(Code.PROTOCOL_ERROR, "clients do not push")
            case _:
                self._connection_frame(kind, flags, stream, payload)

    def _connection_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (Kind.SETTINGS, Kind.PING, Kind.GOAWAY) and stream:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a frame of the connection names a stream")
        match kind:
            case Kind.PING:
                self._on_ping(flags, payload)
            case Kind.SETTINGS:
                self._on_settings(flags, payload)
            case Kind.GOAWAY:
                self._on_goaway(payload)
            case _:
                # Unknown types are to be ignored (RFC 9113, 4.1), but not without end.
                self._count_chatter()

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, "more data than the window allows")
        if self._receive_window < CONNECTION_WINDOW // 2:
            self._refill_connection()
        stream = self._streams.get(number)
        if stream is None or stream.ended_there:
            self._require_known(number)
            if number in self._reset_by_us:
                if not size:
                    self._count_chatter()
                return
            raise StreamFaultError(number, Code.STREAM_CLOSED)
        body = unpadded(payload, flags)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFaultError(number, Code.FLOW_CONTROL_ERROR)
        stream.received += len(body)
        ended = bool(flags & Flag.END_STREAM)
        if not size and not ended:
            self._count_chatter()
        if stream.announced is not None and (stream.received > stream.announced or (ended and stream.received != stream.announced)):
            raise StreamFaultError(number, Code.PROTOCOL_ERROR)
        if ended:
            stream.ended_there = True
        if body:
            self._chatter = 0
        self._deliver(stream, body, ended=ended)
        if not ended and not stream.ended_here and not stream.held and not self._deferred:
            self.refill(stream)

    def _refill_connection(self) -> None:
        if not self._deferred:
            self.write(window_update(0, CONNECTION_WINDOW - self._receive_window))
            self._receive_window = CONNECTION_WINDOW

    def refill(self, stream: Stream) -> None:
        """See Sender."""
        if stream.receive_window < STREAM_WINDOW // 2 and not stream.ended_there:
            self.write(window_update(stream.id, STREAM_WINDOW - stream.receive_window))
            stream.receive_window = STREAM_WINDOW

    def _on_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "clients open odd streams")
        payload = unpadded(payload, flags)
        if flags & Flag.PRIORITY:
            payload = without_priority(payload, number)
        if len(payload) > HEADER_LIST_BYTES:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many headers")
        if flags & Flag.END_HEADERS:
            self._on_block(number, flags, payload)
        else:
            self._block, self._block_at = (number, flags, bytearray(payload)), self.used

    def _on_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a continuation of nothing")
        _, first, gathered = self._block
        gathered += payload
        if len(gathered) > HEADER_LIST_BYTES:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many headers")
        if not payload:
            self._count_chatter()
        if flags & Flag.END_HEADERS:
            self._block = None
            self._on_block(number, first, bytes(gathered))

    def _on_block(self, number: int, flags: int, raw: bytes) -> None:
        # Decoded in every case: both sides' tables must stay the same.
        headers = self._headers.read(raw)
        ended = bool(flags & Flag.END_STREAM)
        stream = self._streams.get(number)
        if stream is not None:
            self._on_trailers(stream, headers, ended=ended)
            return
        if number <= self._last:
            if number in self._reset_by_us:
                self._count_chatter()
                return
            raise ConnectionFaultError(Code.STREAM_CLOSED, "a stream is opened twice")
        self._last = number
        if self._ending:
            return
        if headers is None or not headers.keys() >= {":method", ":path", ":scheme"} or not headers[":path"]:
            # To find that out has cost the more the longer the block is.
            self._resets += len(raw) // _RESET_BYTES
            raise StreamFaultError(number, Code.PROTOCOL_ERROR)
        if len(self._streams) >= MAX_STREAMS:
            raise StreamFaultError(number, Code.REFUSED_STREAM)
        self._chatter = 0
        stream = self._streams[number] = Stream(self, number, headers, self._initial_window)
        try:
            self._handler(stream)
        except Exception:
            log.exception("a request failed")
            stream.reset(Code.INTERNAL_ERROR)
            return
        if ended:
            if stream.announced:
                raise StreamFaultError(number, Code.PROTOCOL_ERROR)
            stream.ended_there = True
            self._deliver(stream, b"", ended=True)

    def _on_trailers(self, stream: Stream, headers: dict[str, str] | None, *, ended: bool) -> None:
        if stream.ended_there:
            raise StreamFaultError(stream.id, Code.STREAM_CLOSED)
        if not ended or headers is None or any(name.startswith(":") for name in headers):
            raise StreamFaultError(stream.id, Code.PROTOCOL_ERROR)
        stream.ended_there = True
        self._deliver(stream, b"", ended=True)

    def _deliver(self, stream: Stream, body: bytes, *, ended: bool) -> None:
        if self._deferred or self._held_back > HIGH_WATER_BYTES:
            self._deferred.append((stream, body, ended))
            self._deferred_bytes += len(body)
            self.budget.hold(len(body))
            return
        receiver = stream.receiver
        if receiver is None or stream.ended_here:
            return
        try:
            if body:
                receiver.data(body)
            if ended and not stream.ended_here:
                receiver.end()
        except Exception:
            log.exception("a request failed")
            stream.reset(Code.INTERNAL_ERROR)

    def _hand_deferred(self) -> None:
        """Give streams what was kept from them, as far as their answers have room."""
        self._resuming = False
        deferred, self._deferred = self._deferred, deque()
        self.budget.give(self._deferred_bytes)
        self._deferred_bytes = 0
        for stream, body, ended in deferred:
            # From the first that does not fit on they wait again, in the same order.
            self._deliver(stream, body, ended=ended)
            if not self._deferred and not ended and not stream.ended_here and not stream.held:
                self.refill(stream)
        if self._receive_window < CONNECTION_WINDOW // 2:
            self._refill_connection()

    def _on_window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "a window update has four bytes")
        increment = int.from_bytes(payload, "big") & LARGEST_WINDOW
        if not number:
            was_open = self.send_window > 0
            self.send_window += increment
            if not increment or self.send_window > LARGEST_WINDOW:
                raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR if increment else Code.PROTOCOL_ERROR, "a window of no size")
            if not was_open:
                self._send_held_back()
            return
        waiting = self._streams.get(number)
        if waiting is None:
            self._require_known(number)
            return
        waiting.send_window += increment
        if not increment or waiting.send_window > LARGEST_WINDOW:
            raise StreamFaultError(number, Code.FLOW_CONTROL_ERROR if increment else Code.PROTOCOL_ERROR)
        waiting.flush()

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "a ping has eight bytes")
        if not flags & Flag.ACK:
            self._count_chatter()
            self.write(frame(Kind.PING, Flag.ACK, 0, payload))

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & Flag.ACK and payload):
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "settings have six bytes each")
        if len(payload) > 6 * _SETTINGS_LIMIT:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many settings")
        if flags & Flag.ACK:
            return
        self._settled = True
        self._count_chatter()
        # Before anything that the new values let out (RFC 9113, 6.5.3).
        self.write(frame(Kind.SETTINGS, Flag.ACK, 0))
        for key, value in read_settings(payload):
            if key == Setting.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
            elif key == Setting.MAX_FRAME_SIZE:
                self._frame_bytes = value
                if self.frame_bytes:
                    self.frame_bytes = value

    def _resize_windows(self, size: int) -> None:
        """Let streams send as much at a time as the peer takes now, those under way among them (RFC 9113, 6.9.2)."""
        change, self._initial_window = size - self._initial_window, size
        for stream in list(self._streams.values()):
            stream.send_window += change
            if stream.send_window > LARGEST_WINDOW:
                raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, "a window is too large")
            stream.flush()

    def _on_reset(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "a reset has four bytes")
        self._require_known(number)
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        stream.ended_here = True
        self._abandon(stream)
        self._count_reset()

    def _count_reset(self) -> None:
        # Opening streams only to have them reset costs the peer nothing and us much (CVE-2023-44487); some a second are no attack.
        self._resets = max(0.0, self._resets - (self.used - self._reset_at) * _RESETS_A_SECOND) + 1
        self._reset_at = self.used
        if self._resets > _IDLE_CHATTER:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many streams are opened and reset")

    def _on_priority(self, number: int, payload: bytes) -> None:
        if not number:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a priority belongs to a stream")
        if len(payload) != 5:
            raise StreamFaultError(number, Code.FRAME_SIZE_ERROR)
        if int.from_bytes(payload[:4], "big") & LARGEST_WINDOW == number:
            raise StreamFaultError(number, Code.PROTOCOL_ERROR)
        self._count_chatter()

    def _on_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "goaway has eight bytes")
        self._ending = True
        self._close_if_done()

    def _require_known(self, number: int) -> None:
        if not number or number > self._last or not number & 1:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a frame for a stream that was never opened")

    def _count_chatter(self) -> None:
        self._chatter += 1
        if self._chatter > _IDLE_CHATTER:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    # writing

    def write(self, data: bytes) -> None:
        """Send bytes; while frames are being read, together with what else they cause."""
        if self._reading:
            self._out.append(data)
        elif self._transport is not None:
            self._transport.write(data)

    def _flush_out(self) -> None:
        if self._out:
            out, self._out = self._out, []
            if self._transport is not None:
                self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    def held_back(self, change: int) -> None:
        """See Sender."""
        self._held_back += change
        self._count_unread()
        if self._deferred and not self._resuming and self._held_back <= HIGH_WATER_BYTES // 2:
            self._resuming = True
            asyncio.get_running_loop().call_soon(self._hand_deferred)

    def _count_unread(self) -> None:
        self._connections.left_unread(self, self._held_back + self._unsent)

    def _send_held_back(self) -> None:
        """Send what streams hold back, as far as the peer allows."""
        for stream in [one for one in self._streams.values() if one.waiting]:
            if self.send_window <= 0 or not self.frame_bytes:
                return
            stream.flush()

    def finished(self, stream: Stream) -> None:
        """A stream's answer is on its way."""
        self._resets = max(0.0, self._resets - 1)
        if not stream.ended_there:
            # The answer came before the request's end: nothing more of it is wanted.
            self.write(frame(Kind.RST_STREAM, 0, stream.id, Code.NO_ERROR.to_bytes(4, "big")))
            self._reset_by_us.append(stream.id)
        self._streams.pop(stream.id, None)
        self._close_if_done()

    def reset(self, number: int, code: Code) -> None:
        """End a stream with an error."""
        self.write(frame(Kind.RST_STREAM, 0, number, code.to_bytes(4, "big")))
        self._reset_by_us.append(number)
        self._streams.pop(number, None)
        self._close_if_done()

    def _fail_stream(self, number: int, code: Code) -> None:
        self._last = max(self._last, number)
        stream = self._streams.get(number)
        self.reset(number, code)
        if stream is not None:
            stream.ended_here = True
            self._abandon(stream)

    def _abandon_all(self) -> None:
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.ended_here = True
            self._abandon(stream)
        self._deferred.clear()
        self.budget.give(self._deferred_bytes)
        self._deferred_bytes = 0

    @staticmethod
    def _abandon(stream: Stream) -> None:
        stream.drop()
        receiver, stream.receiver = stream.receiver, None
        if receiver is not None:
            receiver.abandoned()

    # the end

    @property
    def idle(self) -> bool:
        """See Connection."""
        return not self._streams

    def announce_end(self) -> None:
        """See Connection: the caller is told to go elsewhere for its next requests; those on their way are still taken."""
        self.write(goaway(LARGEST_WINDOW, Code.NO_ERROR))

    def close_when_idle(self) -> None:
        """See Connection."""
        was_closing = self._ending and not self._streams
        if not self._ending:
            self._ending = True
            self.write(goaway(self._last, Code.NO_ERROR))
        for stream in list(self._streams.values()):
            if stream.receiver is not None:
                stream.receiver.drain()
        self._close_if_done()
        if was_closing and self._transport is not None:
            # Its peer does not take the rest.
            self._transport.abort()

    def end_unread(self) -> None:
        """See Connection."""
        self._end(Code.ENHANCE_YOUR_CALM, f"answers were not taken within {STALL_SECONDS:.0f} s, or too many of them wait")
        if self._transport is not None:
            self._transport.abort()

    def end_stalled(self, before: float) -> None:
        """See Connection: a stream whose message is still not whole is given up, and one whose answer is not taken."""
        half = (self._part_since is not None and self._part_since < before) or (self._block is not None and self._block_at < before)
        if half and self._taking:
            self._end(Code.ENHANCE_YOUR_CALM, f"a frame or a header block was not whole within {STALL_SECONDS:.0f} s")
            return
        blocked = [s for s in self._streams.values() if s.blocked_since is not None and s.blocked_since < before]
        if blocked and self.send_window <= 0:
            self.end_unread()
            return
        for stream in blocked:
            self._fail_stream(stream.id, Code.CANCEL)
        if self._deferred:
            # Requests that are kept from their streams are not late.
            return
        stalled = [s for s in self._streams.values() if s.incomplete_since is not None and s.incomplete_since < before]
        for stream in stalled:
            self._fail_stream(stream.id, Code.CANCEL)

    def _close_if_done(self) -> None:
        if self._ending and not self._streams and self._transport is not None:
            self._flush_out()
            self._transport.close()

    def _end(self, code: Code, text: str) -> None:
        log.debug("connection ended: %s: %s", code.name, text)
        self._ending = True
        self._out.append(goaway(self._last, code, text))
        self._flush_out()
        self._taking = False
        self._abandon_all()
        if self._transport is not None:
            self._transport.close()

    def _stalled(self) -> None:
        self._stall = None
        self._end(Code.PROTOCOL_ERROR, f"nothing was said within {STALL_SECONDS:.0f} s")

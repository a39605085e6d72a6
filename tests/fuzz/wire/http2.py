"""Callers over HTTP/2: streams that are framed well and hold anything, then frames that are not even that."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import hpack
from hpack.exceptions import HPACKError

from tests.fuzz.wire.mutation import mutated
from tests.fuzz.wire.tally import DEADLINE_SECONDS, BrokenPromiseError
from tests.process.wire2 import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

STREAMS = 40
_CONTINUATION, _PRIORITY, _PADDED = 9, 2, 8
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_WIDE = (1 << 30).to_bytes(4, "big")
_OPENING = _PREFACE + frame(SETTINGS, 0, 0, b"\0\4" + _WIDE) + frame(WINDOW_UPDATE, 0, 0, _WIDE)


@dataclass(frozen=True)
class Call:
    """A request; `right` is what the answer's bytes have to hold, where that is known, `unless` gRPC's status is this one."""

    path: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    right: bytes | None = None
    unless: str = ""


def _text(data: bytes) -> bytes:
    size = len(data)
    return (bytes([size]) if size < 127 else b"\x7f" + _integer(size - 127)) + data


def _integer(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def block(call: Call) -> bytes:
    """A header block that leaves no trace in the table, so that each can be made on its own."""
    usual = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", call.path), (b":authority", b"a"), (b"te", b"trailers"))
    fields = (*usual, (b"content-type", b"application/grpc"), *call.headers)
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def frames(rng: Random, stream: int, call: Call) -> bytes:
    """A whole request, cut in one of the ways in which it may be."""
    raw, body, kind = block(call), call.body, rng.randrange(8)
    if kind == 0:
        cut = rng.randrange(len(raw))
        head = frame(HEADERS, 0, stream, raw[:cut]) + frame(_CONTINUATION, END_HEADERS, stream, raw[cut:])
    elif kind == 1:
        head = frame(HEADERS, END_HEADERS | _PADDED, stream, b"\x05" + raw + bytes(5))
    else:
        head = frame(HEADERS, END_HEADERS, stream, raw)
    if kind == 2:
        cut = rng.randrange(len(body) + 1)
        return head + frame(DATA, 0, stream, body[:cut]) + frame(DATA, END_STREAM, stream, body[cut:])
    if kind == 3:
        return head + frame(PING, 0, 0, b"12345678") + frame(DATA, END_STREAM | _PADDED, stream, b"\x03" + body + bytes(3))
    if kind == 4:
        return frame(_PRIORITY, 0, stream, b"\0\0\0\0\7") + head + frame(DATA, END_STREAM, stream, body)
    return head + frame(DATA, END_STREAM, stream, body)


def broken(rng: Random, stream: int, call: Call) -> bytes:
    """Frames of any kind with any flags, header blocks that were turned, lengths that lie."""
    kind = rng.randrange(4)
    if kind == 0:
        return frame(HEADERS, rng.choice((4, 5, 13, 45)), stream, mutated(rng, block(call), 8)) + frame(DATA, 1, stream, call.body)
    if kind == 1:
        return mutated(rng, frames(rng, stream, call), 6)
    if kind == 2:
        return b"".join(
            frame(
                rng.randrange(12), rng.randrange(256), rng.choice((0, 1, 2, stream, stream + 2)), rng.randbytes(rng.randrange(20))
            )
            for _ in range(rng.randint(1, 12))
        )
    settings = struct.pack(">HI", rng.randrange(9), rng.choice((0, 1, 16384, 1 << 24, (1 << 32) - 1)))
    return frame(SETTINGS, 0, 0, settings) + frames(rng, stream, call)


class Caller2:
    """One connection; `heads` and `bodies` are what came, by stream."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        # Whatever the caller announces, servers keep no table for it that is larger than this decoder's 4 KiB.
        self._decoder = hpack.Decoder()
        self.statuses: dict[int, str] = {}
        self.bodies: dict[int, bytes] = {}
        self.finished: set[int] = set()
        self.ended = False

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise BrokenPromiseError("frames were not taken") from error
        except OSError:
            # What it has said before is still to be read.
            return

    def step(self) -> None:
        """Take what has come."""
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError as error:
            raise BrokenPromiseError("no answer and no end") from error
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 9:
            size = int.from_bytes(self._buffer[at : at + 3], "big")
            if len(self._buffer) - at < 9 + size:
                break
            kind, flags, stream = self._buffer[at + 3], self._buffer[at + 4], int.from_bytes(self._buffer[at + 5 : at + 9], "big")
            self._on_frame(kind, flags, stream, self._buffer[at + 9 : at + 9 + size])
            at += 9 + size
        self._buffer = self._buffer[at:]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            try:
                fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            except HPACKError as error:
                raise BrokenPromiseError("a header block that is none") from error
            status = fields.get("grpc-status", fields.get(":status", ""))
            if "grpc-status" in fields or status != "200" or stream not in self.statuses:
                self.statuses[stream] = f"grpc {status}" if "grpc-status" in fields else f"http {status}"
        elif kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + payload
        elif kind == RST_STREAM and stream not in self.finished:
            self.statuses.setdefault(stream, "reset")
            self.finished.add(stream)
        elif kind == GOAWAY and payload[4:8] != bytes(4):
            self.statuses[0] = f"goaway {int.from_bytes(payload[4:8], 'big')}"
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.finished.add(stream)


def talk(rng: Random, port: int, make: Callable[[Random], Call], known: Call) -> Counter[str]:
    """One connection's life. Raises BrokenPromiseError."""
    calls = [make(rng) for _ in range(STREAMS)]
    calls.insert(rng.randrange(STREAMS), known)
    numbers = {1 + 2 * index: call for index, call in enumerate(calls)}
    caller = Caller2(port)
    try:
        caller.send(_OPENING + b"".join(frames(rng, number, call) for number, call in numbers.items()))
        while not caller.ended and not caller.finished >= numbers.keys():
            caller.step()
        seen = _seen(caller, numbers)
        if not caller.ended and rng.random() < 0.5:
            caller.send(broken(rng, 1 + 2 * len(calls), rng.choice(calls)))
            caller.socket.shutdown(socket.SHUT_WR)
            while not caller.ended:
                caller.step()
            seen["ended"] += 1
    except OSError:
        seen = _seen(caller, numbers)
    finally:
        caller.socket.close()
    return seen


def _seen(caller: Caller2, numbers: dict[int, Call]) -> Counter[str]:
    seen: Counter[str] = Counter(caller.statuses.get(number, "?") for number in caller.finished & numbers.keys())
    for number, call in numbers.items():
        if call.right is not None and number in caller.finished and caller.statuses.get(number) != call.unless:
            if call.right not in caller.bodies.get(number, b""):
                raise BrokenPromiseError(f"a wrong answer: {caller.statuses.get(number)} {caller.bodies.get(number, b'')[:300]!r}")
            seen["right"] += 1
    if caller.ended:
        seen[f"ended, {caller.statuses.get(0, 'no goaway')}"] += 1
    return seen

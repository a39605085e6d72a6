"""HTTP/2 and gRPC's framing by hand: what no client library would send has to be sent too."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import hpack

from tests.process.wire import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.process.harness import Worker

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS = 1, 4
_WIDE_WINDOW = 1 << 30
SERVICE = "/inference.GRPCInferenceService/"


@dataclass
class Heard:
    """What came on one stream."""

    heads: list[list[tuple[str, str]]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Head and trailers together."""
        return {name: value for head in self.heads for name, value in head}

    @property
    def grpc_status(self) -> int:
        assert "grpc-status" in self.headers, self
        return int(self.headers["grpc-status"])

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.body):
            end = at + 5 + int.from_bytes(self.body[at + 1 : at + 5], "big")
            found.append(bytes(self.body[at + 5 : end]))
            at = end
        return found


class Wire2:
    """One connection. `heard` is what came by stream, `goaway` the code that ended the connection."""

    def __init__(self, worker: Worker, *, settings: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", worker.grpc_port), timeout=PATIENCE_SECONDS)
        self._reader = self.socket.makefile("rb")
        self._encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self._next = 1
        self.heard: dict[int, Heard] = {}
        self.pongs = self.largest_frame = 0
        self.goaway: int | None = None
        wide = b"\0\4" + _WIDE_WINDOW.to_bytes(4, "big")
        opening = frame(SETTINGS, 0, 0, settings or wide) + frame(WINDOW_UPDATE, 0, 0, _WIDE_WINDOW.to_bytes(4, "big"))
        # At once: a worker that turns this caller away has closed before a second packet.
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + opening)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self.socket.close()

    def frame(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.socket.sendall(frame(kind, flags, stream, payload))

    def open(self, method: str, headers: dict[str, str] | None = None, *, end: bool = False) -> int:
        """Begin a call; returns its stream."""
        number, self._next = self._next, self._next + 2
        usual = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method if method.startswith("/") else SERVICE + method,
            ":authority": "worker",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        block = self._encoder.encode(list({**usual, **(headers or {})}.items()))
        self.heard[number] = Heard()
        self.frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), number, block)
        return number

    def send(self, stream: int, body: bytes, *, end: bool = False, step: int = 16384) -> None:
        """Body bytes, in frames of `step` bytes."""
        parts = [body[i : i + step] for i in range(0, len(body), step)] or [b""]
        for index, part in enumerate(parts):
            self.frame(DATA, END_STREAM if end and index == len(parts) - 1 else 0, stream, part)

    def call(self, method: str, body: bytes, headers: dict[str, str] | None = None, *, step: int = 16384) -> Heard:
        """A whole call and its whole answer."""
        stream = self.open(method, headers)
        self.send(stream, body, end=True, step=step)
        return self.wait(stream)

    def wait(self, stream: int) -> Heard:
        """Read until the stream has ended or was reset, or the connection did."""
        heard = self.heard[stream]
        while not heard.ended and heard.reset is None and self.step():
            pass
        return heard

    def wait_messages(self, stream: int, count: int) -> list[bytes]:
        """Read until so many messages have come, or the stream ended."""
        heard = self.heard[stream]
        while len(heard.messages) < count and not heard.ended and heard.reset is None and self.step():
            pass
        return heard.messages

    def ping(self) -> bool:
        """Whether the connection still answers."""
        before = self.pongs
        self.frame(PING, 0, 0, b"12345678")
        while self.pongs == before and self.step():
            pass
        return self.pongs > before

    def step(self) -> bool:
        """Take one frame; False when the connection is at its end."""
        try:
            head = self._reader.read(9)
        except ConnectionResetError:
            return False
        if len(head) < 9:
            return False
        payload = self._reader.read(int.from_bytes(head[:3], "big"))
        self.largest_frame = max(self.largest_frame, len(payload))
        kind, flags, number = head[3], head[4], int.from_bytes(head[5:9], "big")
        heard = self.heard.get(number, Heard())
        if kind == DATA:
            heard.body += payload
        elif kind == HEADERS:
            heard.heads.append([(str(name), str(value)) for name, value in self._decoder.decode(payload)])
        elif kind == RST_STREAM:
            heard.reset = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == PING and flags & 1:
            self.pongs += 1
        elif kind == SETTINGS and not flags & 1:
            self.frame(SETTINGS, 1, 0)
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            heard.ended = True
        return True


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def message(payload: bytes, *, flag: int = 0, length: int | None = None) -> bytes:
    """One message of gRPC's framing; `length` lies about its size."""
    return bytes((flag,)) + (len(payload) if length is None else length).to_bytes(4, "big") + payload

"""gRPC over a minimal HTTP/2: header blocks made beforehand, a fixed header table, and no flow control towards us."""

import select
import socket
import struct

from hpack import Decoder

from bench.worker.client.drive import Driver, clock
from bench.worker.client.http1 import port_now
from bench.worker.client.spec import CUT_OFF, REFUSED, RESET, from_grpc

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_LARGEST = 2**31 - 1
_READ, _WRITE = select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT
_FRAME = struct.Struct(">HBBBI")  # length in 16 + 8 bits, type, flags, stream
_MAX_FRAME = 16384


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload


def _data(stream: int, message: bytes) -> bytes:
    """A message in as many frames as it takes. Streams' own windows are taken to be larger than any message."""
    if len(message) <= _MAX_FRAME:
        return _frame(_DATA, _END_STREAM, stream, message)
    parts = [message[at : at + _MAX_FRAME] for at in range(0, len(message), _MAX_FRAME)]
    return b"".join(_frame(_DATA, _END_STREAM if part is parts[-1] else 0, stream, part) for part in parts)


def _literal(name: str, value: str) -> bytes:
    # Literal, never indexed by us: short strings need no more than a byte for their length.
    assert len(name) < 127 and len(value) < 127
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def header_block(path: str, timeout_ms: float | None) -> bytes:
    """The same block for every request."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "bench", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    if timeout_ms is not None:
        fields["grpc-timeout"] = f"{int(timeout_ms * 1000)}u"
    return b"".join(_literal(name, value) for name, value in fields.items())


class Http2:
    """A few connections, each with as many streams as come."""

    def __init__(self, driver: Driver, requests: list[bytes]) -> None:
        self.driver = driver
        self.statuses: dict[bytes, int] = {}
        self.links: list[Link] = []
        self._requests = [struct.pack(">BI", 0, len(request)) + request for request in requests]
        self._block = header_block(driver.spec.path, driver.spec.timeout_ms)
        self._turn = 0

    def send(self, number: int) -> bool:
        """See Wire."""
        if len(self.links) < self.driver.spec.connections:
            try:
                self.links.append(Link(self))
            except OSError:
                if not self.links:
                    self.driver.finish(number, REFUSED)
                    return True
        message = self._requests[number % len(self._requests)]
        for _ in self.links:
            self._turn = (self._turn + 1) % len(self.links)
            if self.links[self._turn].send(number, self._block, message):
                return True
        return False

    def status_of(self, block: bytes) -> int:
        """A trailer block's status; without a dynamic table equal blocks mean equal headers."""
        if (known := self.statuses.get(block)) is None:
            decoder = Decoder()
            headers = {bytes(name): bytes(value) for name, value in decoder.decode(block, raw=True)}
            known = from_grpc(int(headers.get(b"grpc-status", b"2")))
            self.statuses[block] = known
        return known


class Link:
    """One connection."""

    def __init__(self, pool: Http2) -> None:
        self._pool = pool
        driver = pool.driver
        self._socket = socket.create_connection(("127.0.0.1", port_now(driver.spec, max(0.0, clock() - driver.start))), 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Table size 0, no pushes, and windows that never fill.
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, _LARGEST)
        grant = struct.pack(">I", _LARGEST - 65535)
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW, 0, 0, grant))
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()
        self._streams: dict[int, tuple[int, bytes]] = {}
        self._next = 1
        self._window = 65535
        self._seen = b""
        self._out = b""
        driver.watch(self._fd, self._on_events, _READ)

    def send(self, number: int, block: bytes, message: bytes) -> bool:
        """Start a stream; False when the server's window is full."""
        if self._window < len(message) or self._out:
            return False
        self._window -= len(message)
        stream, self._next = self._next, self._next + 2
        self._streams[stream] = (number, b"")
        self._write(_frame(_HEADERS, _END_HEADERS, stream, block) + _data(stream, message))
        return True

    def _write(self, data: bytes) -> None:
        if self._out:
            self._out += data
            return
        try:
            taken = self._socket.send(data)
        except BlockingIOError:
            taken = 0
        except OSError:
            return  # the read side hears of it, too, and closes
        if taken < len(data):
            self._out = data[taken:]
            self._pool.driver.poller.modify(self._fd, _READ | _WRITE)

    def _on_events(self, mask: int) -> None:
        if mask & _WRITE and self._out:
            rest, self._out = self._out, b""
            self._pool.driver.poller.modify(self._fd, _READ)
            self._write(rest)
        if mask & ~_WRITE:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        data = self._seen + data
        at, size = 0, len(data)
        while size - at >= 9:
            high, low, kind, flags, stream = _FRAME.unpack_from(data, at)
            end = at + 9 + (high << 8 | low)
            if end > size:
                break
            self._on_frame(kind, flags, stream, data[at + 9 : end])
            at = end
        self._seen = data[at:]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            if (known := self._streams.get(stream)) is not None:
                self._streams[stream] = (known[0], known[1] + payload)
        elif kind == _HEADERS:
            if flags & _END_STREAM:
                self._ended(stream, self._pool.status_of(payload))
        elif kind == _RST:
            self._ended(stream, RESET)
        elif kind == _WINDOW:
            if not stream:
                self._window += int.from_bytes(payload, "big")
        elif kind in (_SETTINGS, _PING):
            if not flags & _ACK:
                self._write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY:
            self._leave(int.from_bytes(payload[:4], "big"))

    def _ended(self, stream: int, status: int) -> None:
        known = self._streams.pop(stream, None)
        if known is None:
            self._pool.driver.doubled += 1
        else:
            self._pool.driver.finish(known[0], status, known[1])

    def _leave(self, last: int) -> None:
        """The server goes away: streams beyond the last it will answer are for another connection, as the protocol has it."""
        if self in self._pool.links:
            self._pool.links.remove(self)
        for stream in [stream for stream in self._streams if stream > last]:
            self._pool.driver.again.append(self._streams.pop(stream)[0])

    def _close(self) -> None:
        self._pool.driver.forget(self._fd)
        self._socket.close()
        if self in self._pool.links:
            self._pool.links.remove(self)
        for number, _ in self._streams.values():
            self._pool.driver.finish(number, CUT_OFF)

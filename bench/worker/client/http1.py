"""HTTP/1.1 with keep-alive: one request at a time on a connection, as many connections as are needed up to a bound."""

import select
import socket

from bench.worker.client.drive import Driver, clock
from bench.worker.client.spec import CUT_OFF, REFUSED, Spec

_READ, _WRITE = select.EPOLLIN | select.EPOLLRDHUP, select.EPOLLOUT
_GONE = select.EPOLLERR | select.EPOLLHUP


class Http1:
    """The pool. Free connections are taken last in, first out, so that few stay warm."""

    def __init__(self, driver: Driver, requests: list[bytes]) -> None:
        self.driver = driver
        self.free: list[Connection] = []
        self.open = 0
        self._requests = requests
        self._limit = driver.spec.connections

    def send(self, number: int) -> bool:
        """See Wire."""
        if not self.free:
            if self.open >= self._limit:
                return False
            try:
                self.free.append(Connection(self))
            except OSError:
                self.driver.finish(number, REFUSED)
                return True
        self.free.pop().send(number, self._requests[number % len(self._requests)])
        return True


def port_now(spec: Spec, since: float) -> int:
    """Where new connections go at this moment."""
    return [port for second, port in spec.ports if second <= since][-1]


class Connection:
    """One socket."""

    __slots__ = ("_fd", "_number", "_pool", "_rest", "_seen", "_socket")

    def __init__(self, pool: Http1) -> None:
        driver = pool.driver
        self._pool = pool
        self._socket = socket.create_connection(("127.0.0.1", port_now(driver.spec, max(0.0, clock() - driver.start))), 1)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = self._socket.fileno()
        self._number: int | None = None
        self._rest = b""
        self._seen = b""
        pool.open += 1
        driver.watch(self._fd, self._on_events, _READ)

    def send(self, number: int, data: bytes) -> None:
        """Send a request; what the socket does not take at once follows."""
        self._number = number
        try:
            taken = self._socket.send(data)
        except BlockingIOError:
            taken = 0
        except OSError:
            self._close(CUT_OFF)
            return
        if taken < len(data):
            self._rest = data[taken:]
            self._pool.driver.poller.modify(self._fd, _READ | _WRITE)

    def _on_events(self, mask: int) -> None:
        if mask & _WRITE and self._rest:
            number, rest, self._rest = self._number, self._rest, b""
            self._pool.driver.poller.modify(self._fd, _READ)
            if number is not None:
                self.send(number, rest)
        if mask & (_READ | _GONE):
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(1 << 17)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(CUT_OFF)
            return
        if self._number is None:
            # An answer that nobody asked for.
            self._pool.driver.doubled += 1
            return
        self._seen = self._seen + data if self._seen else data
        self._parse()

    def _parse(self) -> None:
        data = self._seen
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            line_end = head.find(b"\r\n", at + 2)
            length = int(head[at + 17 : line_end if line_end >= 0 else end])
            if len(data) < end + 4 + length:
                return
            if len(data) > end + 4 + length:
                self._pool.driver.doubled += 1
            tail = data[end + 4 : end + 4 + length]
        else:
            # Chunked, as KServe streams what is binary.
            if not data.endswith(b"0\r\n\r\n"):
                return
            tail = data[end + 4 : -7]
        number, self._number, self._seen = self._number, None, b""
        assert number is not None
        self._pool.driver.finish(number, int(data[9:12]), tail)
        if b"connection: close" in head:
            self._close(CUT_OFF)
        else:
            self._pool.free.append(self)

    def _close(self, status: int) -> None:
        pool = self._pool
        pool.driver.forget(self._fd)
        self._socket.close()
        pool.open -= 1
        if self in pool.free:
            pool.free.remove(self)
        if self._number is not None:
            pool.driver.finish(self._number, status)
            self._number = None

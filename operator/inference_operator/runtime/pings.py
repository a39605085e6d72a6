"""Asks a thousand HTTP servers several times a second whether they live, over kept connections, for a few microseconds each.

A question by aiohttp costs a dozen times as much. Whatever a peer sends costs one bounded read; nothing of it is kept.
"""

import errno
import select
import socket
from collections.abc import Iterator
from enum import Enum

_REQUEST = b"GET %s HTTP/1.1\r\nHost: worker\r\n\r\n"
_ANSWER = b"HTTP/1."
_MOST_BYTES = 4096
_UNDER_WAY = (0, errno.EINPROGRESS)


class Word(Enum):
    """What came of a question."""

    ANSWERED = "answered"
    REFUSED = "refused"


class _Link:
    """One connection; `waits` says that an answer is due."""

    __slots__ = ("connected", "key", "socket", "waits")

    def __init__(self, key: str, made: socket.socket) -> None:
        self.key = key
        self.socket = made
        self.connected = False
        self.waits = True


class Pings:
    """Connections by the caller's keys. Single thread; nothing here waits."""

    def __init__(self, path: str, port: int) -> None:
        self._request = _REQUEST % path.encode()
        self._port = port
        self._poll = select.epoll()
        self._links: dict[str, _Link] = {}
        self._by_file: dict[int, _Link] = {}
        # Connections that could not even be begun.
        self._failed: list[str] = []

    def close(self) -> None:
        """Close all connections."""
        for key in list(self._links):
            self.forget(key)
        self._poll.close()

    def ask(self, key: str, address: str) -> None:
        """Ask once; a question that still waits for its answer is not put again."""
        link = self._links.get(key)
        if link is None:
            self._connect(key, address)
        elif not link.waits:
            link.waits = True
            self._send(link)

    def forget(self, key: str) -> None:
        """Close one connection, and wait for nothing from there; the next question makes a new one."""
        link = self._links.pop(key, None)
        if link is not None:
            del self._by_file[link.socket.fileno()]
            # Closing takes it out of the epoll set too.
            link.socket.close()

    def collect(self) -> Iterator[tuple[str, Word]]:
        """What has come since the last call, by key."""
        failed, self._failed = self._failed, []
        for key in failed:
            yield key, Word.REFUSED
        for file, events in self._poll.poll(0, max(len(self._links), 1)):
            link = self._by_file.get(file)
            word = self._look(link, events) if link is not None else None
            if link is not None and word is not None:
                yield link.key, word

    def _connect(self, key: str, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            # A name would be looked up, and everybody would wait for that.
            socket.inet_pton(family, address)
        except OSError:
            self._failed.append(key)
            return
        try:
            made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            # Out of files: that says nothing about the worker, whose question then stays without an answer.
            return
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex((address, self._port))
        if code not in _UNDER_WAY:
            made.close()
            self._failed.append(key)
            return
        self._links[key] = self._by_file[made.fileno()] = _Link(key, made)
        self._poll.register(made.fileno(), select.EPOLLOUT)

    def _look(self, link: _Link, events: int) -> Word | None:
        if not link.connected and not events & (select.EPOLLERR | select.EPOLLHUP):
            link.connected = True
            self._poll.modify(link.socket.fileno(), select.EPOLLIN)
            self._send(link)
            return None
        return self._read(link)

    def _read(self, link: _Link) -> Word | None:
        try:
            data = link.socket.recv(_MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            # One that was closed between two questions says nothing: the next question finds out.
            waited = link.waits
            self.forget(link.key)
            return Word.REFUSED if waited else None
        if len(data) == _MOST_BYTES:
            self.forget(link.key)
        if link.waits and data.startswith(_ANSWER):
            link.waits = False
            return Word.ANSWERED
        return None

    def _send(self, link: _Link) -> None:
        try:
            link.socket.send(self._request)
        except BlockingIOError:
            return
        except OSError:
            self.forget(link.key)
            self._failed.append(link.key)

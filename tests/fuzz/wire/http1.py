"""Callers over HTTP/1.1: pipelines whose requests are framed well and hold anything, then one whose bytes are not even that."""

from __future__ import annotations

import re
import socket
import ssl
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fuzz.wire.mutation import mutated
from tests.fuzz.wire.tally import DEADLINE_SECONDS, BrokenPromiseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

PIPELINE = 48
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


@dataclass(frozen=True)
class Case:
    """A request; `right` is what the answer's body has to hold, where that is known, `unless` it has this status."""

    data: bytes
    bodiless: bool = False
    right: bytes | None = None
    unless: str = ""


def framed(method: bytes, path: bytes, body: bytes | None, headers: bytes = b"", right: bytes | None = None) -> Case:
    """A request whose length is true; `headers` are whole lines."""
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    data = b"%s %s HTTP/1.1\r\nHost: a\r\n%s%s\r\n%s" % (method, path, headers, length, body or b"")
    return Case(data, method == b"HEAD", right)


@dataclass(frozen=True)
class Tls:
    """Whom a caller trusts, and by what name it calls the server."""

    context: ssl.SSLContext
    host: str


class Ended(Exception):  # noqa: N818 -- no error: the other side may end a connection
    """The connection has ended."""


class Caller:
    """One connection."""

    def __init__(self, port: int, tls: Tls | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.context.wrap_socket(plain, server_hostname=tls.host) if tls is not None else plain
        self._buffer = b""

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise BrokenPromiseError("requests were not taken") from error
        except OSError as error:
            raise Ended from error

    def _more(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError as error:
            raise BrokenPromiseError("no answer and no end") from error
        except OSError as error:
            raise Ended from error
        if not data:
            raise Ended
        self._buffer += data

    def _until(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _line_end(self, mark: bytes) -> int:
        while (at := self._buffer.find(mark)) < 0:
            self._more()
        return at + len(mark)

    def answer(self, *, bodiless: bool = False) -> tuple[str, bytes]:
        """The next answer: its status and its body."""
        head = self._until(self._line_end(b"\r\n\r\n"))
        status = head[9:12].decode("latin-1")
        if not head.startswith(b"HTTP/1.") or not status.isdigit():
            raise BrokenPromiseError(f"no head of an answer: {head[:200]!r}")
        if status[0] == "1":
            return self.answer(bodiless=bodiless)
        if bodiless or status in ("204", "304"):
            return status, b""
        if (found := _LENGTH.search(head)) is not None:
            return status, self._until(int(found[1]))
        body = b""
        while _CHUNKED.search(head):
            size = int(self._until(self._line_end(b"\r\n")), 16)
            body += self._until(size + 2)[:-2]
            if not size:
                break
        return status, body

    def rest(self) -> int:
        """Say that nothing more comes, and wait for the end; the number of answers until then."""
        try:
            if isinstance(self.socket, ssl.SSLSocket):
                self.socket.unwrap()
            else:
                self.socket.shutdown(socket.SHUT_WR)
            while True:
                self._more()
        except TimeoutError as error:
            raise BrokenPromiseError("the connection did not end") from error
        except (OSError, Ended):
            return self._buffer.count(b"HTTP/1.1 ")


def talk(rng: Random, port: int, make: Callable[[Random], Case], known: Case, tls: Tls | None = None) -> Counter[str]:
    """One connection's life. Raises BrokenPromiseError."""
    seen: Counter[str] = Counter()
    cases = [make(rng) for _ in range(PIPELINE)]
    cases.insert(rng.randrange(PIPELINE), known)
    caller = Caller(port, tls)
    try:
        caller.send(b"".join(case.data for case in cases))
        for case in cases:
            status, body = caller.answer(bodiless=case.bodiless)
            seen[status] += 1
            if case.right is not None and status != case.unless:
                if case.right not in body:
                    raise BrokenPromiseError(f"a wrong answer: {status} {body[:300]!r}")
                seen["right"] += 1
        if rng.random() < 0.5:
            caller.send(mutated(rng, rng.choice(cases).data, 6))
            caller.rest()
            seen["ended"] += 1
    except Ended:
        seen["ended"] += 1
    finally:
        caller.socket.close()
    return seen

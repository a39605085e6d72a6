"""Waiting for a server: for its own word, and for an answer that it could only have computed."""

import contextlib
import socket
import time

from bench.worker.processes import Started

_PAUSE_SECONDS = 0.002
_ATTEMPT_SECONDS = 5.0


class PeerError(Exception):
    """A server that does not start or does not answer, in words for the report."""


def wait_for_status(started: Started, port: int, path: str, *, seconds: float) -> float:
    """Seconds from exec until a GET is answered with 200. Raises PeerError."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode()
    return _wait(started, port, request, seconds, what=path)


def wait_for_answer(started: Started, port: int, request: bytes, *, seconds: float) -> float:
    """Seconds from exec until an inference is answered with 200. Raises PeerError."""
    return _wait(started, port, request, seconds, what="an answer")


def _wait(started: Started, port: int, request: bytes, seconds: float, *, what: str) -> float:
    status = 0
    while time.monotonic() - started.begun < seconds:
        if not started.running:
            raise PeerError(f"it ended before {what}: {started.tail()}")
        status, _ = ask(port, request)
        if status == 200:
            return time.monotonic() - started.begun
        time.sleep(_PAUSE_SECONDS)
    raise PeerError(f"waited {seconds:g} s for {what}, last status {status}: {started.tail()}")


def ask(port: int, request: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body; 0 when nobody answers."""
    with contextlib.suppress(OSError, ValueError, IndexError), socket.create_connection(("127.0.0.1", port), 1) as link:
        link.settimeout(_ATTEMPT_SECONDS)
        link.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            more = link.recv(1 << 16)
            if not more:
                return 0, b""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None
        )
        # Without a length it is chunked: KServe streams what is binary.
        while len(body) < length if length is not None else not body.endswith(b"0\r\n\r\n"):
            more = link.recv(1 << 16)
            if not more:
                break
            body += more
        return int(head.split()[1]), body
    return 0, b""

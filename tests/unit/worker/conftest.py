"""In-process pieces of the worker: volumes in a temporary directory, an HTTP server that misbehaves on request."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from inference_protocol.uris import forbidden_address
from inference_worker import outbound
from tests.unit.worker.states import MADE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# The same examples in every run: a fuzzer that finds something new belongs in a longer run than this.
STEADY = settings(deadline=None, derandomize=True, database=None)


@pytest.fixture(autouse=True)
def _lives_end() -> Iterator[None]:
    """What a worker state has registered in the process goes with the test that made it."""
    yield
    while MADE:
        MADE.pop().close()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The claim `data`, mounted below tmp_path/volumes."""
    path = tmp_path / "volumes" / "data"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def root(volume: Path) -> Path:
    return volume.parent


@pytest.fixture
def loopback_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is refused by policy, and tests have no other network: let 127.0.0.1 alone through."""
    monkeypatch.setattr(outbound, "forbidden_address", lambda a: None if str(a) == "127.0.0.1" else forbidden_address(a))
    lookup = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: lookup("127.0.0.1" if host == "files.test" else host, *a, **k))


@contextmanager
def answering(*conversations: Callable[[socket.socket, bytes], None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that holds one conversation for each connection; yields its port and the requests it got."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def serve() -> None:
        for conversation in conversations:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                seen.append(connection.recv(65536))
                conversation(connection, seen[-1])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def saying(head: str, body: bytes = b"") -> Callable[[socket.socket, bytes], None]:
    """Send a head with CRLFs put in, then a body, then close."""
    return lambda connection, _: connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)

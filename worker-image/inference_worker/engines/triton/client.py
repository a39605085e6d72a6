"""Triton's HTTP interface on loopback: one kept connection a thread, faults in three kinds."""

import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass

import msgspec

from inference_worker.engines.engine import Cancellation, RunCancelledError

HEAD_LENGTH = "Inference-Header-Content-Length"
_NO_REQUEST_ID = "[request id: <id_unknown>] "


class TritonGoneError(Exception):
    """Nobody answers, or not in time, or the connection broke: the server is not there, or not any more."""


class TritonSlowError(TritonGoneError):
    """Somebody is there, and has not answered in time."""


@dataclass(slots=True)
class TritonRefusedError(Exception):
    """Triton's own words, with the HTTP status that they came with."""

    status: int
    message: str

    def __str__(self) -> str:
        return self.message


class _Error(msgspec.Struct, frozen=True):
    error: str = ""


class TritonClient:
    """May be used from several threads."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._address = (host, port)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._all: set[http.client.HTTPConnection] = set()
        self._runs: set[http.client.HTTPConnection] = set()

    def get(self, path: str, *, timeout: float) -> bytes:
        """The body of an answer. Raises TritonGoneError, TritonRefusedError."""
        return self.call("GET", path, timeout=timeout)[0]

    def post(self, path: str, body: bytes = b"", *, timeout: float) -> bytes:
        """As `get`."""
        return self.call("POST", path, body, timeout=timeout)[0]

    def run(
        self, path: str, body: bytes, head_length: int, cancellation: Cancellation | None, timeout: float | None
    ) -> tuple[bytes, int]:
        """As `call`, of what may be abandoned."""
        connection = self._connection(timeout)
        self._runs.add(connection)
        try:
            return self.call("POST", path, body, head_length=head_length, cancellation=cancellation, timeout=timeout)
        finally:
            self._runs.discard(connection)

    def abandon_runs(self) -> None:
        """End the runs of other threads that are under way; they raise TritonGoneError."""
        for connection in self._runs.copy():
            _shut(connection)

    def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        head_length: int | None = None,
        cancellation: Cancellation | None = None,
        timeout: float | None = None,
    ) -> tuple[bytes, int]:
        """The body of an answer, and how much of it is JSON. Raises TritonGoneError, TritonRefusedError, RunCancelledError."""
        headers = {HEAD_LENGTH: str(head_length)} if head_length is not None else {}
        connection = self._connection(timeout)
        try:
            if connection.sock is None:
                # Before anybody may cancel: there has to be something to shut.
                connection.connect()
            if cancellation is not None:
                cancellation.bind(lambda: _shut(connection))
            # In one packet where it fits: the body by itself would cost a second way through the network stack.
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if cancellation is not None and cancellation.cancelled:
                raise RunCancelledError("nobody waits for it any more") from error
            if isinstance(error, TimeoutError) and timeout is not None:
                raise TritonSlowError(f"timed out after {timeout:g} s") from error
            raise TritonGoneError(str(error) or type(error).__name__) from error
        if response.status >= 400:
            raise TritonRefusedError(response.status, _words(data))
        return data, int(response.getheader(HEAD_LENGTH) or len(data))

    def close(self) -> None:
        """Let go of every connection."""
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(*self._address)
            with self._lock:
                self._all.add(connection)
        if connection.sock is not None and _is_over(connection.sock):
            connection.close()
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection


def _is_over(kept: socket.socket) -> bool:
    """Whether the other side has closed a kept connection: what is sent there would be lost without a word of it."""
    kept.setblocking(False)
    try:
        return kept.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _shut(connection: http.client.HTTPConnection) -> None:
    """End a connection that another thread reads from."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _words(data: bytes) -> str:
    try:
        return msgspec.json.decode(data, type=_Error).error.removeprefix(_NO_REQUEST_ID) or data.decode(errors="replace")[:500]
    except msgspec.DecodeError:
        return data.decode(errors="replace")[:500]

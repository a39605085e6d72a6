"""The cache's HTTP: workers read and bring models, the operator says which a node should have, Prometheus scrapes.

Every connection is a thread; their number, each head, each body and each pause is bounded.
"""

import hmac
import logging
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO, ClassVar

import msgspec

from inference_protocol import node_cache as protocol
from inference_protocol.node_cache import HEAD_BYTES, MODELS_PATH, Head, Wanted
from inference_worker.node_cache.bounded_server import HEAD_SECONDS, BoundedServer
from inference_worker.node_cache.faults import NotTakenError
from inference_worker.node_cache.flights import Flight, Flights, Key
from inference_worker.node_cache.incoming import Incoming
from inference_worker.node_cache.metrics import Metrics
from inference_worker.node_cache.prefetch import Prefetcher
from inference_worker.node_cache.store import ModelStore

log = logging.getLogger(__name__)

_MODEL = re.compile(rf"{MODELS_PATH}/([a-z0-9](?:[-a-z0-9]{{0,61}}[a-z0-9])?)/(sha256:[0-9a-f]{{64}})")
_BLOCK = 1 << 20
_UNREAD_BYTES = 64 << 20
# For a body: a fixed time, and what its bytes may take.
_BODY_SECONDS = 30.0
_SLOWEST_BYTES_A_SECOND = 4 << 20
# So long may a worker fetch before it brings the model; others wait no longer for it.
FILL_SECONDS = 900.0
WAIT_SECONDS = 300.0


class Handler(BaseHTTPRequestHandler):
    """One connection. The class attributes are set once, by `serve`."""

    protocol_version = "HTTP/1.1"
    server_version = "inference-node-cache"
    sys_version = ""
    server: BoundedServer
    store: ClassVar[ModelStore]
    flights: ClassVar[Flights]
    prefetcher: ClassVar[Prefetcher]
    metrics: ClassVar[Metrics]
    key: ClassVar[Callable[[], bytes]]
    _flight: Flight | None = None

    # Beside the deadline of all that a connection does.
    timeout = _BODY_SECONDS

    def finish(self) -> None:
        """Let others fetch what this connection was to bring."""
        self._land()
        self.server.speak_for(self.connection, None)
        super().finish()

    def do_GET(self) -> None:
        """Send a model, or say that there is none, and whether whoever asks is the one to bring it."""
        if (key := self._model()) is None:
            return
        self._deadline(WAIT_SECONDS + HEAD_SECONDS)
        self._land()
        found = self._awaited(key)
        if found is None:
            self.metrics.misses += 1
            self._deadline(FILL_SECONDS)
            self.connection.settimeout(FILL_SECONDS)
            self._answer(HTTPStatus.NOT_FOUND, fill=self._flight is not None)
            return
        self.metrics.hits += 1
        with found:
            self._send(found)

    def _awaited(self, key: Key) -> BinaryIO | None:
        """A model, waited for while somebody fetches it; None where this connection is to bring it, or waits no longer."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            if (found := self.store.open(*key)) is not None:
                return found
            self._flight = self.flights.begin(key)
            if self._flight is not None or (left := until - time.monotonic()) <= 0:
                return None
            self.flights.wait(key, left)

    def do_PUT(self) -> None:
        """Take a model."""
        if (key := self._model()) is None:
            return
        length = self._length(self.store.limit)
        if length is None:
            return
        self._deadline(_body_seconds(length))
        self.connection.settimeout(_BODY_SECONDS)
        self.close_connection = True
        try:
            with self.store.incoming(*key) as incoming:
                self._receive(incoming, length)
                incoming.verify()
                # The worker goes on: what is left is the disk's.
                self._answer(HTTPStatus.CREATED)
                incoming.commit()
        except NotTakenError as error:
            log.warning("%s/%s is not taken: %s", *key, error.message)
            self._refuse(error.status, error.message)

    def do_POST(self) -> None:
        """Take the operator's order."""
        if self.path != protocol.WANTED_PATH:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        length = self._length(protocol.WANTED_LIMIT_BYTES)
        if length is None:
            return
        self._deadline(_body_seconds(length))
        body = self.rfile.read(length)
        if not hmac.compare_digest(protocol.signature(type(self).key(), body), self.headers.get(protocol.SIGNATURE_HEADER, "")):
            self._answer(HTTPStatus.UNAUTHORIZED)
            return
        try:
            order = msgspec.json.decode(body, type=Wanted)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            self._answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        state = self.prefetcher.take(order)
        if state is None:
            self._answer(HTTPStatus.CONFLICT, "a later order is known")
            return
        self._answer(HTTPStatus.OK, msgspec.json.encode(state).decode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: metrics count requests."""

    def _model(self) -> tuple[str, str] | None:
        """The model that a request is about, if its token is that model's; None once another answer is given."""
        found = _MODEL.fullmatch(self.path)
        if found is None:
            self.close_connection = True
            self._answer(HTTPStatus.NOT_FOUND)
            return None
        namespace, digest = found.groups()
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(protocol.token(type(self).key(), namespace, digest).encode(), given):
            self.metrics.forbidden += 1
            self.close_connection = True
            self._answer(HTTPStatus.FORBIDDEN)
            return None
        if not self.server.speak_for(self.connection, namespace):
            self.close_connection = True
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
            return None
        return namespace, digest

    def _length(self, most: int) -> int | None:
        """The body's bytes; None once a body without a length, or with a larger one, is refused."""
        text = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") is None and re.fullmatch("[0-9]{1,15}", text) and int(text) <= most:
            return int(text)
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if text.isdecimal() else HTTPStatus.LENGTH_REQUIRED
        self._refuse(status, f"a body has a Content-Length of {most} at most")
        return None

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer before a body has come, and let a little of it come: the answer is lost where bytes are left unread."""
        self.close_connection = True
        self._answer(status, text)
        self._deadline(HEAD_SECONDS)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            left = _UNREAD_BYTES
            while left > 0 and (data := self.rfile.read1(_BLOCK)):
                left -= len(data)

    def _receive(self, incoming: Incoming, length: int) -> None:
        if length < HEAD_BYTES:
            raise NotTakenError(HTTPStatus.BAD_REQUEST, "a bundle begins with its head")
        try:
            head = msgspec.json.decode(self.rfile.read(HEAD_BYTES), type=Head)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise NotTakenError(HTTPStatus.BAD_REQUEST, f"the head can't be read: {error}") from error
        if head.length != length or len({file.name for file in head.files}) < len(head.files):
            raise NotTakenError(HTTPStatus.BAD_REQUEST, "the head tells of other files")
        buffer = memoryview(bytearray(_BLOCK))
        for file in head.files:
            incoming.begin(file.name)
            left = file.size
            while left:
                count = self.rfile.readinto(buffer[: min(left, _BLOCK)])
                if not count:
                    raise NotTakenError(HTTPStatus.BAD_REQUEST, "the body ended early")
                left -= incoming.write(buffer[:count])

    def _send(self, found: BinaryIO) -> None:
        size = found.seek(0, 2)
        found.seek(0)
        self._deadline(_body_seconds(size))
        self.connection.settimeout(_BODY_SECONDS)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.flush()
        sent = self.connection.sendfile(found)
        self.metrics.sent_bytes += sent
        # The model has given way meanwhile.
        self.close_connection = self.close_connection or sent < size
        self._deadline(HEAD_SECONDS)

    def _deadline(self, seconds: float) -> None:
        self.server.deadlines.set(self.connection, seconds)

    def _land(self) -> None:
        if self._flight is not None:
            self._flight.end()
            self._flight = None

    def _answer(self, status: HTTPStatus, text: str = "", *, fill: bool = False) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if fill:
            self.send_header(protocol.FILL_HEADER, "true")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


class MetricsHandler(BaseHTTPRequestHandler):
    """What Prometheus and the kubelet ask, on a port of its own."""

    server_version = "inference-node-cache"
    sys_version = ""
    metrics: ClassVar[Metrics]
    key: ClassVar[Callable[[], bytes]]

    def do_GET(self) -> None:
        """Answer /metrics, /livez, and /readyz once there is a key."""
        body, status = b"", HTTPStatus.OK
        if self.path == "/metrics":
            body = self.metrics.text()
        elif self.path == "/readyz":
            try:
                type(self).key()
            except OSError:
                status = HTTPStatus.SERVICE_UNAVAILABLE
        elif self.path != "/livez":
            status = HTTPStatus.NOT_FOUND
        self.send_response(status)
        self.send_header("Content-Type", self.metrics.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


def _body_seconds(length: int) -> float:
    return _BODY_SECONDS + length / _SLOWEST_BYTES_A_SECOND

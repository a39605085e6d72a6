"""An HTTP server with a thread for each connection, and a bound on their number and on the time of each."""

import logging
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)

_CONNECTIONS = 256
_CONNECTIONS_OF_ONE = 8
# A namespace has at most this part of them: it may have any number of addresses.
_NAMESPACES = 4
# For a request's head.
HEAD_SECONDS = 10.0


class Deadlines:
    """Breaks connections off whose time is up: a timeout of the socket alone lets bytes drip for ever."""

    def __init__(self) -> None:
        self._due: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def set(self, connection: socket.socket, seconds: float | None) -> None:
        """End a connection after so long; None for a connection that needs no end any more."""
        with self._lock:
            if seconds is None:
                self._due.pop(connection, None)
            else:
                self._due[connection] = time.monotonic() + seconds

    def enforce(self) -> None:
        """Break off what is due."""
        now = time.monotonic()
        with self._lock:
            for connection in [one for one, due in self._due.items() if due <= now]:
                del self._due[connection]
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # It has ended by itself.
                    continue


class BoundedServer(ThreadingHTTPServer):
    """A server with so many connections at most, of all and of one address."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self.deadlines = Deadlines()
        self._open: Counter[str] = Counter()
        self._speaks_for: dict[socket.socket, str] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more connection."""
        who = str(client_address[0])
        with self._lock:
            if self._open.total() >= _CONNECTIONS or self._open[who] >= _CONNECTIONS_OF_ONE:
                return False
            self._open[who] += 1
        self.deadlines.set(request, HEAD_SECONDS)
        return True

    def speak_for(self, connection: socket.socket, namespace: str | None) -> bool:
        """Count a connection for a namespace, or for none; whether the namespace may have one more."""
        with self._lock:
            self._speaks_for.pop(connection, None)
            if namespace is None:
                return True
            if list(self._speaks_for.values()).count(namespace) >= _CONNECTIONS // _NAMESPACES:
                return False
            self._speaks_for[connection] = namespace
            return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.deadlines.set(request, None)
            with self._lock:
                self._open[str(client_address[0])] -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say little of a connection that breaks: whoever is at its other end can have that happen as often as they like."""
        log.debug("a connection of %s ended: %r", client_address, sys.exception())

    def service_actions(self) -> None:
        """Look at the deadlines, twice a second."""
        self.deadlines.enforce()

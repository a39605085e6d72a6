"""Web servers of a test's own."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serving(
    handler: Callable[..., BaseHTTPRequestHandler], address: str = "127.0.0.1", *, tls: Path | None = None
) -> Iterator[int]:
    """Have a handler answer at an address, each connection in a thread of its own; yields the port.

    With `tls` it speaks TLS alone, by the tls.crt and the tls.key of that folder.
    """
    server = ThreadingHTTPServer((address, 0), handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

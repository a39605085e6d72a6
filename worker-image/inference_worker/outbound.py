"""Connections to hosts that a job names: only to hosts on the administrator's list, and to addresses that were looked at.

Where the administrator names a proxy, TLS goes through it, and it looks at addresses in the worker's place.
"""

import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from inference_protocol.hosts import NO_PROXY_VARIABLE, PROXY_VARIABLE, host_fault
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import forbidden_address
from inference_worker.errors import WorkerError, let_go

_TIMEOUT_SECONDS = 30.0
_HEAD_LIMIT_BYTES = 16 << 10


def connected(
    host: str, port: int, *, allowed: Sequence[str], told: str, tls: bool = False, authorities: str = ""
) -> socket.socket:
    """A connection to an address that was checked, and not to what a second lookup might give. `told` begins each message.

    `authorities` are CAs (PEM) that are trusted beside those of the system.

    Raises WorkerError: URI_FORBIDDEN, or MODEL_UNREACHABLE.
    """
    if (why := host_fault(host, allowed)) is not None:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{told}: {why}; have the setting fetch.allowedHosts allow it")
    context = _trusting(authorities, told) if tls else None
    if context is not None and (proxy := _proxy_for(host)) is not None:
        return _through(proxy, host, port, context, told)
    fault: OSError | None = None
    for address in _resolve(host, port, told):
        try:
            raw = _open(address, port)
            return raw if context is None else context.wrap_socket(raw, server_hostname=host)
        except OSError as error:
            fault = let_go(error)
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: {fault}; is the server up and the network open?") from fault


def _proxy_for(host: str) -> tuple[str, int] | None:
    """The proxy that leads to a host; None where the worker asks it itself."""
    itself = [entry for entry in os.environ.get(NO_PROXY_VARIABLE, "").split(",") if entry]
    parts = urlsplit(os.environ.get(PROXY_VARIABLE, ""))
    if not parts.hostname or (itself and host_fault(host, itself) is None):
        return None
    return parts.hostname, parts.port or 80


def _through(proxy: tuple[str, int], host: str, port: int, context: ssl.SSLContext, told: str) -> socket.socket:
    """A connection through a proxy, which sees no more of it than the host's name."""
    try:
        raw = socket.create_connection(proxy, _TIMEOUT_SECONDS)
        try:
            _ask_to_connect(raw, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            return context.wrap_socket(raw, server_hostname=host)
        except BaseException:
            raw.close()
            raise
    except OSError as error:
        text = f"{told}: {error}; is the proxy {proxy[0]} up, and does it lead there?"
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, text) from error


def _ask_to_connect(raw: socket.socket, place: str) -> None:
    """Ask a proxy for a connection (RFC 9110, section 9.3.6). Raises OSError."""
    raw.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode("ascii"))
    head = b""
    # Byte by byte: what comes behind the head is the other end's.
    while not head.endswith(b"\r\n\r\n"):
        byte = raw.recv(1)
        if not byte or len(head) >= _HEAD_LIMIT_BYTES:
            raise ConnectionError("the proxy gave no HTTP answer")
        head += byte
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise ConnectionError(f"the proxy refused to connect (HTTP {status[0].decode('ascii', 'replace')[:3] if status else '?'})")


def _trusting(authorities: str, told: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities:
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            text = f"{told}: the CAs of storage.secretRef can't be read; write certificates in PEM"
            raise WorkerError(WorkerReason.MODEL_ACCESS_DENIED, text) from error
    return context


def _open(address: str, port: int) -> socket.socket:
    # By hand, because socket.create_connection would look the name up once more.
    raw = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    raw.settimeout(_TIMEOUT_SECONDS)
    try:
        raw.connect((address, port))
    except OSError:
        raw.close()
        raise
    return raw


def _resolve(host: str, port: int, told: str) -> list[str]:
    """Every address of the host. One that may not be fetched from forbids them all: it is no accident."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: host {host!r} is unknown: {error.strerror}") from error
    except UnicodeError as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{told}: {host!r} is no host name: {error}") from error
    addresses = [str(info[4][0]).split("%")[0] for info in found]
    for address in addresses:
        if why := forbidden_address(ipaddress.ip_address(address)):
            raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{told}: {why}")
    return addresses

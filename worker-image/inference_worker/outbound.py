"""Connections to hosts that a job names: only to hosts on the administrator's list, and to addresses that were looked at."""

import ipaddress
import socket
import ssl
from collections.abc import Sequence

from inference_protocol.hosts import host_fault
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import forbidden_address
from inference_worker.errors import WorkerError, let_go

_TIMEOUT_SECONDS = 30.0


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
    fault: OSError | None = None
    for address in _resolve(host, port, told):
        try:
            raw = _open(address, port)
            return raw if context is None else context.wrap_socket(raw, server_hostname=host)
        except OSError as error:
            fault = let_go(error)
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: {fault}; is the server up and the network open?") from fault


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

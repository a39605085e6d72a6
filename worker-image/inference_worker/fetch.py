"""Read a file from wherever its location points, whole and verified, or say why not.

The bytes that were hashed are the bytes that are used: nothing can be swapped in between.
"""

import hashlib
import http.client
import ipaddress
import socket
import ssl
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from inference_protocol.messages import VOLUME_ROOT
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import HttpUri, forbidden_address
from inference_worker import volumes
from inference_worker.errors import WorkerError

_BLOCK = 1 << 20
_TIMEOUT_SECONDS = 30.0
_REDIRECTS = 5


def read_verified(
    text: str,
    *,
    digest: str | None,
    limit: int,
    missing: WorkerReason,
    mismatch: WorkerReason = WorkerReason.MODEL_DIGEST_MISMATCH,
    root: Path = Path(VOLUME_ROOT),
) -> tuple[bytes, str]:
    """The file's bytes and its `sha256:HEX`.

    Raises WorkerError: `missing` when there is nothing, URI_FORBIDDEN, MODEL_UNREACHABLE when the network fails, and
    `mismatch` when the digest is another.
    """
    uri = volumes.parse(text)
    if isinstance(uri, HttpUri):
        data = _download(uri.url, limit=limit, missing=missing)
    else:
        data = _read(volumes.local_path(uri, root=root), text, limit=limit, missing=missing)
    actual = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest is not None and actual != digest:
        raise WorkerError(
            mismatch,
            f"{text} has {actual}, but {digest} was asked for; restore the file, or update the digest if the change is meant",
        )
    return data, actual


def _read(path: Path, text: str, *, limit: int, missing: WorkerReason) -> bytes:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise WorkerError(missing, f"{text} is no regular file")
        if size > limit:
            raise WorkerError(missing, f"{text} has {size} bytes, more than the limit of {limit}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise WorkerError(missing, f"{text} does not exist; check the claim and the path in it") from error
    except (PermissionError, NotADirectoryError) as error:
        raise WorkerError(missing, f"{text} can't be read: {error.strerror}; the worker runs as a non-root user") from error


def _download(url: str, *, limit: int, missing: WorkerReason) -> bytes:
    for _ in range(_REDIRECTS):
        connection = _connect(url)
        try:
            parts = urlsplit(url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", target, headers={"Host": parts.netloc, "Accept-Encoding": "identity"})
            response = connection.getresponse()
            if response.status in (301, 302, 303, 307, 308) and (location := response.getheader("Location")):
                # Checked again from the start: a redirect is the usual way to an address that may not be fetched.
                url = urljoin(url, location)
                continue
            return _body(response, url, limit=limit, missing=missing)
        except (OSError, http.client.HTTPException) as error:
            raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: {error or type(error).__name__}") from error
        finally:
            connection.close()
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: more than {_REDIRECTS} redirects")


def _connect(url: str) -> http.client.HTTPConnection:
    """A connection to an address that was checked, and not to what a second lookup might give."""
    uri = volumes.parse(url)
    if not isinstance(uri, HttpUri):
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"a redirect to {url!r} is not followed")
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _resolve(uri.host, port, url)
    connection = http.client.HTTPConnection(uri.host, port, timeout=_TIMEOUT_SECONDS)
    try:
        raw = socket.create_connection((address, port), timeout=_TIMEOUT_SECONDS)
        if parts.scheme == "https":
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=uri.host)
    except OSError as error:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: {error}; is the server up and the network open?") from error
    connection.sock = raw
    return connection


def _resolve(host: str, port: int, url: str) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: host {host!r} is unknown: {error.strerror}") from error
    addresses = [str(info[4][0]).split("%")[0] for info in found]
    for address in addresses:
        if why := forbidden_address(ipaddress.ip_address(address)):
            raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{url}: {why}")
    return addresses[0]


def _body(response: http.client.HTTPResponse, url: str, *, limit: int, missing: WorkerReason) -> bytes:
    if response.status in (404, 410):
        raise WorkerError(missing, f"{url} does not exist (HTTP {response.status})")
    if response.status != 200:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url} answered HTTP {response.status} {response.reason}")
    blocks: list[bytes] = []
    size = 0
    while block := response.read(_BLOCK):
        size += len(block)
        if size > limit:
            raise WorkerError(missing, f"{url} is larger than the limit of {limit} bytes")
        blocks.append(block)
    return b"".join(blocks)

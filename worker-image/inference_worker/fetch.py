"""Read a file from wherever its location points, whole and verified, or say why not.

The bytes that were hashed are the bytes that are used: nothing can be swapped in between.
"""

import hashlib
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

from inference_protocol.messages import VOLUME_ROOT
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import HttpUri, forbidden_address
from inference_worker import volumes
from inference_worker.engines import external_data
from inference_worker.errors import WorkerError

_BLOCK = 1 << 20
_TIMEOUT_SECONDS = 30.0
_REDIRECTS = 5
_URL_SAFE = "/%:@!$&'()*+,;=~-._?"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's own file, those beside it by name, and one digest over them all."""

    data: bytes
    beside: Mapping[str, bytes]
    digest: str


def read_model(text: str, *, digest: str | None, limit: int, root: Path = Path(VOLUME_ROOT)) -> ModelFiles:
    """A model with the files that its weights are in, `limit` bytes at most in all; raises WorkerError as read_verified does.

    The digest of one file is its own. That of several is the digest of what `sha256sum` prints for them, ordered by name.
    """
    large = WorkerReason.MODEL_TOO_LARGE
    data, own = _read_any(text, limit=limit, missing=WorkerReason.MODEL_NOT_FOUND, large=large, root=root)
    names = external_data.files_of(data)
    if not names:
        _require(text, own, digest, WorkerReason.MODEL_DIGEST_MISMATCH)
        return ModelFiles(data, {}, own)
    folder, _, name = text.rpartition("/")
    beside: dict[str, bytes] = {}
    digests = {name: own}
    left = limit - len(data)
    for each in names:
        place = f"{folder}/{quote(each)}"
        beside[each], digests[each] = _read_any(place, limit=left, missing=WorkerReason.MODEL_DATA_MISSING, large=large, root=root)
        left -= len(beside[each])
    lines = "".join(f"{digests[each].removeprefix('sha256:')}  {each}\n" for each in sorted(digests))
    whole = f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    hint = f" (over {', '.join(sorted(digests))}: sha256sum {' '.join(sorted(digests))} | sha256sum)"
    _require(text, whole, digest, WorkerReason.MODEL_DIGEST_MISMATCH, hint)
    return ModelFiles(data, beside, whole)


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
    data, actual = _read_any(text, limit=limit, missing=missing, large=missing, root=root)
    _require(text, actual, digest, mismatch)
    return data, actual


def _read_any(text: str, *, limit: int, missing: WorkerReason, large: WorkerReason, root: Path) -> tuple[bytes, str]:
    uri = volumes.parse(text)
    if isinstance(uri, HttpUri):
        data = _download(uri.url, limit=limit, missing=missing, large=large)
    else:
        data = _read(volumes.local_path(uri, root=root), text, limit=limit, missing=missing, large=large)
    return data, f"sha256:{hashlib.sha256(data).hexdigest()}"


def _require(text: str, actual: str, digest: str | None, mismatch: WorkerReason, hint: str = "") -> None:
    if digest is not None and actual != digest:
        raise WorkerError(
            mismatch,
            f"{text} has {actual}{hint}, but {digest} was asked for; restore the file, or update the digest if the change is meant",
        )


def _read(path: Path, text: str, *, limit: int, missing: WorkerReason, large: WorkerReason) -> bytes:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise WorkerError(missing, f"{text} is no regular file")
        if size > limit:
            raise WorkerError(large, f"{text} has {size} bytes, more than the limit of {limit}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise WorkerError(missing, f"{text} does not exist; check the claim and the path in it") from error
    except OSError as error:
        raise WorkerError(missing, f"{text} can't be read: {error.strerror}; the worker runs as a non-root user") from error


def _download(url: str, *, limit: int, missing: WorkerReason, large: WorkerReason) -> bytes:
    for _ in range(_REDIRECTS + 1):
        connection = _connect(url)
        try:
            parts = urlsplit(url)
            # Percent-encoded once more where the author left letters that a request line can't hold.
            target = quote(parts.path or "/", safe=_URL_SAFE) + (f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else "")
            connection.request("GET", target, headers={"Host": parts.netloc, "Accept-Encoding": "identity"})
            response = connection.getresponse()
            if response.status in (301, 302, 303, 307, 308) and (location := response.getheader("Location")):
                # Checked again from the start: a redirect is the usual way to an address that may not be fetched.
                url = _redirected(url, location)
                continue
            return _body(response, url, limit=limit, missing=missing, large=large)
        except (OSError, http.client.HTTPException) as error:
            raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: {error or type(error).__name__}") from error
        finally:
            connection.close()
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: more than {_REDIRECTS} redirects")


def _redirected(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{url}: a redirect to {location!r} is not followed: {error}") from error


def _connect(url: str) -> http.client.HTTPConnection:
    """A connection to an address that was checked, and not to what a second lookup might give."""
    uri = volumes.parse(url)
    if not isinstance(uri, HttpUri):
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"a redirect to {url!r} is not followed")
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = http.client.HTTPConnection(uri.host, port, timeout=_TIMEOUT_SECONDS)
    fault: OSError | None = None
    for address in _resolve(uri.host, port, url):
        try:
            raw = _open(address, port)
            if parts.scheme == "https":
                raw = ssl.create_default_context().wrap_socket(raw, server_hostname=uri.host)
        except OSError as error:
            fault = error
            continue
        connection.sock = raw
        return connection
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: {fault}; is the server up and the network open?") from fault


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


def _resolve(host: str, port: int, url: str) -> list[str]:
    """Every address of the host. One that may not be fetched from forbids them all: it is no accident."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url}: host {host!r} is unknown: {error.strerror}") from error
    except UnicodeError as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{url}: {host!r} is no host name: {error}") from error
    addresses = [str(info[4][0]).split("%")[0] for info in found]
    for address in addresses:
        if why := forbidden_address(ipaddress.ip_address(address)):
            raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{url}: {why}")
    return addresses


def _body(response: http.client.HTTPResponse, url: str, *, limit: int, missing: WorkerReason, large: WorkerReason) -> bytes:
    if response.status in (404, 410):
        raise WorkerError(missing, f"{url} does not exist (HTTP {response.status})")
    if response.status != 200:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url} answered HTTP {response.status} {response.reason}")
    blocks: list[bytes] = []
    size = 0
    while block := response.read(_BLOCK):
        size += len(block)
        if size > limit:
            raise WorkerError(large, f"{url} is larger than the limit of {limit} bytes")
        blocks.append(block)
    if response.length:
        # http.client says nothing when a sized read meets the end too early.
        raise WorkerError(
            WorkerReason.MODEL_UNREACHABLE, f"{url}: the connection ended {response.length} bytes before the file did"
        )
    return b"".join(blocks)

"""Read a file from wherever its location points, whole and verified, or say why not.

The bytes that were hashed are the bytes that are used: nothing can be swapped in between.
"""

import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

from inference_protocol.messages import VOLUME_ROOT
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import HttpUri, UriError, parse_uri
from inference_worker import outbound, volumes
from inference_worker.engines import external_data
from inference_worker.errors import StoppedError, WorkerError

_BLOCK = 1 << 20
_REDIRECTS = 5
# A server that sends less in this time is given up: a download that drips would hold a device for days.
_SLOW_SECONDS = 30.0
_SLOWEST_BYTES = 256 << 10
_LOOK_SECONDS = 0.1
_URL_SAFE = "/%:@!$&'()*+,;=~-._?"
_NOWHERE = "workers fetch over http(s) only, and from no address of the node or its metadata service"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's own file, those beside it by name, and one digest over them all."""

    data: bytes
    beside: Mapping[str, bytes]
    digest: str


def file_name(text: str) -> str:
    """The last part of a location's path, as a file is called."""
    path = urlsplit(text).path if text.startswith(("http://", "https://")) else text
    return unquote(path.rpartition("/")[2])


def read_model(
    text: str,
    *,
    digest: str | None,
    limit: int,
    hosts: Sequence[str],
    root: Path = Path(VOLUME_ROOT),
    vouch: Callable[[str, str], None] | None = None,
) -> ModelFiles:
    """A model with the files that its weights are in, `limit` bytes at most in all; raises WorkerError as read_verified does.

    The digest of one file is its own. That of several is the digest of what `sha256sum` prints for them, ordered by name. `vouch`
    raises WorkerError for a file whose digest nobody vouches for under its name; it is asked before anything looks into the bytes.
    """
    large = WorkerReason.MODEL_TOO_LARGE
    data, own = _read_any(text, limit=limit, missing=WorkerReason.MODEL_NOT_FOUND, large=large, root=root, hosts=hosts)
    if vouch is not None:
        vouch(file_name(text), own)
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
        missing = WorkerReason.MODEL_DATA_MISSING
        beside[each], digests[each] = _read_any(place, limit=left, missing=missing, large=large, root=root, hosts=hosts)
        if vouch is not None:
            vouch(each, digests[each])
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
    hosts: Sequence[str],
    large: WorkerReason | None = None,
    mismatch: WorkerReason = WorkerReason.MODEL_DIGEST_MISMATCH,
    root: Path = Path(VOLUME_ROOT),
    stop: Callable[[], bool] | None = None,
) -> tuple[bytes, str]:
    """The file's bytes and its `sha256:HEX`, from `hosts` where it is a URL. Raises StoppedError once `stop` says so.

    Raises WorkerError: `missing` when there is nothing, `large` (or else `missing`) when there is too much, URI_FORBIDDEN,
    MODEL_UNREACHABLE when the network fails, and `mismatch` when the digest is another.
    """
    data, actual = _read_any(text, limit=limit, missing=missing, large=large or missing, root=root, hosts=hosts, stop=stop)
    _require(text, actual, digest, mismatch)
    return data, actual


def _read_any(
    text: str,
    *,
    limit: int,
    missing: WorkerReason,
    large: WorkerReason,
    root: Path,
    hosts: Sequence[str],
    stop: Callable[[], bool] | None = None,
) -> tuple[bytes, str]:
    uri = volumes.parse(text)
    if isinstance(uri, HttpUri):
        data = _download(uri.url, stop or _never, hosts, limit=limit, missing=missing, large=large)
    else:
        data = _read(volumes.local_path(uri, root=root), text, limit=limit, missing=missing, large=large)
    return data, f"sha256:{hashlib.sha256(data).hexdigest()}"


def _require(text: str, actual: str, digest: str | None, mismatch: WorkerReason, hint: str = "") -> None:
    if digest is None or actual == digest:
        return
    # What a server gave may be none of the author's business: its digest would tell whether it is a file that they have elsewhere.
    has = f"has {actual}{hint}" if not isinstance(volumes.parse(text), HttpUri) else "has another digest"
    cure = "restore the file, or update the digest if the change is meant"
    raise WorkerError(mismatch, f"{text} {has}, but {digest} was asked for; {cure}")


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


def _never() -> bool:
    return False


class _Pace:
    """How a download goes on. `taken` counts its bytes; `faults` say why it was broken off, for who raises one to take away."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.taken = 0
        self.faults: list[Exception] = []
        self._stop = stop
        self._done = threading.Event()

    def watch(self, raw: socket.socket, url: str) -> None:
        """Break the connection off when told to stop, or when too little comes. Ends with `end`."""
        since, before = time.monotonic(), 0
        while not self._done.wait(_LOOK_SECONDS):
            if self._stop():
                self.faults.append(StoppedError(url))
            elif time.monotonic() - since >= _SLOW_SECONDS:
                if (came := self.taken - before) < _SLOWEST_BYTES:
                    text = f"{url}: {came} bytes came in {_SLOW_SECONDS:g} s, and {_SLOWEST_BYTES} must; use a faster server"
                    self.faults.append(WorkerError(WorkerReason.MODEL_UNREACHABLE, text))
                since, before = time.monotonic(), self.taken
            if self.faults:
                with suppress(OSError):
                    raw.shutdown(socket.SHUT_RDWR)
                return

    def end(self) -> None:
        """Nothing is waited for any more."""
        self._done.set()


@contextmanager
def _paced(raw: socket.socket, url: str, stop: Callable[[], bool]) -> Iterator[_Pace]:
    """A download over `raw`, broken off where it has to be. Raises why."""
    pace = _Pace(stop)
    # In a thread: a read waits for as long as anything comes, and so does that of a head.
    watching = threading.Thread(target=pace.watch, args=(raw, url), name="watching", daemon=True)
    watching.start()
    try:
        yield pace
    except (OSError, http.client.HTTPException, WorkerError):
        if pace.faults:
            raise pace.faults.pop() from None
        raise
    finally:
        pace.end()
        watching.join()
    if pace.faults:
        raise pace.faults.pop()


def _download(
    text: str, stop: Callable[[], bool], hosts: Sequence[str], *, limit: int, missing: WorkerReason, large: WorkerReason
) -> bytes:
    url, told = text, text
    for _ in range(_REDIRECTS + 1):
        # Checked from the start at each hop: a redirect is the usual way to an address that may not be fetched.
        connection = _connect(url, _target(url, told), hosts, told)
        try:
            parts = urlsplit(url)
            # Percent-encoded once more where the author left letters that a request line can't hold.
            target = quote(parts.path or "/", safe=_URL_SAFE) + (f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else "")
            with _paced(connection.sock, told, stop) as pace:
                connection.request("GET", target, headers={"Host": parts.netloc, "Accept-Encoding": "identity"})
                response = connection.getresponse()
                if response.status in (301, 302, 303, 307, 308) and (location := response.getheader("Location")):
                    url, place = _redirected(url, location)
                    told = f"{text} (redirected to {place})"
                    continue
                return _body(response, told, pace, limit=limit, missing=missing, large=large)
        except http.client.HTTPException as error:
            # Not its text: that is what the server said, whoever it belongs to.
            raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told} gave no HTTP answer: {type(error).__name__}") from error
        except OSError as error:
            raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: {error or type(error).__name__}") from error
        finally:
            connection.close()
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{text}: more than {_REDIRECTS} redirects")


def _connect(url: str, uri: HttpUri, hosts: Sequence[str], told: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    connection = http.client.HTTPConnection(uri.host, port)
    connection.sock = outbound.connected(uri.host, port, allowed=hosts, told=told, tls=tls)
    return connection


def _target(url: str, told: str) -> HttpUri:
    """Where a hop goes. A redirect's URL is not told: it may hold another's credentials."""
    try:
        uri = parse_uri(url)
    except UriError as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, str(error) if told == url else f"{told}: {_NOWHERE}") from error
    if not isinstance(uri, HttpUri):
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{told}: {_NOWHERE}")
    return uri


def _redirected(url: str, location: str) -> tuple[str, str]:
    """Where a redirect leads, and what it is called in messages."""
    try:
        to = urljoin(url, location)
        parts = urlsplit(to)
        return to, f"{parts.scheme}://{parts.hostname or ''}"
    except ValueError:
        return location, "what is no URL"


def _body(
    response: http.client.HTTPResponse, url: str, pace: _Pace, *, limit: int, missing: WorkerReason, large: WorkerReason
) -> bytes:
    if response.status in (404, 410):
        raise WorkerError(missing, f"{url} does not exist (HTTP {response.status})")
    if response.status != 200:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{url} answered HTTP {_status(response.status)}")
    blocks: list[bytes] = []
    size = 0
    # What is there, and not a whole block: so that the pace is seen.
    while block := response.read1(_BLOCK):
        size += len(block)
        pace.taken = size
        if size > limit:
            raise WorkerError(large, f"{url} is larger than the limit of {limit} bytes")
        blocks.append(block)
    if response.length:
        # http.client says nothing when a sized read meets the end too early.
        raise WorkerError(
            WorkerReason.MODEL_UNREACHABLE, f"{url}: the connection ended {response.length} bytes before the file did"
        )
    return b"".join(blocks)


def _status(number: int) -> str:
    """The status in the standard's words: a server may have put anything there."""
    try:
        return f"{number} {HTTPStatus(number).phrase}"
    except ValueError:
        return str(number)

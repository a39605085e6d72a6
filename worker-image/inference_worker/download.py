"""Fetch a file over http(s) into memory: bounded, hashed as it comes, resumed where a connection breaks, and ended when told to.

A body is in memory once: what comes is written behind what is there, and that very buffer is returned.
"""

import hashlib
import http.client
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote, urljoin, urlsplit

from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import HttpUri, UriError, parse_uri
from inference_worker import outbound
from inference_worker.errors import StoppedError, WorkerError
from inference_worker.pace import Pace, paced

_BLOCK = 1 << 20
_REDIRECTS = 5
# Between the attempts to go on with a body that broke off.
_PAUSES = (0.2, 1.0, 3.0, 5.0)
_LOOK_SECONDS = 0.1
_URL_SAFE = "/%:@!$&'()*+,;=~-._?"
_NOWHERE = "workers fetch over http(s) only, and from no address of the node or its metadata service"
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})", re.ASCII)

Authorize = Callable[[str, Mapping[str, str]], Mapping[str, str]]


def no_authorization(_url: str, _headers: Mapping[str, str]) -> Mapping[str, str]:
    """Nothing is added to a request."""
    return {}


def never() -> bool:
    """Nobody ever says stop."""
    return False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds a download: which hosts it may reach, how many bytes it may have, who ends it, and what its faults are called."""

    hosts: Sequence[str]
    limit: int
    missing: WorkerReason
    large: WorkerReason
    stop: Callable[[], bool] = never


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is asked for. `told` names it in messages, which have no text of a server.

    `authorize` gives the headers that prove who asks, for a URL and the headers that go with it. It is asked for the first host
    alone: what a redirect leads to has no right to them. `authorities` are CAs (PEM) beside those of the system. `denied` is the
    reason for 401 and 403, and `cure` what to do about an answer that is none of those expected.
    """

    url: str
    told: str
    authorize: Authorize = no_authorization
    authorities: str = ""
    follows: bool = True
    denied: WorkerReason = WorkerReason.MODEL_UNREACHABLE
    cure: str = ""


class _Body:
    """What has come of a file, and by which mark its server knows it."""

    def __init__(self) -> None:
        self.etag = ""
        self.origin = ""
        self.size = 0
        self.total: int | None = None
        self._buffer = io.BytesIO()
        self._sha = hashlib.sha256()

    @property
    def resumable(self) -> bool:
        """Whether the rest can be asked for: a weak mark doesn't stand for the same bytes."""
        return self.size > 0 and self.etag.startswith('"')

    def write(self, block: bytes) -> None:
        self._buffer.write(block)
        self._sha.update(block)
        self.size += len(block)

    def end(self) -> tuple[bytes, str]:
        """The bytes and their `sha256:HEX`; the buffer is given away, not copied."""
        return self._buffer.getvalue(), f"sha256:{self._sha.hexdigest()}"


def download(place: Place, bounds: Bounds) -> tuple[bytes, str]:
    """The file's bytes and its `sha256:HEX`. Raises StoppedError, and WorkerError as fetch.read_verified does."""
    body = _Body()
    for pause in _PAUSES:
        try:
            _ask(place, body, bounds)
            return body.end()
        except WorkerError as error:
            if error.reason is not WorkerReason.MODEL_UNREACHABLE or not body.resumable:
                raise
        _wait(pause, place, bounds)
    _ask(place, body, bounds)
    return body.end()


def _wait(seconds: float, place: Place, bounds: Bounds) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if bounds.stop():
            raise StoppedError(place.told)
        time.sleep(min(left, _LOOK_SECONDS))


def _ask(place: Place, body: _Body, bounds: Bounds) -> None:
    """Add to a body what is missing of it."""
    url, told = place.url, place.told
    first = _origin(url)
    for _ in range(_REDIRECTS + 1):
        origin = _origin(url)
        headers = _range(body, origin)
        proof = place.authorize(url, headers) if origin == first else {}
        with answered(url, {**headers, **proof}, told=told, authorities=place.authorities, bounds=bounds) as (response, pace):
            location = response.getheader("Location")
            if response.status not in (301, 302, 303, 307, 308) or not location or not place.follows:
                if not body.size:
                    body.origin = origin
                _take(response, place, told, body, pace, bounds)
                return
        url, where = _redirected(url, location)
        told = f"{place.told} (redirected to {where})"
    raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{place.told}: more than {_REDIRECTS} redirects")


def _range(body: _Body, origin: str) -> dict[str, str]:
    if not body.size:
        return {}
    # A mark says something to the server alone that gave it.
    match = {"If-Match": body.etag} if origin == body.origin else {}
    return {"Range": f"bytes={body.size}-", **match}


def _origin(url: str) -> str:
    """What a URL's credentials are for: its scheme, host and port; empty for what is no URL, which is refused later."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.lower()}"


@contextmanager
def answered(
    url: str,
    headers: Mapping[str, str],
    *,
    told: str,
    authorities: str,
    bounds: Bounds,
    form: bytes | None = None,
) -> Iterator[tuple[http.client.HTTPResponse, Pace]]:
    """A server's answer, whose body isn't read yet; `form` is posted. Raises StoppedError, WorkerError."""
    # Checked from the start at each hop: a redirect is the usual way to an address that may not be fetched.
    connection = _connect(url, _target(url, told), authorities, bounds, told)
    parts = urlsplit(url)
    # Percent-encoded once more where the author left letters that a request line can't hold.
    target = quote(parts.path or "/", safe=_URL_SAFE) + (f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else "")
    try:
        with paced(connection.sock, told, bounds.stop) as pace:
            sent = {"Host": parts.netloc, "Accept-Encoding": "identity", **headers}
            connection.request("GET" if form is None else "POST", target, body=form, headers=sent)
            yield connection.getresponse(), pace
    except http.client.HTTPException as error:
        # Not its text: that is what the server said, whoever it belongs to.
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told} gave no HTTP answer: {type(error).__name__}") from error
    except OSError as error:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _connect(url: str, uri: HttpUri, authorities: str, bounds: Bounds, told: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    connection = http.client.HTTPConnection(uri.host, port)
    connection.sock = outbound.connected(uri.host, port, allowed=bounds.hosts, told=told, tls=tls, authorities=authorities)
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


def _take(response: http.client.HTTPResponse, place: Place, told: str, body: _Body, pace: Pace, bounds: Bounds) -> None:
    """Read what an answer adds to a body. Raises WorkerError."""
    _require_expected(response, place, told, body, bounds)
    etag = response.getheader("ETag", "")
    if body.size:
        _require_same(response, etag, told, body)
    else:
        body.etag, body.total = etag, response.length
    if response.length is not None and body.size + response.length > bounds.limit:
        raise WorkerError(bounds.large, f"{told} is larger than the limit of {bounds.limit} bytes")
    # What is there, and not a whole block: so that the pace is seen.
    while block := response.read1(_BLOCK):
        pace.taken += len(block)
        if body.size + len(block) > bounds.limit:
            raise WorkerError(bounds.large, f"{told} is larger than the limit of {bounds.limit} bytes")
        body.write(block)
    if response.length:
        # http.client says nothing when a sized read meets the end too early.
        raise WorkerError(
            WorkerReason.MODEL_UNREACHABLE, f"{told}: the connection ended {response.length} bytes before the file did"
        )


def _require_expected(response: http.client.HTTPResponse, place: Place, told: str, body: _Body, bounds: Bounds) -> None:
    status = response.status
    if status in (404, 410):
        raise WorkerError(bounds.missing, f"{told} does not exist (HTTP {status})")
    if body.size and status in (412, 416):
        raise _changed(told)
    if status == (206 if body.size else 200):
        return
    reason = place.denied if status in (401, 403) else WorkerReason.MODEL_UNREACHABLE
    if body.size and status == 200:
        # Not asked once more: it would send the whole file each time.
        body.etag = ""
        raise WorkerError(
            reason, f"{told}: the connection broke off after {body.size} bytes, and the server can't go on from there"
        )
    raise WorkerError(reason, f"{told} answered HTTP {status_words(status)}" + (f"; {place.cure}" if place.cure else ""))


def _require_same(response: http.client.HTTPResponse, etag: str, told: str, body: _Body) -> None:
    """Require that the rest is of the file that the beginning is of, and that it is the rest."""
    found = _CONTENT_RANGE.fullmatch(response.getheader("Content-Range", ""))
    begin, end, total = map(int, found.groups()) if found is not None else (-1, -1, -1)
    if etag != body.etag or total != (body.total if body.total is not None else total):
        raise _changed(told)
    if begin != body.size or end != total - 1 or response.length not in (None, total - begin):
        body.etag = ""
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: the server sends another range than was asked for")


def _changed(told: str) -> WorkerError:
    text = f"{told} was replaced while the worker fetched it; give each version a name of its own"
    return WorkerError(WorkerReason.MODEL_CHANGED, text)


def status_words(number: int) -> str:
    """The status in the standard's words: a server may have put anything there."""
    try:
        return f"{number} {HTTPStatus(number).phrase}"
    except ValueError:
        return str(number)


def small_body(response: http.client.HTTPResponse, pace: Pace, told: str, *, limit: int) -> bytes:
    """The whole of a short answer. Raises WorkerError MODEL_UNREACHABLE where it is longer than `limit` bytes, or broke off."""
    data = io.BytesIO()
    while block := response.read1(_BLOCK):
        pace.taken += len(block)
        if data.write(block) and data.tell() > limit:
            raise WorkerError(
                WorkerReason.MODEL_UNREACHABLE, f"{told}: an answer has more than {limit} bytes; is it the right server?"
            )
    if response.length:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: the connection ended before the answer did")
    return data.getvalue()

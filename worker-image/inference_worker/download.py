"""Fetch a file over http(s), into memory or a file: bounded, hashed as it comes, resumed where a connection breaks, and ended.

A body is in memory once at most: what comes is written behind what is there, and that very buffer is returned.
"""

import hashlib
import http.client
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import StoppedError, WorkerError
from inference_worker.exchange import Bounds, answered, status_words
from inference_worker.pace import Pace

_BLOCK = 1 << 20
_REDIRECTS = 5
# Between the attempts to go on with a body that broke off.
_PAUSES = (0.2, 1.0, 3.0, 5.0)
_LOOK_SECONDS = 0.1
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})", re.ASCII)

Authorize = Callable[[str, Mapping[str, str]], Mapping[str, str]]


def no_authorization(_url: str, _headers: Mapping[str, str]) -> Mapping[str, str]:
    """Nothing is added to a request."""
    return {}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is asked for. `told` names it in messages, which have no text of a server.

    `authorize` gives the headers that prove who asks, for a URL and the headers that go with it. It is asked for the first host
    alone: what a redirect leads to has no right to them. `authorities` are CAs (PEM) beside those of the system. `denied` is the
    reason for 401 and 403, and `cure` what to do about an answer that is none of those expected. `mark` is the ETag that the file
    must have; empty where any will do. A `pinned` URL is of one version of the file, and 404 says that there is another by now.
    """

    url: str
    told: str
    authorize: Authorize = no_authorization
    authorities: str = ""
    follows: bool = True
    denied: WorkerReason = WorkerReason.MODEL_UNREACHABLE
    cure: str = ""
    mark: str = ""
    pinned: bool = False


class Sink(Protocol):
    """Where a body goes."""

    def write(self, block: bytes, /) -> int:
        """Take a block as a whole."""
        ...


class _Body:
    """What has come of a file, and by which mark its server knows it."""

    def __init__(self, file: Sink) -> None:
        self.etag = ""
        self.origin = ""
        self.size = 0
        self.total: int | None = None
        self._file = file
        self._sha = hashlib.sha256()

    @property
    def resumable(self) -> bool:
        """Whether the rest can be asked for: a weak mark doesn't stand for the same bytes."""
        return self.size > 0 and self.etag.startswith('"')

    def write(self, block: bytes) -> None:
        self._file.write(block)
        self._sha.update(block)
        self.size += len(block)

    @property
    def digest(self) -> str:
        """The `sha256:HEX` of what has come."""
        return f"sha256:{self._sha.hexdigest()}"


def download_into(file: Sink, place: Place, bounds: Bounds) -> str:
    """Write the body into a file, and return its `sha256:HEX`. Raises as fetch.read_verified does, and OSError."""
    body = _Body(file)
    for pause in _PAUSES:
        try:
            _ask(place, body, bounds)
        except WorkerError as error:
            if error.reason is not WorkerReason.MODEL_UNREACHABLE or not body.resumable:
                raise
        else:
            return body.digest
        _wait(pause, place, bounds)
    _ask(place, body, bounds)
    return body.digest


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
        headers = _conditions(place, body, origin)
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


def _conditions(place: Place, body: _Body, origin: str) -> dict[str, str]:
    if not body.size:
        return {"If-Match": place.mark} if place.mark else {}
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
    if status in (404, 410) and place.pinned:
        raise _changed(told)
    if status in (404, 410):
        raise WorkerError(bounds.missing, f"{told} does not exist (HTTP {status})")
    if (body.size or place.mark) and status in (412, 416):
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

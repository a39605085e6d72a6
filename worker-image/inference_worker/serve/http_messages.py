"""Requests and responses of HTTP/1.1, their limits, and the refusals of those who break them."""

import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote_to_bytes

import httptools
import msgspec
import orjson

from inference_worker.errors import RequestError

BODY_LIMIT_BYTES = 64 << 20
HEADER_LIMIT_BYTES = 64 << 10


Payload = bytes | memoryview
"""What a caller sends: bytes, or a read-only view of them where they lie in shared memory."""


class Response(msgspec.Struct, frozen=True):
    """One answer. The body is sent as it is."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class Caller(Protocol):
    """The connection that a request came by."""

    def flush(self) -> None:
        """Send every answer whose turn it is."""
        ...


class Request(msgspec.Struct, eq=False, weakref=True):
    """One request, whole, and the way back to its caller. `arrived` and `whole` are when its first and last byte came.

    `reply` is called once, now or later, from the event loop. `on_abandoned` is called when the caller leaves before that.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: Payload
    keep_alive: bool
    version: str = "1.1"
    arrived: float = 0.0
    whole: float = 0.0
    on_abandoned: Callable[[], None] | None = None
    response: Response | None = None
    connection: Caller | None = None

    def reply(self, response: Response) -> None:
        """Answer. Answers leave a connection in the order of its requests, so this one may wait for others."""
        if self.response is not None:
            return
        self.response = response
        self.on_abandoned = None
        if self.connection is not None:
            self.connection.flush()

    @property
    def unsent_bytes(self) -> int:
        """The bytes of an answer that its caller can't have yet; 0 while there is none."""
        return len(self.response.body) if self.response is not None else 0

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.connection is None


class LimitError(Exception):
    """A request that is refused before it is whole."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


HEADERS_TOO_LARGE = LimitError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers are limited to {HEADER_LIMIT_BYTES} bytes")
BODY_TOO_LARGE = LimitError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body's limit is {BODY_LIMIT_BYTES} bytes")

STATUS_LINES = {status: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def path_of(target: bytes) -> str:
    """The path of a request's target, which may come as a whole URL (RFC 9112, 3.2.2)."""
    path = target
    if not target.startswith((b"/", b"*")):
        try:
            path = httptools.parse_url(target).path or b"/"
        except httptools.HttpParserInvalidURLError:
            path = target
    return path.decode("latin-1").partition("?")[0]


def plain_path(path: str) -> str:
    """A path as its names are: percent-encoding undone (RFC 3986, 2.1), and without the slash that some clients put at the end.

    An encoded slash stays as it is, since it is no part of the path's structure. So does what is no UTF-8.
    """
    parts = [part if "%2F" in part.upper() else _unquoted(part) for part in path.split("/")]
    if len(parts) > 2 and not parts[-1]:
        parts.pop()
    return "/".join(parts)


def _unquoted(part: str) -> str:
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        return part


def error_body(message: str) -> bytes:
    """The protocol's error object."""
    return orjson.dumps({"error": message})


def refusal(error: RequestError) -> Response:
    """The answer that a refused request gets, with when to ask again or which codings are taken."""
    headers: tuple[tuple[str, str], ...] = ()
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        # Whole seconds are all that the header has; half a second of waiting is told as one.
        headers = (("Retry-After", str(max(1, math.ceil(error.retry_after_seconds or 0)))),)
    elif error.status is HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        headers = (("Accept-Encoding", "gzip, deflate"),)
    return Response(error.status, error_body(error.message), headers=headers)

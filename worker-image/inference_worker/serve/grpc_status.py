"""The status of a gRPC call, as head and trailers (grpc/grpc, doc/PROTOCOL-HTTP2.md, doc/statuscodes.md)."""

import math
from http import HTTPStatus
from urllib.parse import quote

from inference_worker.errors import RequestError
from inference_worker.serve.compression import CODINGS
from inference_worker.serve.http2_frames import block, literal

_CODES = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.UNAUTHORIZED: 16,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.CONFLICT: 6,
    HTTPStatus.GATEWAY_TIMEOUT: 4,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,
    HTTPStatus.NOT_IMPLEMENTED: 12,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: 12,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
}
_INTERNAL = 13
_MESSAGE_BYTES = 4096
# All that may stand in a status message as it is: printable ASCII but the percent sign.
_PLAIN = frozenset(chr(code) for code in range(0x20, 0x7F)) - {"%"}

_HEADERS = (("content-type", "application/grpc"), ("grpc-accept-encoding", ",".join(("identity", *CODINGS))))
HEAD = block(200, _HEADERS)
"""The head of a call that is answered."""

CODED_HEADS = {coding: block(200, [*_HEADERS, ("grpc-encoding", coding)]) for coding in CODINGS}
"""The head of a call whose answers may be compressed, by how."""

OK = b"\x00\x0bgrpc-status\x010"
"""The trailers of a call that went well."""

LEAVING = b"".join(
    literal(name, value) for name, value in (("grpc-status", "14"), ("grpc-message", "the worker is going away; ask again"))
)
"""The trailers of a stream that ends because the worker does."""


def refusal(error: RequestError) -> bytes:
    """A head that is all there is: the status of a call that failed before it was answered."""
    return block(200, [*_HEADERS, *_trailers(error)])


def ending(error: RequestError) -> bytes:
    """The trailers of a call that failed once its head was sent."""
    return b"".join(literal(name, value) for name, value in _trailers(error))


def _trailers(error: RequestError) -> list[tuple[str, str]]:
    found = [("grpc-status", str(_CODES.get(HTTPStatus(error.status), _INTERNAL))), ("grpc-message", _encoded(error.message))]
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = error.retry_after_seconds or 0.0
        found += [("grpc-retry-pushback-ms", str(max(1, round(seconds * 1e3)))), ("retry-after", str(max(1, math.ceil(seconds))))]
    return found


def _encoded(message: str) -> str:
    """Percent-encoded, as the specification wants it. Callers take 8 KiB of trailers, so what is long is cut."""
    encoded = ""
    for letter in message:
        encoded += letter if letter in _PLAIN else quote(letter, safe="", errors="replace")
        if len(encoded) > _MESSAGE_BYTES:
            return encoded[: encoded.rfind("%", _MESSAGE_BYTES - 8) if "%" in encoded[_MESSAGE_BYTES - 8 :] else _MESSAGE_BYTES]
    return encoded

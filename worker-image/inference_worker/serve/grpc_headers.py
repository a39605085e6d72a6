"""What the headers of a gRPC call say: its content, its time-out, its compression (grpc/grpc, doc/PROTOCOL-HTTP2.md)."""

import re
import zlib
from collections.abc import Callable
from http import HTTPStatus

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES

_CONTENT_TYPE = re.compile(r"application/grpc([+;].*)?")
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def timeout_of(text: str | None) -> float | None:
    """GRPC's time-out in seconds."""
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise bad(f"grpc-timeout {text[:32]!r} is no time-out")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def is_grpc(content_type: str) -> bool:
    """Whether a request's content is gRPC's, of whatever encoding."""
    return _CONTENT_TYPE.fullmatch(content_type) is not None


def decompressor_of(encoding: str) -> Callable[[bytes], bytes] | None:
    """What takes a message's compression away; None for none. Raises RequestError(501) for what is not supported."""
    match encoding:
        case "identity":
            return None
        case "gzip":
            return lambda payload: _inflated(payload, 31)
        case "deflate":
            return lambda payload: _inflated(payload, 15)
    raise RequestError(HTTPStatus.NOT_IMPLEMENTED, f"grpc-encoding {encoding[:32]!r} is not supported; send it plain, or as gzip")


def _inflated(payload: bytes, window: int) -> bytes:
    """Decompressed, and never more than a message may have: a few bytes can be made to mean gigabytes."""
    inflater = zlib.decompressobj(window)
    try:
        plain = inflater.decompress(payload, BODY_LIMIT_BYTES + 1)
    except zlib.error as error:
        raise bad(f"a message can't be decompressed: {error}") from error
    if len(plain) > BODY_LIMIT_BYTES:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message's limit is {BODY_LIMIT_BYTES} bytes")
    if not inflater.eof:
        raise bad("a compressed message is cut off")
    return plain

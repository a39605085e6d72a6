"""What the headers of a gRPC call say: its content, its time-out, its compression (grpc/grpc, doc/PROTOCOL-HTTP2.md)."""

import re
from http import HTTPStatus

from inference_protocol import grpc_timeout
from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.compression import CODINGS

TIMEOUT = grpc_timeout.HEADER
_PLAIN = "application/grpc"
_CONTENT_TYPE = re.compile(r"application/grpc([+;].*)?")


def timeout_of(text: str | None) -> float | None:
    """GRPC's time-out in seconds."""
    if text is None:
        return None
    if (seconds := grpc_timeout.seconds(text)) is None:
        raise bad(f"{TIMEOUT} {text[:32]!r} is no time-out")
    return seconds


def is_grpc(content_type: str) -> bool:
    """Whether a request's content is gRPC's, of whatever encoding."""
    return content_type == _PLAIN or _CONTENT_TYPE.fullmatch(content_type) is not None


def message_coding(encoding: str) -> str | None:
    """How a call's messages are compressed; None for not at all. Raises RequestError(501) for what is not taken."""
    if encoding == "identity":
        return None
    if encoding not in CODINGS:
        text = f"grpc-encoding {encoding[:32]!r} is not taken; send messages as gzip or deflate, or plain"
        raise RequestError(HTTPStatus.NOT_IMPLEMENTED, text)
    return encoding

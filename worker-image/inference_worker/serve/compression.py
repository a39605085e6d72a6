"""The codings gzip and deflate, within bounds, for bodies over HTTP and messages over gRPC.

Sources: RFC 9110, 8.4.1; RFC 1950 to 1952; grpc/grpc (doc/compression.md).

A few bytes can be made to mean gigabytes. So a body's limit counts what it inflates to, inflating stops there, and all inflated
bodies of a worker count in its Budget.
"""

import zlib
from collections.abc import Iterator
from functools import lru_cache
from http import HTTPStatus

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.budget import Budget
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES, Payload

CODINGS = ("gzip", "deflate")
INLINE_INFLATE_BYTES = 1 << 10
"""So much takes a millisecond at the very worst, when it means a thousand times as much; more is inflated beside the event loop."""

PLAIN_BYTES = 8 << 10
"""So much is a few packets, which travel quicker than they are compressed; most clients ask for it by default, and know nothing
of it. More is compressed beside the event loop."""

_FED_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20
_MEMBERS = 64
# Answers wait for it, and the higher levels gain little on tensors.
_LEVEL = 1
_SAMPLE_BYTES = 64 << 10
_WORTH = 7 / 8
_ACCEPT_LIMIT = 256


def inflate(payload: Payload, coding: str, budget: Budget, *, limit: int | None = None) -> bytes:
    """The plain bytes, which the caller gives back to `budget`; `limit` is BODY_LIMIT_BYTES unless given.

    Raises RequestError: 400 for what is damaged or cut off, 413 for more than `limit`, 429 when there is no budget.
    """
    limit = BODY_LIMIT_BYTES if limit is None else limit
    pieces: list[bytes] = []
    total = 0
    try:
        for piece in _pieces(memoryview(payload), coding):
            budget.take(len(piece))
            total += len(piece)
            pieces.append(piece)
            _require_within(limit, total)
    except zlib.error as error:
        budget.give(total)
        raise bad(f"the body is no {coding}: {error}") from error
    except RequestError:
        budget.give(total)
        raise
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _require_within(limit: int, size: int) -> None:
    if size > limit:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body's limit is {limit} bytes once inflated; send less")


def _pieces(payload: memoryview, coding: str) -> Iterator[bytes]:
    """The plain bytes of all members (RFC 1952, 2.2), a bounded piece at a time."""
    position = 0
    for _ in range(_MEMBERS):
        inflater = zlib.decompressobj(_window(coding, payload[position : position + 2]))
        fed: bytes | memoryview = b""
        while not inflater.eof:
            if not fed:
                fed = payload[position : position + _FED_BYTES]
                position += len(fed)
            piece = inflater.decompress(fed, _PIECE_BYTES)
            fed = inflater.unconsumed_tail
            if piece:
                yield piece
            elif not fed and not inflater.eof and position == len(payload):
                raise bad(f"the {coding} body is cut off; send all of it")
        position -= len(inflater.unused_data)
        if position == len(payload):
            return
    raise bad(f"the {coding} body has more than {_MEMBERS} members; send it as one")


def _window(coding: str, start: memoryview) -> int:
    """What zlib calls the format. Some send "deflate" without zlib's frame (RFC 9110, 8.4.1.2), which two bytes tell apart."""
    if coding == "gzip":
        return 31
    framed = len(start) < 2 or (start[0] & 15 == 8 and int.from_bytes(start, "big") % 31 == 0)
    return 15 if framed else -15


def deflate(payload: bytes, coding: str) -> bytes | None:
    """The compressed bytes; None where a sample of a large body shows that it is not worth its time (random floats, say)."""
    if len(payload) > _SAMPLE_BYTES and len(zlib.compress(payload[:_SAMPLE_BYTES], _LEVEL)) > _SAMPLE_BYTES * _WORTH:
        return None
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    return deflater.compress(payload) + deflater.flush()


def coding_of(header: str) -> str | None:
    """The coding that a Content-Encoding names; None for none. Raises RequestError(415) for those that are not taken."""
    names = [name for part in header.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if not names:
        return None
    coding = "gzip" if names == ["x-gzip"] else names[0]
    if len(names) > 1 or coding not in CODINGS:
        text = f"Content-Encoding {header[:32]!r} is not taken; send the body as gzip or deflate, or plain"
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    return coding


@lru_cache(maxsize=256)
def accepted(header: str) -> str | None:
    """The coding that an Accept-Encoding likes best of ours; None when an answer goes plain (RFC 9110, 12.5.3)."""
    if len(header) > _ACCEPT_LIMIT:
        return None
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _weight(parameters)
    if "x-gzip" in weights:
        weights.setdefault("gzip", weights["x-gzip"])
    others = weights.get("*", 0.0)
    best = max(CODINGS, key=lambda coding: weights.get(coding, others))
    weight = weights.get(best, others)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return min(max(float(value), 0.0), 1.0)
    except ValueError:
        return 0.0

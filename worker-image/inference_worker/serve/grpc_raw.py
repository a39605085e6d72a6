"""The raw tensors of ModelInferRequests and of their answers, apart from all else that these messages say.

Protobuf would copy the tensors twice. And programs say the same again and again with ever new tensors, so that what else a message
says, its head, is parsed once.

Source of the encoding: protobuf.dev, "Encoding".
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from inference_worker.serve.http_messages import Payload
from inference_worker.serve.message_size import require_few_fields, varint
from inference_worker.serve.messages import ModelInferRequest

_RAW_INPUT_CONTENTS = 7 << 3 | 2
_RAW_OUTPUT_CONTENTS = bytes([6 << 3 | 2])
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WORTH_BYTES = 16 << 10
_FIELDS = 256
"""A message of 64 MiB can have millions of them, and would hold up all others."""

_HEADS_BYTES = 64 << 10
"""Of heads that are remembered: each two bytes of one may be a message of ninety in memory."""
HEAD_BYTES = 4096
"""Longer heads are parsed each time."""


class InferRequest(NamedTuple):
    """A ModelInferRequest: its message without raw contents, these, and its length in all.

    The message may be another request's too, which had the same `head`; nobody changes it. No head where it was not split.
    """

    message: Any
    raw: list[Payload]
    size: int
    head: bytes | None = None


def parse(payload: Payload) -> InferRequest:
    """Parse a ModelInferRequest. Raises DecodeError, and RequestError(413) for one that says too many small things."""
    size = len(payload)
    split = _split(memoryview(payload)) if size >= _WORTH_BYTES else None
    if split is None:
        message = _long(bytes(payload)) if size >= _WORTH_BYTES else ModelInferRequest.FromString(bytes(payload))
        return InferRequest(message, list(message.raw_input_contents), size)
    head, raw = split
    return InferRequest(_heads[head] if len(head) <= HEAD_BYTES else _long(head), raw, size, head)


def _long(data: bytes) -> Any:
    require_few_fields(data)
    return ModelInferRequest.FromString(data)


class _Heads(dict[bytes, Any]):
    """What heads say, by their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __missing__(self, head: bytes) -> Any:
        message = ModelInferRequest.FromString(head)
        if self._bytes + len(head) > _HEADS_BYTES:
            self.clear()
            self._bytes = 0
        self._bytes += len(head)
        self[head] = message
        return message


_heads = _Heads()


def with_raw(head: bytes, contents: Iterable[bytes | memoryview]) -> bytes:
    """A serialised ModelInferResponse: its head, and raw contents for each of its outputs."""
    parts: list[bytes | memoryview] = [head]
    for content in contents:
        parts += [_RAW_OUTPUT_CONTENTS, _number(len(content)), content]
    return b"".join(parts)


def _number(value: int) -> bytes:
    """A number as a varint."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _split(data: memoryview) -> tuple[bytes, list[Payload]] | None:
    """All fields but the raw contents, and these; None for what is no message or has too many, which protobuf deals with."""
    raw: list[Payload] = []
    rest: list[memoryview] = []
    position, end = 0, len(data)
    while position < end:
        if len(raw) + len(rest) >= _FIELDS:
            return None
        begun = position
        tag, position = varint(data, position)
        kind = tag & 7
        length = 0
        if kind == _LENGTH:
            length, position = varint(data, position)
        elif kind == _VARINT:
            _, position = varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            return None
        if position < 0 or length > end - position:
            return None
        position += length
        if tag == _RAW_INPUT_CONTENTS:
            raw.append(data[position - length : position])
        else:
            rest.append(data[begun:position])
    return b"".join(rest), raw

"""An ONNX file without its weights, by its bytes alone: what is to be read of a graph has no need of their memory.

Protocol buffers nest fields with their lengths in front (protobuf.dev/programming-guides/encoding), so that what is not wanted
is stepped over. Field numbers are those of github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

from collections.abc import Mapping

KEPT_BYTES = 1024
"""Tensors up to this size are kept: axes and shapes are among them, weights are not."""

_MODEL, _FUNCTION, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR = "model", "function", "graph", "node", "attribute", "tensor"
_WITHIN: Mapping[str, Mapping[int, str]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _GRAPH: {1: _NODE, 5: _TENSOR},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH},
}
"""The fields of each message that may hold weights, with the message that they are."""

_VALUES = frozenset({4, 5, 6, 7, 9, 10, 11})
"""The fields of a tensor that have its values, in one form or another."""

_LISTS = frozenset({7, 8, 9})
"""The fields of an attribute that is a list of plain values: it holds nothing else, and a tree's has a field for each value."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def weightless(data: bytes) -> bytes:
    """The model's file without the values of its large tensors, whose shapes stay. Raises ValueError where it is none."""
    return _kept(memoryview(data), _MODEL)


def _kept(data: memoryview, message: str) -> bytes:
    parts: list[bytes | memoryview] = []
    at = 0
    while at < len(data):
        begun = at
        tag, at = _varint(data, at)
        at, body = _after(data, at, tag & 7)
        field = tag >> 3
        if message == _TENSOR and field in _VALUES:
            continue
        if message == _ATTRIBUTE and field in _LISTS:
            return b"".join((*parts, data[begun:]))
        inner = _WITHIN.get(message, {}).get(field)
        if inner is None or tag & 7 != _LENGTH or at - body <= KEPT_BYTES:
            parts.append(data[begun:at])
        else:
            kept = _kept(data[body:at], inner)
            parts += (_encoded(tag), _encoded(len(kept)), kept)
    return b"".join(parts)


def _after(data: memoryview, at: int, wire: int) -> tuple[int, int]:
    """Where a field ends, and where its contents begin."""
    body = at
    if wire == _VARINT:
        _, at = _varint(data, at)
    elif wire == _LENGTH:
        length, body = _varint(data, at)
        at = body + length
    elif wire in (_FIXED64, _FIXED32):
        at += 8 if wire == _FIXED64 else 4
    else:
        raise ValueError(f"no wire type {wire}")
    if at > len(data):
        raise ValueError("a field ends beyond its message")
    return at, body


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number does not end")


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)

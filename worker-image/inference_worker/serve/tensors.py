"""Tensors as raw little-endian bytes, the form that the HTTP binary extension and gRPC's raw contents share.

BYTES elements carry a four-byte length each.
"""

import math
import struct

import numpy as np

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, TensorSpec
from inference_worker.serve.ask import bad
from inference_worker.serve.pieces import pieces

# More elements than any body may hold; numpy overflows on products far above it, even of shapes with a zero.
_LARGEST = 1 << 40
# Below it, a copy costs less than a look at where the bytes lie.
_LARGE_BYTES = 16 << 10
# A tensor without elements has no bytes that bound its other sizes, and a model that sums over the zero answers with all of them.
_LARGEST_BESIDE_ZERO = 1 << 20


def shape_of(spec: TensorSpec, datatype: object, shape: object) -> tuple[int, ...]:
    """The shape that a caller gives for an input. Raises RequestError(400) when type or shape do not fit the model."""
    if datatype != spec.datatype:
        raise bad(f"input {spec.name!r} is {spec.datatype}, not {datatype!r}")
    if not isinstance(shape, list) or not all(type(d) is int and 0 <= d < 2**31 for d in shape):
        raise bad(f"input {spec.name!r}: shape must be a list of sizes, not {shape!r}")
    if len(shape) != len(spec.shape) or any(w is not None and w != h for w, h in zip(spec.shape, shape, strict=True)):
        if not _is_reshaped(spec, shape):
            raise bad(f"input {spec.name!r}: shape {shape} does not fit the model's {spec.wire_shape}")
        shape = shape[:-1]
    elements = math.prod(max(d, 1) for d in shape)
    if elements > _LARGEST:
        raise bad(f"input {spec.name!r}: shape {shape} is beyond all bounds")
    if 0 in shape and elements > _LARGEST_BESIDE_ZERO:
        _require_fixed(spec, shape, elements)
    return tuple(shape)


def _is_reshaped(spec: TensorSpec, shape: list[int]) -> bool:
    """Whether this is the shape that the configuration's dims give where a row is one value: [1], which the model takes as []."""
    rows = spec.wire_shape[:1] if spec.batch_axis == 0 else []
    return len(rows) == len(spec.shape) and len(shape) == len(rows) + 1 and shape[-1] == 1 and rows in ([], [-1], shape[:1])


def from_raw(raw: bytes | memoryview, shape: tuple[int, ...], spec: TensorSpec) -> Tensor:
    """A tensor from its bytes. Raises RequestError(400) when they are too few, too many, or garbled."""
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        return of_texts(_texts(memoryview(raw), count, spec.name)).reshape(shape)
    if len(raw) != count * spec.dtype.itemsize:
        raise bad(f"input {spec.name!r}: {len(raw)} bytes are no {spec.datatype} tensor of shape {list(shape)}")
    return np.frombuffer(raw, dtype=spec.dtype).reshape(shape)


def to_raw(array: Tensor, datatype: str) -> bytes | memoryview:
    """A tensor's bytes; those of a large one where they lie, to be copied once, into the answer."""
    if datatype != "BYTES":
        if array.nbytes < _LARGE_BYTES:
            return array.tobytes()
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    values = (as_bytes(value) for piece in pieces(array) for value in piece)
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def of_texts(values: list[str]) -> Tensor:
    """A tensor of strings."""
    # ONNX Runtime takes strings as Python text; given bytes it would take their printed form.
    array = np.empty(len(values), dtype=datatypes.NUMPY["BYTES"])
    array[:] = values
    return array


def as_bytes(value: object) -> bytes:
    """One element of a BYTES tensor."""
    return value if isinstance(value, bytes) else str(value).encode()


def text_of(raw: bytes | memoryview, number: int, name: str) -> str:
    """One element as text. Raises RequestError(400)."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise bad(f"input {name!r}: element {number} is no UTF-8, which is all that ONNX strings hold: {error}") from error


def _require_fixed(spec: TensorSpec, shape: list[int], elements: int) -> None:
    """Raise RequestError where a caller chose large sizes beside a zero; those that the model fixes are no choice of theirs."""
    if any(fixed is None and size > 1 for fixed, size in zip(spec.shape, shape, strict=True)):
        text = f"shape {shape} has a zero, so its other sizes may make up {_LARGEST_BESIDE_ZERO} elements, not {elements}"
        raise bad(f"input {spec.name!r}: {text}; send smaller sizes")


def _texts(raw: memoryview, count: int, name: str) -> list[str]:
    values: list[str] = []
    offset = 0
    while offset < len(raw):
        if offset + 4 > len(raw):
            raise bad(f"input {name!r}: a BYTES length is cut off")
        (size,) = struct.unpack_from("<I", raw, offset)
        offset += 4
        if offset + size > len(raw):
            raise bad(f"input {name!r}: a BYTES element of {size} bytes reaches beyond the data")
        values.append(text_of(raw[offset : offset + size], len(values), name))
        offset += size
    if len(values) != count:
        raise bad(f"input {name!r}: {len(values)} BYTES elements do not fill a shape of {count}")
    return values

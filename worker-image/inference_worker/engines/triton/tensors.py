"""Requests to Triton and its answers, in the Open Inference Protocol's binary form."""

import math
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, Tensors


class _Parameters(msgspec.Struct, frozen=True):
    binary_data_size: int = 0


class _Output(msgspec.Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: _Parameters = _Parameters()


class _Answer(msgspec.Struct, frozen=True):
    outputs: tuple[_Output, ...]


_DECODER = msgspec.json.Decoder(_Answer)


def request(feeds: Tensors, types: Mapping[str, str], wanted: tuple[str, ...]) -> tuple[bytes, int]:
    """The body of a request for the outputs `wanted`, and how much of it is the JSON in front. `types` are those of the inputs."""
    raws = [to_raw(array, types[name]) for name, array in feeds.items()]
    inputs = [
        {"name": name, "shape": array.shape or (1,), "datatype": types[name], "parameters": {"binary_data_size": len(raw)}}
        for (name, array), raw in zip(feeds.items(), raws, strict=True)
    ]
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in wanted]
    head = msgspec.json.encode({"inputs": inputs, "outputs": outputs})
    return b"".join((head, *raws)), len(head)


def answer(body: bytes, head_length: int) -> dict[str, Tensor]:
    """The tensors of an answer. Raises ValueError when it is not what the protocol says."""
    view = memoryview(body)
    tensors: dict[str, Tensor] = {}
    start = head_length
    for output in _DECODER.decode(view[:head_length]).outputs:
        end = start + output.parameters.binary_data_size
        if end > len(body):
            raise ValueError(f"output {output.name!r} reaches beyond the answer")
        tensors[output.name] = of_raw(view[start:end], output.datatype, output.shape)
        start = end
    return tensors


def to_raw(array: Tensor, datatype: str) -> bytes:
    """A tensor's bytes; strings carry a four-byte length each."""
    if datatype != "BYTES":
        return array.tobytes()
    values = [value if isinstance(value, bytes) else str(value).encode() for value in array.ravel()]
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def of_raw(raw: memoryview, datatype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A tensor from its bytes. Raises ValueError, UnicodeDecodeError among it for strings that are no text."""
    if datatype != "BYTES":
        return np.frombuffer(raw, dtype=datatypes.NUMPY[datatype]).reshape(shape)
    values: list[str] = []
    offset = 0
    while offset < len(raw):
        (size,) = struct.unpack_from("<I", raw, offset)
        values.append(str(raw[offset + 4 : offset + 4 + size], "utf-8"))
        offset += 4 + size
    array = np.empty(math.prod(shape), dtype=object)
    array[:] = values
    return array.reshape(shape)

"""Requests as bytes, made before anything is measured: JSON, the binary extension, protobuf, and the peers' own JSON."""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.worker.models import Model, Tensor

GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
COUNT = 16  # different requests, sent in turn, so that no answer can come from a memory of the last


def feeds(model: Model, count: int = COUNT) -> list[dict[str, Tensor]]:
    """One-row feeds."""
    axes = model.batch_axes
    return [{name: _row(array, axes[name], row) for name, array in model.rows.items()} for row in range(count)]


def _row(array: Tensor, axis: int | None, row: int) -> Tensor:
    return array if axis is None else np.ascontiguousarray(np.take(array, [row % array.shape[axis]], axis=axis))


def http(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """A whole HTTP/1.1 request."""
    lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def oip_json(model: Model, row: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> bytes:
    """An Open Inference Protocol request in JSON."""
    types = {name: datatype for name, datatype, _ in model.inputs}
    inputs = [
        {"name": name, "datatype": types[name], "shape": list(array.shape), "data": array.ravel().tolist()}
        for name, array in row.items()
    ]
    return _json({**_outputs(model, binary=False), "inputs": inputs, **_parameters(parameters)})


def oip_binary(model: Model, row: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The same with raw tensors behind the JSON, and the headers that say so."""
    types = {name: datatype for name, datatype, _ in model.inputs}
    inputs = [
        {"name": name, "datatype": types[name], "shape": list(array.shape), "parameters": {"binary_data_size": array.nbytes}}
        for name, array in row.items()
    ]
    head = _json({**_outputs(model, binary=True), "inputs": inputs, **_parameters(parameters)})
    body = head + b"".join(array.tobytes() for array in row.values())
    return body, {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}


def plain_json(row: Mapping[str, Tensor]) -> bytes:
    """{input: values} for servers that have a JSON of their own."""
    return _json({name: array[0].tolist() if array.ndim else array.item() for name, array in row.items()})


def protobuf(model: Model, row: Mapping[str, Tensor], parameters: Mapping[str, int]) -> bytes:
    """A ModelInferRequest with raw contents."""
    types = {name: datatype for name, datatype, _ in model.inputs}
    return protobuf_of(model.name, {name: (types[name], array) for name, array in row.items()}, parameters)


def protobuf_of(model: str, tensors: Mapping[str, tuple[str, Tensor]], parameters: Mapping[str, int]) -> bytes:
    """The same of tensors with their data types."""
    message = _field(1, model.encode())
    for name, value in parameters.items():
        message += _field(4, _field(1, name.encode()) + _field(2, b"\x10" + _varint(value)))
    for name, (datatype, array) in tensors.items():
        shape = b"".join(_varint(size) for size in array.shape)
        message += _field(5, _field(1, name.encode()) + _field(2, datatype.encode()) + _field(3, shape))
    for _, array in tensors.values():
        message += _field(7, array.tobytes())
    return message


def framed(message: bytes) -> bytes:
    """A gRPC message with its five bytes of head."""
    return struct.pack(">BI", 0, len(message)) + message


def _outputs(model: Model, *, binary: bool) -> dict[str, Any]:
    if not binary:
        return {}
    return {"outputs": [{"name": name, "parameters": {"binary_data": True}} for name, _, _ in model.outputs]}


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"parameters": dict(parameters)} if parameters else {}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

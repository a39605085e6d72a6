"""The files that hold an ONNX model's weights where its own file doesn't (onnx.ai/onnx/repo-docs/ExternalData.html)."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import Tensor
from inference_worker.errors import WorkerError

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

# Part of each tensor whose values lie elsewhere; nothing has to be parsed for a model without.
_MARK = b"location"
# Two values a byte, which numpy has no array of: INT4, UINT4, FLOAT4E2M1, and smaller ones.
_PACKED = frozenset({21, 22, 23, 25, 26})
FILE_LIMIT_BYTES = 2**31 - 1
"""The most that one ONNX file, and one weight in it, may have: protobuf takes no more."""

FED_BYTES = 2**20
"""The least that a weight has which is fed to the runtime: it copies the others into the model first."""


def require_readable(data: bytes) -> None:
    """Raise WorkerError MODEL_TOO_LARGE for an ONNX file that nobody can read."""
    if len(data) > FILE_LIMIT_BYTES:
        raise WorkerError(
            WorkerReason.MODEL_TOO_LARGE,
            f"the model's file has {len(data)} bytes, and ONNX files have at most {FILE_LIMIT_BYTES}; save the weights beside it: "
            "onnx.save(model, path, save_as_external_data=True)",
        )


def files_of(data: bytes) -> tuple[str, ...]:
    """The names of the files beside a model, relative to its directory, in order.

    Raises WorkerError URI_FORBIDDEN for names that lead out of the directory.
    """
    if _MARK not in data:
        return ()
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError:
        # The runtime says better what is wrong with it.
        return ()
    return tuple(sorted({_checked(name) for tensor in _all_tensors(model) if (name := _location(tensor)) is not None}))


def embedded(data: bytes, beside: Mapping[str, bytes]) -> bytes:
    """The model with its weights within, for tools that take one file. Raises WorkerError MODEL_TOO_LARGE beyond 2 GiB."""
    if not beside:
        require_readable(data)
        return data
    if len(data) + sum(map(len, beside.values())) > FILE_LIMIT_BYTES:
        raise WorkerError(
            WorkerReason.MODEL_TOO_LARGE,
            "a model of more than 2 GiB can't be quantised in the worker; quantise it before the upload",
        )
    import onnx

    model = onnx.load_model_from_string(data)
    for tensor in _all_tensors(model):
        if (name := _location(tensor)) is None:
            continue
        start, end = _extent(tensor, beside[name])
        tensor.raw_data = beside[name][start:end]
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    embedded_bytes: bytes = model.SerializeToString()
    return embedded_bytes


def large_weights(data: bytes, beside: Mapping[str, bytes]) -> dict[str, tuple[Tensor, int]]:
    """Weights that are too large to be copied into a model, with ONNX's number of their type: the bytes as numpy holds them.

    Only those of the graph itself and of whole bytes; the runtime says what it takes of the others.
    """
    if not any(len(content) >= FED_BYTES for content in beside.values()):
        return {}
    import onnx

    found: dict[str, tuple[Tensor, int]] = {}
    for tensor in onnx.load_model_from_string(data).graph.initializer:
        name = _location(tensor)
        if name is None or tensor.data_type in _PACKED or tensor.data_type == tensor.STRING:
            continue
        start, end = _extent(tensor, beside[name])
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if end - start >= FED_BYTES and end - start == math.prod(tensor.dims) * dtype.itemsize and end <= len(beside[name]):
            # A type that is no numpy type goes as whole numbers of its size.
            plain = dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")
            array = np.frombuffer(beside[name], plain, math.prod(tensor.dims), start).reshape(tuple(tensor.dims))
            found[tensor.name] = (array, tensor.data_type)
    return found


def _extent(tensor: "TensorProto", content: bytes) -> tuple[int, int]:
    """Where a tensor's values are in its file."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    start = int(told.get("offset", 0))
    return start, start + int(told["length"]) if "length" in told else len(content)


def _location(tensor: "TensorProto") -> str | None:
    if tensor.data_location != tensor.EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), None)


def _all_tensors(model: "ModelProto") -> "Iterator[TensorProto]":
    yield from _tensors(model.graph)
    for function in model.functions:
        yield from _constants(function.node)
        for attribute in function.attribute_proto:
            yield from _held(attribute)


def _tensors(graph: "GraphProto") -> "Iterator[TensorProto]":
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _constants(graph.node)


def _constants(nodes: "Iterable[NodeProto]") -> "Iterator[TensorProto]":
    for node in nodes:
        for attribute in node.attribute:
            yield from _held(attribute)


def _held(attribute: "AttributeProto") -> "Iterator[TensorProto]":
    yield from (attribute.t, *attribute.tensors)
    for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
        yield from (sparse.values, sparse.indices)
    for inner in (attribute.g, *attribute.graphs):
        yield from _tensors(inner)


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise WorkerError(
            WorkerReason.URI_FORBIDDEN,
            f"the model keeps weights in {name!r}, which leads out of its directory; save them beside it",
        )
    return name

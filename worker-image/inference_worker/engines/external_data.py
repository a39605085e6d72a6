"""The files that hold an ONNX model's weights where its own file doesn't (onnx.ai/onnx/repo-docs/ExternalData.html)."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

# Part of each tensor whose values lie elsewhere; nothing has to be parsed for a model without.
_MARK = b"location"
_EMBEDDED_LIMIT_BYTES = 2**31 - 1


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
    return tuple(sorted({_checked(name) for tensor in _tensors(model.graph) if (name := _location(tensor)) is not None}))


def embedded(data: bytes, beside: Mapping[str, bytes]) -> bytes:
    """The model with its weights within, for tools that take one file. Raises WorkerError MODEL_TOO_LARGE beyond 2 GiB."""
    if not beside:
        return data
    if len(data) + sum(map(len, beside.values())) > _EMBEDDED_LIMIT_BYTES:
        raise WorkerError(
            WorkerReason.MODEL_TOO_LARGE,
            "a model of more than 2 GiB can't be quantised in the worker; quantise it before the upload",
        )
    import onnx

    model = onnx.load_model_from_string(data)
    for tensor in _tensors(model.graph):
        if (name := _location(tensor)) is None:
            continue
        told = {entry.key: entry.value for entry in tensor.external_data}
        start = int(told.get("offset", 0))
        end = start + int(told["length"]) if "length" in told else len(beside[name])
        tensor.raw_data = beside[name][start:end]
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    embedded_bytes: bytes = model.SerializeToString()
    return embedded_bytes


def _location(tensor: "TensorProto") -> str | None:
    if tensor.data_location != tensor.EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), None)


def _tensors(graph: "GraphProto") -> "Iterator[TensorProto]":
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
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

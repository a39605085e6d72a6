"""Why the rows of an ONNX model must not share a run, as far as its graph says.

Dynamic quantisation takes one scale over its whole input (onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html), however
many callers' rows are in it. Reductions and normalisations may go over the axis of the rows. A sum over the rows shows in any
trial of theirs. The largest value of all, and a scale that follows from it, show only where a neighbour is larger: so graphs
that look for extremes are read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from inference_worker.engines.engine import TensorSpec

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto

_WORTH_READING = re.compile(
    rb"DynamicQuantize|ReduceM(?:ax|in)|ReduceL|Arg(?:Max|Min)|TopK|MeanVarianceNormalization|Global(?:Max|Lp)Pool"
)
_QUANTISES = "DynamicQuantize"
_ROWS = "inference.rows"
_INFERRED = "unk__"
_KEPT_BYTES = 1024
"""Initializers up to this size are kept: axes and shapes are among them, weights are not."""

_DEFAULT_AXIS = {"ArgMax": 0, "ArgMin": 0, "TopK": -1, "Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "LpNormalization": -1}
_OLD_SOFTMAX = ("Softmax", "LogSoftmax", "Hardmax")
_ELEMENTWISE_SOFTMAX_OPSET = 13
"""Before, softmax took its axis and all that follow as one (github.com/onnx/onnx/blob/main/docs/Changelog.md#Softmax-13)."""


class Graph:
    """A model's operators, without its weights."""

    def __init__(self, model: "ModelProto") -> None:
        self._model = model

    @classmethod
    def of(cls, data: bytes) -> "Graph | None":
        """The graph of a model that the runtime has taken; None where there is nothing in it to find."""
        if not _WORTH_READING.search(data):
            return None
        # A third of a second, for those only that need it.
        import onnx
        from google.protobuf.message import DecodeError

        try:
            model = onnx.load_model_from_string(data)
        except DecodeError:
            # The runtime's own format (.ort) is no ONNX.
            return None
        _strip(model.graph)
        return cls(model)

    def mixes(self, inputs: Sequence[TensorSpec]) -> str:
        """Why rows on the inputs' axes must not share a run; empty where the graph shows no reason."""
        model = self._model
        nodes = chain(_nodes(model.graph.node), *(_nodes(function.node) for function in model.functions))
        if (found := next((node.op_type for node in nodes if node.op_type.startswith(_QUANTISES)), None)) is not None:
            return f"its operator {found} takes one scale over all rows of a run"
        return self._reduces(inputs)

    def _reduces(self, inputs: Sequence[TensorSpec]) -> str:
        import onnx
        import onnx.inliner
        from onnx.shape_inference import InferenceError

        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        if model.functions:
            # Their operators then stand where their shapes are known.
            model = onnx.inliner.inline_local_functions(model)
        axes = {spec.name: spec.batch_axis for spec in inputs}
        for value in model.graph.input:
            axis = axes.get(value.name)
            if axis is not None and axis < len(value.type.tensor_type.shape.dim):
                value.type.tensor_type.shape.dim[axis].dim_param = _ROWS
        # What was inferred before names the sizes otherwise.
        del model.graph.value_info[:]
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        except (InferenceError, ValueError):
            inferred = model.graph
        opset = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0)
        shapes = {
            value.name: [_size(dim) for dim in value.type.tensor_type.shape.dim]
            for value in (*inferred.input, *inferred.value_info, *inferred.output)
            if value.type.tensor_type.HasField("shape")
        }
        constants = {each.name: each for each in inferred.initializer}
        for node in inferred.node:
            # Where nothing is known of a shape, its first axis may be that of the rows.
            sizes = (shapes.get(node.input[0]) if node.input else None) or [""]
            axes_of_node = _reduced(node, len(sizes), constants, opset)
            over = [axis % len(sizes) for axis in axes_of_node if -len(sizes) <= axis < len(sizes)]
            if any(sizes[axis] == _ROWS or (axis == 0 and not sizes[axis]) for axis in over):
                return f"its operator {node.op_type} ({node.name or node.output[0]}) goes over the rows"
        return ""


def _size(dim: "TensorShapeProto.Dimension") -> str:
    """A size's name, or its number; empty where nothing is known of it, which inference gives names of its own."""
    return ("" if dim.dim_param.startswith(_INFERRED) else dim.dim_param) or (
        str(dim.dim_value) if dim.HasField("dim_value") else ""
    )


def _strip(graph: "GraphProto") -> None:
    """Leave the weights out: they become inputs of their shape."""
    import onnx

    known = {value.name for value in graph.input}
    kept = []
    for each in graph.initializer:
        if each.ByteSize() <= _KEPT_BYTES and each.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(each)
        elif each.name not in known:
            graph.input.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)))
    kept = [onnx.TensorProto.FromString(each.SerializeToString()) for each in kept]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _nodes(nodes: "Iterable[NodeProto]") -> "Iterator[NodeProto]":
    """All nodes, those of branches and loops too."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _reduced(node: "NodeProto", rank: int, constants: "dict[str, TensorProto]", opset: int) -> Iterable[int]:
    """The axes of a node's first input that its result mixes; none where that can't be told from the graph."""
    if node.domain not in ("", "ai.onnx"):
        return ()
    attributes = {each.name: each for each in node.attribute}
    kind = node.op_type
    if kind in ("GlobalMaxPool", "GlobalLpPool"):
        return range(2, rank)
    if kind.startswith("Reduce"):
        return _axes_of_reduction(node, rank, attributes, constants)
    if kind == "MeanVarianceNormalization":
        return attributes["axes"].ints if "axes" in attributes else (0, 2, 3)
    if kind == "CumSum":
        return _integers(constants.get(node.input[1])) or ()
    if kind not in _DEFAULT_AXIS:
        return ()
    if kind in _OLD_SOFTMAX and opset < _ELEMENTWISE_SOFTMAX_OPSET:
        return range(attributes["axis"].i if "axis" in attributes else 1, rank)
    return (attributes["axis"].i if "axis" in attributes else _DEFAULT_AXIS[kind],)


def _axes_of_reduction(
    node: "NodeProto", rank: int, attributes: "dict[str, AttributeProto]", constants: "dict[str, TensorProto]"
) -> Iterable[int]:
    if "axes" in attributes:
        return attributes["axes"].ints
    if len(node.input) > 1 and node.input[1]:
        named = _integers(constants.get(node.input[1]))
        if named is None or named:
            return named or ()
    stays = "noop_with_empty_axes" in attributes and attributes["noop_with_empty_axes"].i
    return () if stays else range(rank)


def _integers(tensor: "TensorProto | None") -> list[int] | None:
    """A constant's values; None where it is none."""
    from onnx import numpy_helper

    return None if tensor is None else [int(value) for value in numpy_helper.to_array(tensor).ravel()]

"""Why the rows of an ONNX model must not share a run, as far as its graph says.

Dynamic quantisation takes one scale over its whole input (onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html), however
many callers' rows are in it. Other operators may go over the axis of the rows. A plain sum over them shows in any trial. The
largest value of all, or a sum past a threshold, shows only where a neighbour is larger than a trial's: so graphs are read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from inference_worker.engines.axis_operator import ROWS, Operator
from inference_worker.engines.axis_rules import RULES, mixed
from inference_worker.engines.axis_sizes import Sizes
from inference_worker.engines.engine import TensorSpec
from inference_worker.engines.weightless import weightless

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_QUANTISES = "DynamicQuantize"
# Each name stands in the file with its length in front.
_WORTH_READING = re.compile(
    b"|".join((_QUANTISES.encode(), *(re.escape(b"\x22" + bytes([len(name)]) + name.encode()) for name in sorted(RULES))))
)


class Graph:
    """A model's operators, without its weights."""

    def __init__(self, model: "ModelProto") -> None:
        self._model = model

    @classmethod
    def of(cls, data: bytes) -> "Graph | None":
        """The graph of a model that the runtime has taken; None where there is nothing in it to find."""
        if not _WORTH_READING.search(data):
            return None
        # A fifth of a second, for those only that need it.
        import onnx
        from google.protobuf.message import DecodeError

        try:
            model = onnx.load_model_from_string(weightless(data))
        except (DecodeError, ValueError):
            # The runtime's own format (.ort) is no ONNX.
            return None
        del model.graph.value_info[:]
        if model.functions:
            # Their operators then stand where their shapes are known.
            import onnx.inliner

            model = onnx.inliner.inline_local_functions(model)
        return cls(model)

    def mixes(self, inputs: Sequence[TensorSpec]) -> str:
        """Why rows on the inputs' axes must not share a run; empty where the graph shows no reason."""
        model = self._model
        nodes = chain(_nodes(model.graph.node), *(_nodes(function.node) for function in model.functions))
        if (found := next((node.op_type for node in nodes if node.op_type.startswith(_QUANTISES)), None)) is not None:
            return f"its operator {found} takes one scale over all rows of a run"
        sizes = _sized(model, inputs)
        for node in sizes.walk(model.graph):
            if mixed(Operator(node, sizes)):
                return f"its operator {node.op_type} ({(node.name or node.output[0])!r}) goes over the rows"
        return ""


def _sized(model: "ModelProto", inputs: Sequence[TensorSpec]) -> Sizes:
    """What is known before the first operator: the inputs' sizes, and whose values are a caller's own."""
    from onnx import helper

    sizes = Sizes(model)
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    for spec in inputs:
        if spec.name in kinds:
            shape = [ROWS if axis == spec.batch_axis else size for axis, size in enumerate(spec.shape)]
            sizes.types[spec.name] = helper.make_tensor_type_proto(kinds[spec.name], shape)
            if spec.batch_axis is not None:
                sizes.callers.add(spec.name)
    return sizes


def _nodes(nodes: "Iterable[NodeProto]") -> "Iterator[NodeProto]":
    """All nodes, those of branches and loops too."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)

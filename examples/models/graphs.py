"""A small writer of ONNX graphs. It knows operators and names, not what a model means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

# Old enough for every ONNX Runtime that the worker supports, new enough for each operator used.
OPSET = 21
IR_VERSION = 10

Shape = tuple[int | str, ...]
Attribute = int | list[int]
ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


class GraphWriter:
    """Collect nodes and constants, then hand out a checked model."""

    def __init__(self, name: str) -> None:
        """Start an empty graph called ``name``."""
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Store an array in the graph and return the name of its value."""
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Attribute) -> str:
        """Append one node with one output and return that output's name."""
        made = helper.make_node(operator, list(inputs), [output], name=output)
        made.attribute.extend(helper.make_attribute(*pair) for pair in sorted(attributes.items()))
        self._nodes.append(made)
        return output

    def convolve(
        self,
        source: str,
        output: str,
        weights: NDArray[np.float32],
        *,
        bias: NDArray[np.float32] | None = None,
        dilation: int = 1,
    ) -> str:
        """Append a convolution that keeps height and width; ``weights`` is [out,in,k,k].

        The margin is filled with zeros, k is odd.
        """
        inputs = [source, self.constant(f"{output}.weights", weights.astype(np.float32))]
        if bias is not None:
            inputs.append(self.constant(f"{output}.bias", bias.astype(np.float32)))
        margin = dilation * (weights.shape[-1] // 2)
        return self.node(
            "Conv",
            inputs,
            output,
            kernel_shape=list(weights.shape[-2:]),
            pads=[margin] * 4,
            dilations=[dilation] * 2,
        )

    def model(self, inputs: Mapping[str, tuple[str, Shape]], outputs: Mapping[str, tuple[str, Shape]]) -> onnx.ModelProto:
        """Return the model with the named (element type, shape) inputs and outputs."""
        graph = helper.make_graph(
            self._nodes,
            self._name,
            _value_infos(inputs),
            _value_infos(outputs),
            initializer=self._constants,
        )
        made = helper.make_model(
            graph,
            producer_name="inference-operator-examples",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(made, full_check=True)
        return made


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write the model so that equal models are equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _value_infos(values: Mapping[str, tuple[str, Shape]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, ELEMENT_TYPES[element], list(shape)) for name, (element, shape) in values.items()]

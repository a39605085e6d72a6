"""`python -m examples.torchscript FOLDER`: the example models once more as TorchScript (model.pt beside model.onnx).

The graph of the ONNX file is walked with PyTorch's own operators while PyTorch records: both files have the same weights. Magika
is left out: it computes with shapes. What they take and give is in manifests/11-models-torchscript.yaml. Needs PyTorch, which is
there with INFERENCE_ENGINES=all.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

Values = Mapping[str, "torch.Tensor"]
Operator = Callable[..., "torch.Tensor"]

# What the recorded run sees; any other size of a free dimension does as well.
EXAMPLES: Mapping[str, tuple[int, ...]] = {"digits": (2, 64), "lane": (2, 3, 64, 96)}


def _gemm(flow: "torch.Tensor", weights: "torch.Tensor", bias: "torch.Tensor") -> "torch.Tensor":
    return torch.addmm(bias, flow, weights)


def _conv(flow: "torch.Tensor", *weights: "torch.Tensor", pads: list[int], dilations: list[int], **_: Any) -> "torch.Tensor":
    return functional.conv2d(flow, *weights, padding=pads[:2], dilation=dilations)


def _average(flow: "torch.Tensor", *, kernel_shape: list[int], pads: list[int], **more: Any) -> "torch.Tensor":
    counted = bool(more.get("count_include_pad", 0))
    return functional.avg_pool2d(flow, kernel_shape, stride=1, padding=pads[:2], count_include_pad=counted)


OPERATORS: Mapping[str, Operator] = {
    "Add": torch.add,
    "ArgMax": lambda flow, axis, keepdims: flow.argmax(axis, keepdim=bool(keepdims)),
    "AveragePool": _average,
    "Concat": lambda *flows, axis: torch.cat(flows, axis),
    "Conv": _conv,
    "Div": torch.div,
    "Gemm": _gemm,
    "Mul": torch.mul,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Softmax": torch.softmax,
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
}


class Walk(torch.nn.Module):
    """An ONNX graph of one input, node by node."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Raise KeyError for an operator that is not in OPERATORS."""
        super().__init__()
        self._input = graph.input[0].name
        self._outputs = [output.name for output in graph.output]
        self._constants = [tensor.name for tensor in graph.initializer]
        for number, tensor in enumerate(graph.initializer):
            self.register_buffer(f"constant{number}", torch.from_numpy(np.array(numpy_helper.to_array(tensor))))
        self._nodes = [
            (
                OPERATORS[node.op_type],
                list(node.input),
                node.output[0],
                {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
            )
            for node in graph.node
        ]

    def forward(self, flow: "torch.Tensor") -> Any:
        """All outputs: a tensor, or a tuple of several."""
        values = {name: getattr(self, f"constant{number}") for number, name in enumerate(self._constants)} | {self._input: flow}
        for operator, inputs, output, attributes in self._nodes:
            values[output] = operator(*(values[name] for name in inputs), **attributes)
        found = tuple(values[name] for name in self._outputs)
        return found if len(found) > 1 else found[0]


def write(source: Path, target: Path, shape: tuple[int, ...]) -> None:
    """Write the ONNX file as TorchScript."""
    with torch.inference_mode(), warnings.catch_warnings():
        # That the format is an old one is known.
        warnings.simplefilter("ignore")
        recorded = torch.jit.trace(Walk(onnx.load(str(source)).graph), torch.rand(shape))
        torch.jit.save(recorded, str(target))


def write_all(folder: Path) -> None:
    """Write those of EXAMPLES."""
    for name, shape in EXAMPLES.items():
        write(folder / name / "model.onnx", folder / name / "model.pt", shape)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))

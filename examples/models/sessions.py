"""Run a model here, the same way on every machine: one thread, no spinning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

BATCH = 16


class _Port(Protocol):
    """What ONNX Runtime tells of an input or output."""

    name: str
    type: str
    shape: list[int | str]


class Session:
    """An ONNX Runtime session on one thread, so that sums are added in a fixed order."""

    def __init__(self, model: Path | onnx.ModelProto) -> None:
        """Load a model from its file or from memory."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        source = model.SerializeToString() if hasattr(model, "SerializeToString") else str(model)
        self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self.outputs = [output.name for output in self._session.get_outputs()]

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        """Return the inputs and outputs as lists of {name, type, shape}."""
        return {
            "inputs": [_describe(value) for value in self._session.get_inputs()],
            "outputs": [_describe(value) for value in self._session.get_outputs()],
        }

    def run(self, values: NDArray[Any], *, batch: int = BATCH) -> dict[str, NDArray[Any]]:
        """Run the single input [N,...] in pieces and return every output, joined along N."""
        name = self._session.get_inputs()[0].name
        pieces = [self._session.run(self.outputs, {name: values[start : start + batch]}) for start in range(0, len(values), batch)]
        joined = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return dict(zip(self.outputs, joined, strict=True))


def _describe(value: _Port) -> dict[str, Any]:
    element = value.type.removeprefix("tensor(").removesuffix(")")
    types = {"float": "float32"}
    return {"name": value.name, "type": types.get(element, element), "shape": list(value.shape)}

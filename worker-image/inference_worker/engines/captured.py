"""Runs of one shape that a CUDA device replays from a captured graph.

ONNX Runtime prepares convolutions anew whenever the number of rows changes, which costs an H200 twenty times the run itself
(docs/measurements.md). A CUDA graph for each size is captured once, and replayed from buffers that stay where they are
(onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs). A capture belongs to the thread that made
it: from another one the process ends. So whoever uses this does all that a session does on one thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from inference_worker.engines.engine import Tensor, Tensors

CAPTURING = {"enable_cuda_graph": "1"}
"""The options of a provider whose session captures."""

NO_GRAPH = "-1"
"""The number of a run that is neither captured nor replayed."""

_DEVICE = "cuda"
_GRAPH = "gpu_graph_id"
# The first ones find room for what lies between the operators; the capture is made behind them.
_RUNS_BEFORE = 3

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Capture:
    """One captured graph: what goes in and comes out lies at these places."""

    inputs: Mapping[str, ort.OrtValue]
    outputs: Mapping[str, ort.OrtValue]
    binding: Any
    options: ort.RunOptions

    def run(self, session: ort.InferenceSession, feeds: Tensors, names: Sequence[str]) -> list[Tensor]:
        for name, value in self.inputs.items():
            value.update_inplace(np.ascontiguousarray(feeds[name]))
        session.run_with_iobinding(self.binding, self.options)
        return [self.outputs[name].numpy() for name in names]


class Captures:
    """The captures of one session, by the shapes that go in. One thread at a time, and always the same."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._by_shapes: dict[Shapes, _Capture] = {}
        self._none = options_of(NO_GRAPH)

    def __len__(self) -> int:
        return len(self._by_shapes)

    def capture(self, feeds: Tensors) -> None:
        """Capture runs of these shapes. Raises what the runtime raises where that can't be."""
        shapes = shapes_of(feeds)
        if shapes in self._by_shapes:
            return
        names = [node.name for node in self._session.get_outputs()]
        # Without a capture: what comes out has to have a place before.
        answers = dict(zip(names, self._session.run(names, feeds, self._none), strict=True))
        inputs = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), _DEVICE, 0) for name, array in feeds.items()}
        outputs = {
            name: ort.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype, _DEVICE, 0) for name, array in answers.items()
        }
        binding = self._session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in outputs.items():
            binding.bind_ortvalue_output(name, value)
        made = _Capture(inputs, outputs, binding, options_of(str(len(self._by_shapes) + 1)))
        for _ in range(_RUNS_BEFORE):
            self._session.run_with_iobinding(binding, made.options)
        self._by_shapes[shapes] = made

    def run(self, feeds: Tensors, names: Sequence[str]) -> list[Tensor] | None:
        """The answers `names`, from the capture of these shapes; None where there is none."""
        made = self._by_shapes.get(shapes_of(feeds))
        return made.run(self._session, feeds, names) if made is not None else None

    def close(self) -> None:
        """Let go of all captures and their places."""
        self._by_shapes.clear()


def shapes_of(feeds: Tensors) -> Shapes:
    """What tells one capture from another."""
    return tuple((name, array.shape) for name, array in sorted(feeds.items()))


def options_of(graph: str, options: ort.RunOptions | None = None) -> ort.RunOptions:
    """The options of a run that uses this capture, by its number."""
    options = options if options is not None else ort.RunOptions()
    options.add_run_config_entry(_GRAPH, graph)
    return options

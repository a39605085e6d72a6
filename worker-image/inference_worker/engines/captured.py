"""Runs of one shape that a CUDA device replays from a captured graph.

ONNX Runtime prepares convolutions anew whenever the number of rows changes, which costs an H200 twenty times the run itself
(docs/measurements.md). A CUDA graph for each size is captured once, and replayed from buffers that stay where they are
(onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs). A capture belongs to the thread that made
it: from another one the process ends. So whoever uses this does all that a session does on one thread.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from inference_worker.engines import onnx_faults
from inference_worker.engines.engine import Cancellation, RunCancelledError, Shapes, Tensor, Tensors, shapes_of
from inference_worker.engines.transport import Transport

CAPTURING = {"enable_cuda_graph": "1"}
"""The options of a provider whose session captures."""

NO_GRAPH = "-1"
"""The number of a run that is neither captured nor replayed."""

_DEVICE = "cuda"
_GRAPH = "gpu_graph_id"
# The first ones find room for what lies between the operators; the capture is made behind them.
_RUNS_BEFORE = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a captured graph reads or writes a tensor, on the device."""

    value: ort.OrtValue
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def address(self) -> int:
        """On the device."""
        address: int = self.value.data_ptr()
        return address

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(slots=True)
class Capture:
    """One captured graph: what goes in and comes out lies at these places. All runs on the session's own thread.

    `stages` says whether it can be run from buffers, which have no place for nothing.
    """

    session: ort.InferenceSession
    inputs: Mapping[str, Place]
    outputs: Mapping[str, Place]
    binding: Any
    options: ort.RunOptions
    stages: bool

    @property
    def places(self) -> tuple[tuple[str, Place], ...]:
        """All of them, with their names."""
        return (*self.inputs.items(), *self.outputs.items())

    def run(self, feeds: Tensors, names: Sequence[str]) -> list[Tensor]:
        """The answers `names`; the thread does the copies."""
        for name, place in self.inputs.items():
            place.value.update_inplace(np.ascontiguousarray(feeds[name]))
        self.replay()
        return [self.outputs[name].value.numpy() for name in names]

    def replay(self) -> None:
        """Compute with what lies there."""
        self.session.run_with_iobinding(self.binding, self.options)

    def staged(self, transport: Transport, buffer: Callable[[str], int], cancellation: Cancellation | None) -> float:
        """Compute from buffers of the device into others; returns the seconds.

        Raises RunCancelledError where nobody waits any more, else what Engine.run does.
        """
        if cancellation is not None and cancellation.cancelled:
            raise RunCancelledError("nobody waits for the run any more")
        begun = time.perf_counter()
        for name, place in self.inputs.items():
            transport.move(place.address, buffer(name), place.size)
        transport.wait(briefly=True)
        try:
            self.replay()
        except Exception as error:
            kind = MemoryError if onnx_faults.no_memory(str(error)) else RuntimeError
            raise kind(onnx_faults.plain(error)) from error
        for name, place in self.outputs.items():
            transport.move(buffer(name), place.address, place.size)
        # The next run writes to the same places.
        transport.wait(briefly=True)
        return time.perf_counter() - begun


class Captures:
    """The captures of one session, by the shapes that go in. One thread at a time, and always the same."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._by_shapes: dict[Shapes, Capture] = {}
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
        inputs = {
            name: Place(ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), _DEVICE, 0), array.shape, array.dtype)
            for name, array in feeds.items()
        }
        outputs = {
            name: Place(ort.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype, _DEVICE, 0), array.shape, array.dtype)
            for name, array in answers.items()
        }
        binding = self._session.io_binding()
        for name, place in inputs.items():
            binding.bind_ortvalue_input(name, place.value)
        for name, place in outputs.items():
            binding.bind_ortvalue_output(name, place.value)
        stages = inputs.keys().isdisjoint(outputs) and all(place.size for place in (*inputs.values(), *outputs.values()))
        made = Capture(self._session, inputs, outputs, binding, options_of(str(len(self._by_shapes) + 1)), stages)
        for _ in range(_RUNS_BEFORE):
            made.replay()
        self._by_shapes[shapes] = made

    def of(self, shapes: Shapes) -> Capture | None:
        """The capture of these shapes; None where there is none."""
        return self._by_shapes.get(shapes)

    def close(self) -> None:
        """Let go of all captures and their places."""
        self._by_shapes.clear()


def options_of(graph: str, options: ort.RunOptions | None = None) -> ort.RunOptions:
    """The options of a run that uses this capture, by its number."""
    options = options if options is not None else ort.RunOptions()
    options.add_run_config_entry(_GRAPH, graph)
    return options

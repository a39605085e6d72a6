"""What the worker asks of whatever computes. ONNX Runtime is the first; others need one new file each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A model's input or output. `shape` has None where a size is free; `dtype` is object for BYTES (strings).

    `batch_axis` is an input's axis that counts rows; None for one that all rows of a batch share (a sampling rate, say). Outputs
    say nothing by it: where their rows are is seen at warm-up.
    """

    name: str
    datatype: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    batch_axis: int | None = 0

    @property
    def wire_shape(self) -> list[int]:
        """The shape as the Open Inference Protocol writes it: -1 where a size is free."""
        return [-1 if d is None else d for d in self.shape]


class RunCancelledError(Exception):
    """A run was ended because nobody waits for it any more. No fault of the model's."""


class Cancellation:
    """Ends one run from another thread. Engines that can be interrupted bind to it; others let the run end by itself."""

    __slots__ = ("_callback", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._callback: Callable[[], None] | None = None

    def bind(self, callback: Callable[[], None]) -> None:
        """Called by the engine when the run begins; `callback` may be called from any thread."""
        self._callback = callback
        if self.cancelled:
            callback()

    def cancel(self) -> None:
        """End the run, now or when it begins."""
        self.cancelled = True
        if self._callback is not None:
            self._callback()


class Engine(Protocol):
    """A loaded model. `run` may be called from several threads at a time.

    `rows` is what one run must have; None where the model takes any number. `provider` is what really computes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    provider: str
    platform: str
    rows: int | None

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """Run the model for the outputs `wanted` (empty is all).

        Raise ValueError for feeds that it refuses, MemoryError when the device has no room, RunCancelledError when it was told
        to stop, RuntimeError for any other fault of the model or the device.
        """
        ...

    def close(self) -> None:
        """Free what the model holds; no run follows."""
        ...

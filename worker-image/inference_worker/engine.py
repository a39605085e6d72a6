"""What the worker asks of whatever computes. ONNX Runtime is the first; others need one new file each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A model's input or output. `shape` has None where a size is free; `dtype` is None for BYTES (strings)."""

    name: str
    datatype: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    @property
    def wire_shape(self) -> list[int]:
        """The shape as the Open Inference Protocol writes it: -1 where a size is free."""
        return [-1 if d is None else d for d in self.shape]


class Engine(Protocol):
    """A loaded model. `run` is called from one thread at a time unless the engine says otherwise."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    provider: str
    platform: str

    @property
    def rows(self) -> int | None:
        """Rows that one run must have; None where the model takes any number (its first dimension is free)."""
        ...

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """Run the model. Raise ValueError for feeds that it refuses, MemoryError when the device has no room."""
        ...

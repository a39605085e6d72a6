"""What the worker asks of whatever computes. `registry.py` lists the engines there are, and says how another one is added."""

import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]
Tensors = Mapping[str, Tensor]

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""The shape of each input, in the order of their names."""

_FREE_SIZE = 1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A model's input or output. `shape` has None where a size is free; `dtype` is object for BYTES (strings).

    `batch_axis` is an input's axis that counts rows; None for one that all rows of a batch share (a sampling rate, say). It is
    what the shapes suggest: `probe.py` finds out what is so, and where the rows of the outputs are. `names` are those of free
    sizes, where the file gives them; equal names are equal sizes. `optional` says that an input with a default may be left out.
    """

    name: str
    datatype: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    batch_axis: int | None = 0
    names: tuple[str | None, ...] = ()
    optional: bool = False

    @property
    def wire_shape(self) -> list[int]:
        """The shape as the Open Inference Protocol writes it: -1 where a size is free."""
        return [-1 if d is None else d for d in self.shape]


class RunCancelledError(Exception):
    """A run was ended because nobody waits for it any more. No fault of the model's."""


class EngineUnavailableError(Exception):
    """What computes is away just now (its process died, say). No fault of the model's nor of the request's: ask again later."""


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


class RunMode(StrEnum):
    """How a device other than a CPU is spared what every change of shape costs it."""

    CAPTURED = "Captured"
    SESSION_PER_SIZE = "SessionPerSize"
    ONE_SESSION = "OneSession"


@dataclass(frozen=True, slots=True)
class DeviceRuns:
    """How runs are computed there, and why they are not captured; empty where they are."""

    mode: RunMode
    because: str = ""


class Stage(AbstractContextManager["Stage"], Protocol):
    """One run whose rows are copied in while another one computes: write into `feeds`, `start` it, take its `answers`.

    `write` is for many rows of an input, the first axis of which counts them. Used by one thread, within `with`. `seconds` is what
    it computed, once it has.
    """

    feeds: Mapping[str, Tensor]
    seconds: float

    def write(self, name: str, parts: Sequence[Tensor]) -> None:
        """Write contiguous arrays into an input's place, one after the other from its beginning."""
        ...

    def start(self, cancellation: Cancellation | None = None) -> None:
        """Let it compute in its turn. Raises what Engine.run does."""
        ...

    def answers(self, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """Wait for the outputs `wanted` (empty is all). Raises what Engine.run does."""
        ...


class Engine(Protocol):
    """A loaded model. `run` may be called from several threads at a time.

    `rows` is what one run must have; None where the model takes any number. `provider` is what really computes; its last word
    names the device. `problem` says why nothing can be computed just now, and is None while all is well: ready follows it.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    provider: str
    platform: str
    rows: int | None

    @property
    def device_runs(self) -> DeviceRuns | None:
        """How a device computes runs of the shapes that `capture` was told; None where that makes no difference."""
        ...

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        """Buffers for a run of these shapes; None where runs are not prepared beside others.

        Waits until some are free; or not, and then gives None where none are.
        """
        ...

    def capture(self, feeds: Tensors) -> None:
        """Make runs of these shapes as quick as the device can; said before the first of them. Never fails."""
        ...

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:
        """Why rows on the axes of `inputs` must not share a run, by the graph alone; empty where that shows no reason."""
        ...

    @property
    def problem(self) -> str | None:
        """Why the engine can't compute just now, in words; None while it can."""
        ...

    @property
    def memory_bytes(self) -> int:
        """The most that this worker and its engine have had in memory."""
        ...

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """Run the model for the outputs `wanted` (empty is all).

        Raise ValueError for feeds that it refuses, MemoryError when the device has no room, RunCancelledError when it was told
        to stop, EngineUnavailableError while there is `problem`, RuntimeError for any other fault of the model or the device.
        """
        ...

    def close(self) -> None:
        """Free what the model holds; no run follows."""
        ...


def shapes_of(feeds: Tensors) -> Shapes:
    """The shapes of these inputs."""
    return tuple((name, array.shape) for name, array in sorted(feeds.items()))


def on_cpu(engine: Engine) -> bool:
    """Whether runs are computed by a CPU, which does not mind changing numbers of rows."""
    return engine.provider.rpartition(" ")[2].startswith("CPU")


def process_memory_bytes() -> int:
    """The most that this process has had in memory: loading takes more than answering does, and has to fit too."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def zeros_of(spec: TensorSpec, rows: int, length: int = _FREE_SIZE) -> Tensor:
    """Zeros that fit an input, with `rows` rows; other free sizes are `length`. Strings are empty."""
    sizes = [rows if i == spec.batch_axis and d is None else length if d is None else d for i, d in enumerate(spec.shape)]
    if spec.dtype.kind == "O":
        return np.full(sizes, "", dtype=object)
    return np.zeros(sizes, dtype=spec.dtype)


def counted(specs: tuple[TensorSpec, ...]) -> tuple[tuple[TensorSpec, ...], int | None]:
    """The inputs, and the rows that a run must have: where no axis may count rows, a fixed first dimension is taken for them."""
    sizes = [size for spec in specs for size in spec.shape[:1] if size is not None]
    if not sizes or any(spec.batch_axis is not None for spec in specs):
        return specs, None
    return tuple(replace(spec, batch_axis=fixed_axis(spec, sizes[0])) for spec in specs), sizes[0]


def fixed_axis(spec: TensorSpec, rows: int) -> int | None:
    """The axis of rows of a tensor whose model takes exactly so many a run: the first, else the only one of that size."""
    if spec.shape[:1] in ((rows,), (None,)):
        return 0
    return spec.shape.index(rows) if spec.shape.count(rows) == 1 else None

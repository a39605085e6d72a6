"""Runs of PyTorch on a CUDA device whose rows are copied in while another one computes.

As staging.py has it for ONNX Runtime, by PyTorch's own means: page-locked tensors, a stream for each set of buffers, and one thread
that computes.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_worker.engines.buffer_sets import Borrower, BufferSets
from inference_worker.engines.engine import Cancellation, RunCancelledError, Tensor

if TYPE_CHECKING:
    import torch

Inputs = Sequence[tuple[str, tuple[int, ...], np.dtype[Any]]]
"""Name, shape and type of each argument, in their order."""

Compute = Callable[["Sequence[torch.Tensor]"], "dict[str, torch.Tensor]"]


log = logging.getLogger(__name__)


class _Set:
    """Page-locked buffers, which grow to the largest run that they were used for, and the stream of their copies."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch = torch
        self.device = device
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        self._held: dict[str, torch.Tensor] = {}

    def place(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        """Memory of this shape that the device reaches by itself."""
        size = int(np.prod(shape)) * dtype.itemsize
        held = self._held.get(name)
        if held is None or held.numel() < size:
            pinned = self.device == "cuda"
            held = self._held[name] = self.torch.empty(size, dtype=self.torch.uint8, pin_memory=pinned)
        array: Tensor = held.numpy()[:size].view(dtype).reshape(shape)
        return array

    def moved(self, arrays: Sequence[Tensor]) -> "list[torch.Tensor]":
        """The arrays on the device, once they are there."""
        with self.torch.cuda.stream(self.stream):
            tensors = [self.torch.from_numpy(array).to(self.device, non_blocking=True) for array in arrays]
        self.wait()
        return tensors

    def fetched(self, tensors: "Mapping[str, torch.Tensor]") -> dict[str, Tensor]:
        """Tensors of the device as arrays."""
        with self.torch.cuda.stream(self.stream):
            return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}

    def wait(self) -> None:
        """Return once all copies are done."""
        if self.stream is not None:
            self.stream.synchronize()


class TorchStage(Borrower[_Set, "dict[str, torch.Tensor]"]):
    """See Stage."""

    def __init__(self, buffers: _Set, sets: BufferSets[_Set], inputs: Inputs, staging: "TorchStaging") -> None:
        super().__init__(buffers, sets)
        self._staging = staging
        self.feeds: Mapping[str, Tensor] = {name: buffers.place(name, shape, dtype) for name, shape, dtype in inputs}

    def write(self, name: str, parts: Sequence[Tensor]) -> None:
        """See Stage."""
        place = self.feeds[name]
        np.concatenate(parts, out=place[: sum(len(part) for part in parts)])

    def start(self, cancellation: Cancellation | None = None) -> None:
        """See Stage."""
        self._cancellation = cancellation
        tensors = self._buffers.moved(list(self.feeds.values()))
        self._run = self._staging.submit(lambda: self._computed(tensors))

    def _computed(self, tensors: "Sequence[torch.Tensor]") -> "dict[str, torch.Tensor]":
        if self._cancellation is not None and self._cancellation.cancelled:
            raise RunCancelledError("nobody waits for the run any more")
        begun = time.perf_counter()
        results = self._staging.compute(tensors)
        if self._buffers.stream is not None:
            self._buffers.torch.cuda.current_stream().synchronize()
        self.seconds = time.perf_counter() - begun
        return results

    def answers(self, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """See Stage."""
        results = self._result()
        return self._buffers.fetched({name: results[name] for name in wanted or results})


class TorchStaging:
    """The sets of buffers of one module, and the thread that it computes on."""

    def __init__(self, compute: Compute, *, device: str = "cuda") -> None:
        """`compute` raises what Engine.run does."""
        self.compute = compute
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._sets = BufferSets(lambda: _Set(device))
        self.submit = self._thread.submit

    def stage(self, inputs: Inputs, *, wait: bool) -> TorchStage | None:
        """Buffers for a run, once a set of them is free; None where none is, unless told to wait, and where they find no room."""
        try:
            return self._sets.lend(lambda buffers: TorchStage(buffers, self._sets, inputs, self), wait=wait)
        except (MemoryError, RuntimeError) as error:
            log.warning("a run is copied in before it computes: %s", error)
            return None

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False)

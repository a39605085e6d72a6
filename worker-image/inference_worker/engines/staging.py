"""Buffers between callers' rows and captured runs: while one run computes, the next one's rows come in and the last one's go out.

A caller's rows are copied once, into memory that the device reads by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import numpy as np

from inference_worker.engines.buffer_sets import Borrower, BufferSets
from inference_worker.engines.captured import Capture, Place
from inference_worker.engines.engine import Cancellation, Tensor
from inference_worker.engines.transport import HostMemory, Transport

Compute = Callable[[], float]
"""A run on the session's own thread; returns its seconds."""

Submit = Callable[[Compute], "Future[float]"]


class _Set:
    """Buffers of the host and the device, which grow to the largest run that they were used for."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._sizes: dict[str, int] = {}
        self._host: dict[str, HostMemory] = {}
        self._device: dict[str, int] = {}

    def fit(self, capture: Capture) -> None:
        """Make room for runs of this capture. Raises MemoryError."""
        needed = {name: place.size for name, place in capture.places}
        if all(self._sizes.get(name, 0) >= size for name, size in needed.items()):
            return
        sizes = {name: max(size, self._sizes.get(name, 0)) for name, size in needed.items()}
        self._sizes = {}
        self.transport.free()
        self._host = {name: self.transport.host(sizes[name]) for name in capture.inputs}
        self._device = {name: self.transport.device(size) for name, size in sizes.items()}
        self._sizes = sizes

    def on_host(self, name: str, place: Place) -> Tensor:
        """Page-locked memory of this shape."""
        return np.ndarray(place.shape, place.dtype, self._host[name].bytes)

    def write(self, name: str, parts: Sequence[Tensor]) -> None:
        """Write contiguous arrays there, one after the other."""
        self._host[name].write(parts)

    def on_device(self, name: str) -> int:
        """The address of a tensor's memory of the device."""
        return self._device[name]


class Stage(Borrower[_Set, float]):
    """One run: write into `feeds`, `start`, and take the `answers`. Used by one thread, within `with`; `seconds` it computed."""

    def __init__(self, buffers: _Set, sets: BufferSets[_Set], capture: Capture, submit: Submit) -> None:
        """Raises MemoryError where there is no room for buffers."""
        super().__init__(buffers, sets)
        self._capture = capture
        self._submit = submit
        buffers.fit(capture)
        self.feeds: Mapping[str, Tensor] = {name: buffers.on_host(name, place) for name, place in capture.inputs.items()}

    def write(self, name: str, parts: Sequence[Tensor]) -> None:
        """See Stage."""
        self._buffers.write(name, parts)

    def start(self, cancellation: Cancellation | None = None) -> None:
        """Copy what was written to the device, and let it compute in its turn. Raises RuntimeError."""
        self._cancellation = cancellation
        for name, array in self.feeds.items():
            self._buffers.transport.upload(self._buffers.on_device(name), array)
        # Here, beside the run that computes, and not on the thread that the next one computes on.
        self._buffers.transport.wait()
        self._run = self._submit(self._computed)

    def _computed(self) -> float:
        return self._capture.staged(self._buffers.transport, self._buffers.on_device, self._cancellation)

    def answers(self, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """The outputs `wanted` (empty is all), as Engine.run gives them. Raises what it does."""
        self.seconds = self._result()
        places = self._capture.outputs
        answers = {name: np.empty(places[name].shape, places[name].dtype) for name in wanted or places}
        for name, array in answers.items():
            # The driver has copied to memory that is not page-locked when this returns.
            self._buffers.transport.download(array, self._buffers.on_device(name))
        self._buffers.transport.wait(briefly=True)
        return answers


class Staging:
    """The sets of buffers of one session."""

    def __init__(self, transports: Callable[[], Transport]) -> None:
        """Raises what making a Transport does."""
        self._sets = BufferSets(lambda: _Set(transports()))

    def stage(self, capture: Capture, submit: Submit, *, wait: bool) -> Stage | None:
        """Buffers for a run, once a set of them is free; None where none is, unless told to wait.

        Raises MemoryError where they find no room.
        """
        return self._sets.lend(lambda buffers: Stage(buffers, self._sets, capture, submit), wait=wait)

    def close(self) -> None:
        """Free all buffers, none of which is in use."""
        for each in self._sets.all:
            each.transport.close()

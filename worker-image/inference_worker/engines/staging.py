"""Buffers between callers' rows and captured runs: while one run computes, the next one's rows come in and the last one's go out.

A caller's rows are copied once, into memory that the device reads by itself. There are two sets: a third would only let rows
wait longer than they must, since the device does one run at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

import numpy as np

from inference_worker.engines.captured import Capture, Place
from inference_worker.engines.engine import Cancellation, Tensor
from inference_worker.engines.transport import HostMemory, Transport

_SETS = 2

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


class Stage:
    """One run: write into `feeds`, `start`, and take the `answers`. Used by one thread, within `with`; `seconds` it computed."""

    def __init__(self, buffers: _Set, capture: Capture, submit: Submit, give_back: Callable[[_Set], None]) -> None:
        """Raises MemoryError where there is no room for buffers."""
        self._buffers = buffers
        self._capture = capture
        self._submit = submit
        self._give_back = give_back
        self._run: Future[float] | None = None
        self._cancellation: Cancellation | None = None
        buffers.fit(capture)
        self.feeds: Mapping[str, Tensor] = {name: buffers.on_host(name, place) for name, place in capture.inputs.items()}
        self.seconds = 0.0

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
        assert self._run is not None, "it was not started"
        self.seconds = self._run.result()
        places = self._capture.outputs
        answers = {name: np.empty(places[name].shape, places[name].dtype) for name in wanted or places}
        for name, array in answers.items():
            # The driver has copied to memory that is not page-locked when this returns.
            self._buffers.transport.download(array, self._buffers.on_device(name))
        self._buffers.transport.wait(briefly=True)
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._run is not None:
            # Whoever gives up early must not leave a run behind that reads what others write.
            self._run.exception()
        self._give_back(self._buffers)


class Staging:
    """The sets of buffers of one session."""

    def __init__(self, transports: Callable[[], Transport]) -> None:
        """Raises what making a Transport does."""
        self._free: SimpleQueue[_Set] = SimpleQueue()
        self._sets = [_Set(transports()) for _ in range(_SETS)]
        for each in self._sets:
            self._free.put(each)

    def stage(self, capture: Capture, submit: Submit, *, wait: bool) -> Stage | None:
        """Buffers for a run, once a set of them is free; None where none is, unless told to wait.

        Raises MemoryError where they find no room.
        """
        try:
            buffers = self._free.get(block=wait)
        except Empty:
            return None
        try:
            return Stage(buffers, capture, submit, self._free.put)
        except BaseException:
            self._free.put(buffers)
            raise

    def close(self) -> None:
        """Free all buffers, none of which is in use."""
        for each in self._sets:
            each.transport.close()

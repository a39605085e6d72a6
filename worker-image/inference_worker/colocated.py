"""Models that a warm worker has loaded beside its own, for tasks of other jobs: kept while there is memory for them.

Where memory is short, the process's or the device's, whichever was used longest ago goes first. What a model takes is known before
it is loaded: the operator tells what a worker of its own was measured to need, so that a load which can't end well is never begun.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from inference_protocol.messages import TaskOrder
from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.model import Loaded
from inference_worker.signing.verify import is_covered

Load = Callable[[TaskOrder], Awaitable[Loaded]]


class FreeMemory(NamedTuple):
    """Bytes of the process, and of the device that it computes on."""

    process: int
    device: int = 0

    def fits(self, room: "FreeMemory") -> bool:
        """Whether there is room for so much."""
        return self.process <= room.process and self.device <= room.device


class ColocatedModels:
    """Co-located models by their files' digests, the one used last at the end. One task at a time asks for one."""

    def __init__(self, load: Load, room: FreeMemory, *, on_device: bool = False) -> None:
        """`room` is what the worker's own model leaves. `load` raises WorkerError."""
        self._load = load
        self._room = room
        self._on_device = on_device
        self._models: dict[str, tuple[Loaded, int, FreeMemory]] = {}

    @property
    def digests(self) -> tuple[str, ...]:
        """The files that are loaded."""
        return tuple(sorted(self._models))

    async def take(self, order: TaskOrder) -> Loaded:
        """The model of an order, loaded. Raises WorkerError."""
        digest, needed = order.model.digest, _needs(order)
        if digest is None or not needed.process or (self._on_device and not needed.device):
            why = f"{order.model.name} {order.model.version} is not this worker's model, and what it takes in memory is not known"
            raise WorkerError(WorkerReason.OUT_OF_MEMORY, why)
        known = self._models.pop(digest, None)
        if known is not None and known[1] >= order.batch_size and is_covered(order.model, known[0].source):
            self._models[digest] = known
            return known[0]
        if known is not None:
            known[0].engine.close()
        if not needed.fits(self._room):
            wanted = f"{order.model.name} {order.model.version} needs {self._words(needed)}"
            why = f"{wanted}, this worker has {self._words(self._room)} beside its own model"
            raise WorkerError(WorkerReason.OUT_OF_MEMORY, why)
        for stale in to_drop({d: memory for d, (_, _, memory) in self._models.items()}, needed, self._room):
            self._models.pop(stale)[0].engine.close()
        loaded = await self._load(order)
        # The process has been larger than this model alone makes it; what it takes of the device is known better now.
        taken = FreeMemory(needed.process, max(needed.device, loaded.facts.device_bytes))
        own = msgspec.structs.replace(loaded.facts, memory_bytes=taken.process, device_bytes=taken.device, device_free_bytes=0)
        loaded = replace(loaded, facts=own)
        self._models[digest] = loaded, order.batch_size, taken
        return loaded

    def _words(self, memory: FreeMemory) -> str:
        return f"{memory.process} bytes" + (f" and {memory.device} on its device" if self._on_device else "")

    def close(self) -> None:
        """Free them all."""
        while self._models:
            self._models.popitem()[1][0].engine.close()


def to_drop(held: dict[str, FreeMemory], needed: FreeMemory, room: FreeMemory) -> list[str]:
    """Which of the held models go, in the order of their last use, until what is `needed` fits into `room`."""
    process, device = (room[i] - sum(size[i] for size in held.values()) for i in (0, 1))
    dropped = []
    for digest, size in held.items():
        if needed.fits(FreeMemory(process, device)):
            break
        process, device = process + size.process, device + size.device
        dropped.append(digest)
    return dropped


def _needs(order: TaskOrder) -> FreeMemory:
    return FreeMemory(order.memory_bytes, order.device_bytes)

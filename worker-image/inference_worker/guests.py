"""Models that a warm worker has loaded beside its own, for tasks of other jobs: kept while there is memory for them.

Where memory is short, whichever was used longest ago goes first. What a model takes is known before it is loaded: the operator
tells what a worker of its own was measured to need, so that a load which can't end well is never begun.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from inference_protocol.messages import TaskOrder
from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.model import Loaded

Load = Callable[[TaskOrder], Awaitable[Loaded]]


class Guests:
    """Guest models by their files' digests, the one used last at the end. One task at a time asks for one."""

    def __init__(self, load: Load, room_bytes: int) -> None:
        """`room_bytes` is what the worker's own model leaves. `load` raises WorkerError."""
        self._load = load
        self._room = room_bytes
        self._models: dict[str, tuple[Loaded, TaskOrder]] = {}

    @property
    def digests(self) -> tuple[str, ...]:
        """The files that are loaded."""
        return tuple(sorted(self._models))

    async def take(self, order: TaskOrder) -> Loaded:
        """The model of an order, loaded. Raises WorkerError."""
        digest, needed = order.model.digest, order.memory_bytes
        if digest is None or not needed:
            why = f"{order.model.name} {order.model.version} is not this worker's model, and what it takes in memory is not known"
            raise WorkerError(WorkerReason.OUT_OF_MEMORY, why)
        known = self._models.pop(digest, None)
        if known is not None and known[1].batch_size >= order.batch_size:
            self._models[digest] = known
            return known[0]
        if known is not None:
            known[0].engine.close()
        if needed > self._room:
            wanted = f"{order.model.name} {order.model.version} needs {needed} bytes"
            why = f"{wanted}, this worker has {self._room} beside its own model"
            raise WorkerError(WorkerReason.OUT_OF_MEMORY, why)
        for stale in to_drop({d: o.memory_bytes for d, (_, o) in self._models.items()}, needed, self._room):
            self._models.pop(stale)[0].engine.close()
        loaded = await self._load(order)
        # The process has been larger than this model alone makes it.
        loaded = replace(loaded, facts=msgspec.structs.replace(loaded.facts, memory_bytes=needed))
        self._models[digest] = loaded, order
        return loaded

    def close(self) -> None:
        """Free them all."""
        while self._models:
            self._models.popitem()[1][0].engine.close()


def to_drop(held: dict[str, int], needed: int, room: int) -> list[str]:
    """Which of the held models go, in the order of their last use, until `needed` bytes fit into `room`."""
    free = room - sum(held.values())
    dropped = []
    for digest, size in held.items():
        if free >= needed:
            break
        free += size
        dropped.append(digest)
    return dropped

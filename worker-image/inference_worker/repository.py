"""The models that this worker knows: which are loaded, how that went, and how one is changed without losing a request."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from inference_protocol.messages import ModelSource
from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.model import Loaded, Model

log = logging.getLogger(__name__)

Load = Callable[[ModelSource], Awaitable[Loaded]]


class State(StrEnum):
    """The protocol's words for a model's state."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(slots=True)
class Entry:
    """A model that the worker was told of. `model` is what answers now, also while another is being loaded in its place."""

    source: ModelSource
    state: State = State.UNAVAILABLE
    reason: str = ""
    model: Model | None = None

    @property
    def absence(self) -> str:
        """Why nothing answers by this name, in words for callers."""
        name = self.source.name
        if self.state is State.UNLOADING:
            return f"{name} is being unloaded"
        return f"{name} is not loaded: {self.reason}" if self.reason else f"{name} is still loading"

    def not_loaded(self, fault: WorkerError) -> WorkerError:
        """Say why it could not be loaded; what answered before still does. Returns the fault."""
        self.state = State.READY if self.model is not None else State.UNAVAILABLE
        self.reason = f"{fault.reason}: {fault.message}"
        return fault


class Repository:
    """Models by name. Loading happens elsewhere; what is here only changes hands on the event loop."""

    def __init__(self, sources: tuple[ModelSource, ...], load: Load, start: Callable[[Loaded], Model]) -> None:
        """`load` fetches, verifies and warms, away from the event loop; `start` makes a model that answers."""
        self.entries = {source.name: Entry(source) for source in sources}
        self._load = load
        self._start = start
        self._locks = {name: asyncio.Lock() for name in self.entries}
        self._retiring: set[asyncio.Task[None]] = set()

    def get(self, name: str) -> Model | None:
        """The model that answers by this name."""
        entry = self.entries.get(name)
        return entry.model if entry is not None else None

    async def load(self, name: str) -> Model:
        """Load a model, or load it anew: the old one answers until the new one does. Raises WorkerError, the old one staying."""
        entry = self.entries[name]
        async with self._locks[name]:
            entry.state, entry.reason = State.LOADING, ""
            try:
                model = self._start(await self._load(entry.source))
            except WorkerError as error:
                entry.not_loaded(error)
                raise
            except Exception as error:
                log.exception("%s can't be loaded", name)
                raise entry.not_loaded(WorkerError(WorkerReason.INTERNAL, f"{name}: {error!r}")) from error
            old, entry.model = entry.model, model
            entry.state = State.READY
            if old is not None:
                self._retire(old)
            return model

    async def unload(self, name: str) -> None:
        """Stop answering by this name. What has been taken is answered first."""
        entry = self.entries[name]
        async with self._locks[name]:
            old, entry.model = entry.model, None
            if old is not None:
                entry.state, entry.reason = State.UNLOADING, ""
                await old.retire()
            entry.state, entry.reason = State.UNAVAILABLE, "unloaded"

    def close(self) -> None:
        """Refuse all that waits, in every model."""
        for entry in self.entries.values():
            if entry.model is not None:
                entry.model.batcher.close()

    def _retire(self, old: Model) -> None:
        task = asyncio.get_running_loop().create_task(old.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

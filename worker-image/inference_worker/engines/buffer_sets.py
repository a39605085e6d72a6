"""Sets of buffers that runs borrow, and what runs that borrow them have in common, whichever runtime computes.

There are two sets: a third would only let rows wait longer than they must, since the device does one run at a time.
"""

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

from inference_worker.engines.engine import Cancellation

_SETS = 2

B = TypeVar("B")
R = TypeVar("R")
S = TypeVar("S")


class BufferSets(Generic[B]):
    """The sets of one session, each lent to one run at a time. Any thread may borrow."""

    def __init__(self, make: Callable[[], B]) -> None:
        """Raises what `make` does."""
        self._free: SimpleQueue[B] = SimpleQueue()
        self.all = tuple(make() for _ in range(_SETS))
        for each in self.all:
            self._free.put(each)

    def lend(self, borrow: Callable[[B], S], *, wait: bool) -> S | None:
        """What `borrow` makes of a set, once one is free; None where none is, unless told to wait. Raises what `borrow` does."""
        try:
            buffers = self._free.get(block=wait)
        except Empty:
            return None
        try:
            return borrow(buffers)
        except BaseException:
            self.give_back(buffers)
            raise

    def give_back(self, buffers: B) -> None:
        """Let others have it."""
        self._free.put(buffers)


class Borrower(Generic[B, R]):
    """A run that has a set from its making until it is left, and never gives it back before it has computed."""

    def __init__(self, buffers: B, sets: BufferSets[B]) -> None:
        self._buffers = buffers
        self._sets = sets
        self._run: Future[R] | None = None
        self._cancellation: Cancellation | None = None
        self.seconds = 0.0

    def _result(self) -> R:
        assert self._run is not None, "it was not started"
        return self._run.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._run is not None:
            # Whoever gives up early must not leave a run behind that reads what others write.
            self._run.exception()
        self._sets.give_back(self._buffers)

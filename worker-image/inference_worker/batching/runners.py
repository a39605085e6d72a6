"""Threads that run batches. The event loop hands work over and gets a call back; nothing else is shared."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Runners(Generic[T]):
    """A fixed number of threads, each of which does one piece of work at a time."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: SimpleQueue[tuple[Callable[[], T], Callable[[T | BaseException], None]] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=f"runner-{i}", daemon=True) for i in range(count)]
        self.count = count
        self.busy = 0
        self._closed = False
        for thread in self._threads:
            thread.start()

    @property
    def idle(self) -> int:
        """Threads that have nothing to do."""
        return self.count - self.busy

    @property
    def alive(self) -> bool:
        """Whether all threads are there, as long as they should be."""
        return self._closed or all(thread.is_alive() for thread in self._threads)

    def start(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Do `work` in a thread, then call `done` with its result on the event loop, or with what it raised.

        What is no Exception (an exit, say) ends the thread as well, which `alive` then tells.
        """
        self.busy += 1
        self._work.put((work, done))

    def close(self) -> None:
        """Let the threads end after what they do now. Does not wait: a run that hangs must not hold the process."""
        self._closed = True
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (entry := self._work.get()) is not None:
            work, done = entry
            result: T | BaseException
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 -- handed on to whoever waits
                result = error
            fatal = isinstance(result, BaseException) and not isinstance(result, Exception)
            del work, entry
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish, done, result)
            del done, result
            if fatal:
                log.error("a runner thread ends: what it ran wanted the process to exit")
                return

    def _finish(self, done: Callable[[T | BaseException], None], result: T | BaseException) -> None:
        self.busy -= 1
        done(result)

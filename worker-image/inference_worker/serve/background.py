"""Work of the event loop that its starter does not wait for."""

import asyncio
from collections.abc import Coroutine


class Background:
    """Keeps tasks until they end: the event loop itself holds them too loosely for that."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Begin `work`, which answers for its own faults."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

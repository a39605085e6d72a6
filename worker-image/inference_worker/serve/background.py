"""Work of the event loop that its starter does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from inference_worker.threads import parsed

T = TypeVar("T")


class Background:
    """Keeps tasks until they end: the event loop itself holds them too loosely for that."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Begin `work`, which answers for its own faults."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def make(self, made: Callable[[], T], then: Callable[[T], None], failed: Callable[[Exception], None], *, apart: bool) -> None:
        """Tell `then` what `made` returns, or `failed` what either raises: now, or later from a thread where it goes `apart`."""

        async def later() -> None:
            try:
                then(await parsed(made))
            except Exception as error:  # noqa: BLE001 -- told and logged there
                failed(error)

        if apart:
            self.spawn(later())
            return
        try:
            then(made())
        except Exception as error:  # noqa: BLE001 -- told and logged there
            failed(error)

"""Blocking work beside the event loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

T = TypeVar("T")


_PARSERS = ThreadPoolExecutor(2, thread_name_prefix="parsing")


async def parsed(work: Callable[[], T]) -> T:
    """Take a large request apart beside the event loop; few at a time, since all of them share one interpreter."""
    return await asyncio.get_running_loop().run_in_executor(_PARSERS, work)


async def in_thread(work: Callable[[], T], *, name: str) -> T:
    """Run blocking work in a daemon thread: unlike an executor's, it does not hold the process back when it has to end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result, fault = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 -- handed on to whoever waits
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, fault)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future

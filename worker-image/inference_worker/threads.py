"""Blocking work beside the event loop."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from inference_worker.errors import let_go

T = TypeVar("T")


_PARSERS = ThreadPoolExecutor(2, thread_name_prefix="parsing")


async def parsed(work: Callable[[], T]) -> T:
    """Take a large request apart beside the event loop; few at a time, since all of them share one interpreter."""
    return await asyncio.get_running_loop().run_in_executor(_PARSERS, work)


async def in_thread(work: Callable[[], T], *, name: str) -> T:
    """Run blocking work in a daemon thread: unlike an executor's, it does not hold the process back when it has to end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_run, args=(work, loop, future), name=name, daemon=True).start()
    try:
        return await future
    finally:
        # It has the error whose traceback has this frame.
        del future


def _run(work: Callable[[], T], loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]") -> None:
    result, fault = None, None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 -- handed on to whoever waits
        fault = let_go(error)
    with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, future, result, fault)


def _settle(future: "asyncio.Future[T]", result: T | None, fault: BaseException | None) -> None:
    if future.done():
        return
    if fault is not None:
        future.set_exception(fault)
    else:
        future.set_result(cast(T, result))

"""Answers that hold for a few seconds, for a bounded number of questions. Equal questions at one time are asked once."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MOST = 1024


class TimedCache(Generic[K, V]):
    """By key. What failed is not kept."""

    def __init__(self, monotonic: Callable[[], float], *, seconds: float, most: int = _MOST) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._most = most
        self._kept: OrderedDict[K, tuple[float, asyncio.Future[V]]] = OrderedDict()

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer of at most so many seconds ago, or a new one. Raises what `ask` raises."""
        now = self._monotonic()
        known = self._kept.get(key)
        if known is None or now - known[0] > self._seconds:
            known = self._put(key, asyncio.ensure_future(ask()))
        try:
            # One who asks and leaves must not take the answer from the others.
            return await asyncio.shield(known[1])
        except BaseException:
            if known[1].done() and self._kept.get(key) is known:
                del self._kept[key]
            raise

    def keep(self, key: K, value: V) -> None:
        """Take in an answer that was found otherwise."""
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        future.set_result(value)
        self._put(key, future)

    def _put(self, key: K, future: asyncio.Future[V]) -> tuple[float, asyncio.Future[V]]:
        known = self._kept[key] = (self._monotonic(), future)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return known

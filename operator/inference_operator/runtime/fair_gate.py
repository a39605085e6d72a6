"""A gate that lets so many in at once, and of no one so many that others have to wait for them."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class FairGate(Generic[K]):
    """Who waits is let in in turn by key. One event loop.

    A key has at most the share that each would have if one more came: one that has all it may have leaves room for the next.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._inside: Counter[K] = Counter()
        # Inside or waiting.
        self._here: Counter[K] = Counter()
        # The key whose turn is next stands first.
        self._waiting: OrderedDict[K, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def enter(self, key: K) -> AsyncIterator[None]:
        """Wait for a place, and keep it as long as the context lasts."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._here[key] += 1
        self._waiting.setdefault(key, deque()).append(ticket)
        self._admit()
        try:
            await ticket
            yield
        finally:
            if not ticket.cancelled():
                self._taken -= 1
                _less(self._inside, key)
            _less(self._here, key)
            self._admit()

    def _admit(self) -> None:
        while self._taken < self._most and (key := self._next()) is not None:
            tickets = self._waiting[key]
            ticket = tickets.popleft()
            self._waiting.move_to_end(key)
            if not tickets:
                del self._waiting[key]
            # Who was cancelled while waiting leaves the ticket behind.
            if not ticket.cancelled():
                self._inside[key] += 1
                self._taken += 1
                ticket.set_result(None)

    def _next(self) -> K | None:
        share = max(1, self._most // (len(self._here) + 1))
        return next((key for key in self._waiting if self._inside[key] < share), None)


def _less(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]

"""A token bucket for the whole operator, so that its load on the API server is one known number."""

import asyncio
from collections.abc import Callable


class TokenBucket:
    """`rate` tokens a second, at most `burst` saved up. Waiters are served in order."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._stamp = clock()
        self._line = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a token."""
        async with self._line:
            self._refill()
            if self._tokens < 1:
                await asyncio.sleep((1 - self._tokens) / self._rate)
                self._refill()
            self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._stamp) * self._rate)
        self._stamp = now

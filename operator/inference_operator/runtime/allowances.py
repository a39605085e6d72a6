"""How often each of many may do something: a token bucket a key, and no queue."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Allowances(Generic[K]):
    """`rate` a second for each key, `burst` saved up. The keys that were seen last are remembered, `most` of them."""

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float], *, most: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._monotonic = monotonic
        self._most = most
        self._left: OrderedDict[K, tuple[float, float]] = OrderedDict()

    def take(self, key: K) -> bool:
        """Take one of a key's; whether it had any."""
        now = self._monotonic()
        left, since = self._left.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        self._left[key] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        return left >= 1

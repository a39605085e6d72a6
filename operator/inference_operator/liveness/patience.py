"""For how long the silence of a namespace's workers keeps new work from a node. Pure: times are the listening seconds of the polls.

A worker is what a tenant's pod says that it is. One that answers and falls silent in turn, alone on a node, would bar it to all.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

# The control plane hears of a dead node after 50 s by its defaults, also after it was away for a minute itself.
MOST_SECONDS = 120.0
# What is used up comes back within an hour.
_REFILLED_SECONDS = 3600.0
# Looks that are further apart are no use of the time between them.
_LOOK_SECONDS = 1.0
# So many are remembered at least; those that are full again are forgotten beyond.
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class _Left:
    seconds: float
    at: float

    def refilled(self, now: float) -> float:
        return min(MOST_SECONDS, self.seconds + (now - self.at) * MOST_SECONDS / _REFILLED_SECONDS)


class Patience:
    """A bucket of seconds for each namespace on each node."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, str], _Left] = {}

    def bars(self, namespaces: AbstractSet[str], node: str, now: float) -> bool:
        """Whether silent workers of these namespaces bar a node now. It is asked at each look for as long as they are silent."""
        # Each is charged, also after one that does.
        each = [self._take(namespace, node, now) for namespace in namespaces]
        return any(each)

    def _take(self, namespace: str, node: str, now: float) -> bool:
        key = (namespace, node)
        known = self._left.get(key)
        if known is None:
            self._forget(now)
            known = _Left(MOST_SECONDS, now)
        passed = now - known.at
        left = known.seconds - passed if passed < _LOOK_SECONDS else known.refilled(now)
        # One that has nothing left gets nothing back before it is silent no more.
        self._left[key] = _Left(max(0.0, left), now)
        return left > 0

    def _forget(self, now: float) -> None:
        if len(self._left) >= _REMEMBERED:
            self._left = {key: left for key, left in self._left.items() if left.refilled(now) < MOST_SECONDS}

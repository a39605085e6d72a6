"""Statistics of rounds and of single jobs."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed. Raises ValueError without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values to take a quantile of")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest. Raises ValueError without values."""
    if not values:
        raise ValueError("no values to take a median of")
    return {"median": round(statistics.median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


def overlaps(intervals: Iterable[tuple[float, float]]) -> int:
    """How many intervals begin while an earlier one still lasts."""
    count, end = 0, float("-inf")
    for begin, finish in sorted(intervals):
        count += begin < end
        end = max(end, finish)
    return count


def turns(rounds: int, sides: Sequence[T]) -> list[T]:
    """A B B A A B ...: each side `rounds` times and in both directions, so that what drifts falls on all alike."""
    return [side for number in range(rounds) for side in (sides if number % 2 == 0 else sides[::-1])]

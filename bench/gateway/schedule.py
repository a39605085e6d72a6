"""A simulation, without Envoy: its schedule with weights as speeds and as their squares, over a clairvoyant split."""

import heapq
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_REQUESTS = 20_000
_LOADS = (0.5, 0.7, 0.85)
_FLEETS = (
    (0.01, 0.01), (0.01, 0.015), (0.01, 0.02), (0.01, 0.03), (0.01, 0.04),
    (0.01, 0.01, 0.02, 0.02), (0.01, 0.01, 0.01, 0.03), (0.01, 0.02, 0.03, 0.04) * 2,
)  # fmt: skip
"""Seconds a request takes, of each worker."""

Split = Callable[[Sequence[float], Sequence[int]], int]
"""The worker that gets the next request: by seconds until each is free, and by what each has in flight."""


async def schedules(_folder: Path, _rounds: int) -> list[dict[str, Any]]:
    """For each fleet and load: p99 by weights as speeds (`first`) and as their squares (`second`), over the clairvoyant split's."""
    return [
        {"part": "schedule", "fleet": list(fleet), "load": load}
        | {name: round(_p99(_by_weights(fleet, power), fleet, load) / best, 2) for name, power in (("first", 1), ("second", 2))}
        for fleet in _FLEETS
        for load in _LOADS
        for best in [_p99(_clairvoyant(fleet), fleet, load)]
    ]


def _clairvoyant(fleet: Sequence[float]) -> Split:
    return lambda free, _: min(range(len(fleet)), key=lambda worker: free[worker] + fleet[worker])


def _by_weights(fleet: Sequence[float], power: int) -> Split:
    """Envoy's weighted least request: earliest deadline first; a pick costs one more than is in flight, over the weight."""
    weights = [(min(fleet) / seconds) ** power for seconds in fleet]
    turns = [(1 / weight, worker) for worker, weight in enumerate(weights)]
    heapq.heapify(turns)

    def split(_: Sequence[float], active: Sequence[int]) -> int:
        due, worker = turns[0]
        heapq.heapreplace(turns, (due + (active[worker] + 1) / weights[worker], worker))
        return worker

    return split


def _p99(split: Split, fleet: Sequence[float], load: float) -> float:
    chance, now, taken = random.Random(1), 0.0, []
    rate = load * sum(1 / seconds for seconds in fleet)
    free, under_way = [0.0] * len(fleet), [list[float]() for _ in fleet]
    for _ in range(_REQUESTS):
        now += chance.expovariate(rate)
        under_way = [[end for end in ends if end > now] for ends in under_way]
        worker = split([max(0.0, at - now) for at in free], [len(ends) for ends in under_way])
        free[worker] = max(free[worker], now) + fleet[worker]
        under_way[worker].append(free[worker])
        taken.append(free[worker] - now)
    return sorted(taken)[int(0.99 * _REQUESTS)]

"""Callers at work: as many threads as asked for, until enough requests were sent; beside them somebody who watches the memory."""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.wire.tally import Tally

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

_PAGE = 4096
_LOOK_SECONDS = 0.2
_MIB = 1 << 20


def resident(pids: Sequence[int]) -> int:
    """Bytes of memory of some processes together. Raises OSError when one is gone."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * _PAGE


@dataclass
class Figures:
    """What a run came to. Memory is the median of each tenth of the requests, in MiB."""

    target: str
    seed: int
    requests: int
    seconds: float
    right: int
    outcomes: dict[str, int]
    memory: list[float] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """MiB from the second tenth to the last: the first has caches to fill."""
        return round(self.memory[-1] - self.memory[1], 1)

    def __str__(self) -> str:
        return json.dumps({**vars(self), "growth": self.growth})


def run(
    target: str,
    sessions: Sequence[Callable[[Random], Counter[str]]],
    pids: Sequence[int],
    *,
    requests: int,
    seed: int,
    callers: int,
    alive: Callable[[], bool],
) -> Figures:
    """Let callers have one session after the other. Raises BrokenPromiseError, and what a session raises."""
    tally, over = Tally(requests), threading.Event()
    looks: list[tuple[int, int]] = []

    def call(number: int) -> None:
        rng, mine = Random(f"{seed}-{number}"), number
        try:
            while not tally.done and not over.is_set():
                tally.add(sessions[mine % len(sessions)](rng))
                mine += 1
        finally:
            over.set()

    started = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        futures = [pool.submit(call, number) for number in range(callers)]
        try:
            while not all(future.done() for future in futures):
                looks.append((tally.requests, resident(pids)))
                assert alive(), "the process has ended"
                time.sleep(_LOOK_SECONDS)
                if len(looks) % 100 == 0:
                    told = f"{tally.requests} after {time.monotonic() - started:.0f} s, {looks[-1][1] >> 20} MiB"
                    sys.stderr.write(f"{target}: {told}\n")
        finally:
            over.set()
        for future in futures:
            future.result()
    looks.append((tally.requests, resident(pids)))
    right = tally.seen.pop("right", 0)
    seconds = round(time.monotonic() - started, 1)
    return Figures(target, seed, tally.requests, seconds, right, dict(sorted(tally.seen.items())), _tenths(looks, tally.requests))


def _tenths(looks: list[tuple[int, int]], requests: int) -> list[float]:
    """The median of memory in each tenth of the requests; a tenth that nobody looked at has what was seen before it."""
    found: list[float] = []
    for tenth in range(10):
        within = [size for count, size in looks if tenth * requests <= count * 10 < (tenth + 1) * requests]
        found.append(round(statistics.median(within) / _MIB, 1) if within else found[-1] if found else looks[0][1] / _MIB)
    return found

"""What is kept: bounded in bytes, in number and in age, whatever comes and in whatever order."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inference_worker.cache.known import Known, size_of
from inference_worker.cache.lru import ENTRY_BYTES, Bounds, Lru

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 6 * ENTRY_BYTES
AGE = 10.0


class AgainstAList(RuleBasedStateMachine):
    """Beside a list that is looked through: the last used stands last."""

    def __init__(self) -> None:
        super().__init__()
        self.lru: Lru[int, int] = Lru(Bounds(MOST, AGE, 4))
        self.kept: list[tuple[int, int, int, float]] = []
        self.now = 0.0

    @rule(key=st.integers(0, 6), value=st.integers(), size=st.integers(0, 7 * ENTRY_BYTES))
    def put(self, key: int, value: int, size: int) -> None:
        fits = self.lru.put(key, value, size, self.now)
        self.kept = [entry for entry in self.kept if entry[0] != key and self.now - entry[3] < AGE]
        assert fits == (size + ENTRY_BYTES <= MOST)
        if fits:
            while len(self.kept) >= 4 or sum(entry[2] for entry in self.kept) + size + ENTRY_BYTES > MOST:
                self.kept.pop(0)
            self.kept.append((key, value, size + ENTRY_BYTES, self.now))

    @rule(key=st.integers(0, 6))
    def get(self, key: int) -> None:
        found = self.lru.get(key, self.now)
        known = next((entry for entry in self.kept if entry[0] == key and self.now - entry[3] < AGE), None)
        assert (found.value if found is not None else None) == (known[1] if known is not None else None)
        if known is not None:
            self.kept.remove(known)
            self.kept.append(known)

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.0, 11.0]))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def is_bounded(self) -> None:
        assert self.lru.size == sum(entry[2] for entry in self.kept) <= MOST
        assert len(self.lru) == len(self.kept) <= 4
        assert len(self.lru._ages) <= 2 * len(self.lru) + 65


TestAgainstAList = AgainstAList.TestCase


@pytest.mark.parametrize(
    "made",
    [
        lambda number: {"y": np.full((1, 10), number, np.float32)},
        lambda number: {"scores": np.full((4, 1000), number, np.float64), "boxes": np.full((4, 3), number, np.int64)},
        lambda number: {"label": np.array([f"name-{number}-{i}" for i in range(50)], object)},
    ],
)
def test_an_entry_takes_no_more_memory_than_it_is_counted_with(made: Callable[[int], dict[str, np.ndarray]]) -> None:
    lru: Lru[bytes, Known] = Lru(Bounds(1 << 30, AGE))
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(300):
        answer = made(number)
        lru.put(number.to_bytes(32, "big"), Known(answer, 1, 0.1), size_of(answer), 1.0)
    del answer
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert after - before <= lru.size

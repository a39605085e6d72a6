"""A fault of our own in any part of the batcher is told to those that it touches, and ends nothing (report 9).

In process, since no real worker can be made to fail in its own arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inference_worker.batching.batcher import Batcher
from inference_worker.batching.breaker import Breaker
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.queue import DeadlineQueue
from inference_worker.batching.rows import Layout
from inference_worker.batching.runners import Runners
from inference_worker.engines.engine import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_worker.engines.engine import Cancellation, Shapes, Tensor, Tensors

SPEC = TensorSpec("x", "FP32", np.dtype(np.float32), (None, 1))
# What the batcher calls for the first six requests, and how many calls of each may fail: it asks the layout for a count once.
HOOKS: list[tuple[type, str, int]] = [
    (LatencyProfile, "seconds", 3),
    (LatencyProfile, "best", 3),
    (LatencyProfile, "observe", 3),
    (MemoryCeilings, "limit", 3),
    (MemoryCeilings, "succeeded", 3),
    (Breaker, "refuses", 3),
    (Breaker, "succeeded", 3),
    (Layout, "rows", 3),
    (Layout, "bucket", 3),
    (Layout, "joined", 3),
    (Layout, "answer", 3),
    (Layout, "count", 1),
    (DeadlineQueue, "order", 3),
    (DeadlineQueue, "add", 3),
    (DeadlineQueue, "head", 3),
    (DeadlineQueue, "line", 3),
    (DeadlineQueue, "pop", 3),
    (Runners, "start", 3),
]


class Gate:
    """An engine whose runs wait for a gate, so that a batch gathers behind the first."""

    inputs: tuple[TensorSpec, ...] = (SPEC,)
    outputs: tuple[TensorSpec, ...] = (SPEC,)
    provider, platform = "CPUExecutionProvider", "test"
    rows: int | None = None
    problem: str | None = None
    memory_bytes = 1
    device_runs = None

    def __init__(self) -> None:
        self.gate = threading.Event()

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        self.gate.wait(10)
        return {"x": feeds["x"] * 2}

    def capture(self, feeds: Tensors) -> None:
        pass

    def stage(self, shapes: Shapes, *, wait: bool = True) -> None:
        pass

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:
        return ""

    def close(self) -> None:
        pass


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int) -> Callable[[], bool]:
    """Make one call of a method fail; returns whether it has."""
    real, calls = getattr(owner, name), 0

    def method(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise RuntimeError("a fault of our own")
        return real(*args, **more)

    monkeypatch.setattr(owner, name, method)
    return lambda: calls >= call


class Callers:
    """Asks and remembers who was told what."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self.told: dict[int, list[Any]] = {}

    def ask(self, number: int) -> None:
        told = self.told[number] = []
        try:
            self._batcher.submit({"x": np.full((1, 1), number, np.float32)}, (), lambda answer, _: told.append(answer))
        except Exception as error:  # noqa: BLE001 -- a caller is told by it
            told.append(error)

    async def all_told(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                while not all(self.told.values()):
                    await asyncio.sleep(0.002)
        return all(self.told.values())


def faults() -> list[Any]:
    return [
        pytest.param(owner, name, call, id=f"{owner.__name__}.{name} {call}")
        for owner, name, calls in HOOKS
        for call in range(1, calls + 1)
    ]


@pytest.mark.parametrize(("owner", "name", "call"), faults())
async def test_a_fault_in_the_batcher_leaves_nobody_waiting_and_the_next_are_answered(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int
) -> None:
    """ray-project/ray#66140: an exception where the batch size was computed ended the batcher's task, the app still RUNNING."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    engine = Gate()
    batcher = Batcher(engine, Layout({"x": 0}, {"x": 0}), LatencyProfile({1: 1e-3, 4: 1e-3}), max_rows=4)
    failed = fail_at(monkeypatch, owner, name, call)
    callers = Callers(batcher)
    for number in range(6):
        callers.ask(number)
    engine.gate.set()

    everybody = await callers.all_told()
    assert failed(), "these requests do not call it so often any more"
    for number in range(10, 15):
        callers.ask(number)
    next_ones = await callers.all_told() or all(callers.told[number] for number in range(10, 15))

    waiting = [number for number, told in callers.told.items() if not told]
    twice = [number for number, told in callers.told.items() if len(told) > 1]
    wrong = [
        number
        for number, told in callers.told.items()
        if told and isinstance(told[0], dict) and told[0]["x"].tolist() != [[2.0 * number]]
    ]
    fresh = [type(callers.told[number][0]).__name__ for number in range(10, 15) if callers.told[number]]
    batcher.close()
    assert (everybody, next_ones, waiting, twice, wrong) == (True, True, [], [], [])
    assert set(fresh) == {"dict"} and (batcher.waiting, batcher.in_flight) == (0, 0)

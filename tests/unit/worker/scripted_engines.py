"""Engines by hand, for what real models do too seldom or too quickly: runs that wait, fail, or find no memory when a test says so."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from inference_worker import datatypes
from inference_worker.batching.batcher import Batcher
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.rows import Layout
from inference_worker.engines.engine import (
    Cancellation,
    DeviceRuns,
    RunCancelledError,
    RunMode,
    Shapes,
    Stage,
    Tensor,
    Tensors,
    TensorSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inference_worker.batching.execute import Answer
    from inference_worker.batching.ticket import Timing

_PATIENCE_SECONDS = 20.0
# Longer than any caller waits: a run that nobody lets go must not seem to have ended by itself.
_HELD_SECONDS = 60.0
Places = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
ROWS = Layout({"x": 0}, {"y": 0})
ALONE = Layout({"x": 0}, {"y": 0}, "it is told so")


def spec(name: str = "x", shape: tuple[int | None, ...] = (None, 2), axis: int | None = 0, datatype: str = "FP32") -> TensorSpec:
    return TensorSpec(name, datatype, datatypes.NUMPY[datatype], shape, axis)


class Formula:
    """y from x, by a function of numpy's; nothing else."""

    platform = "by hand"
    problem: str | None = None
    memory_bytes = 1
    provider = "CPUExecutionProvider"

    def __init__(
        self,
        compute: Callable[..., Tensor | dict[str, Tensor]],
        *,
        inputs: tuple[TensorSpec, ...] = (spec(),),
        outputs: tuple[TensorSpec, ...] = (spec("y"),),
        rows: int | None = None,
        staged: bool = False,
    ) -> None:
        """A `staged` one computes in a thread of its own, while the next run is written."""
        self.device_runs = DeviceRuns(RunMode.CAPTURED) if staged else None
        self._thread = ThreadPoolExecutor(1) if staged else None
        self._compute = compute
        self.inputs, self.outputs, self.rows = inputs, outputs, rows
        self.sizes: list[int] = []

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        first = self.inputs[0]
        self.sizes.append((feeds[first.name].shape or (1,))[first.batch_axis or 0])
        answer = self._compute(**feeds)
        found = answer if isinstance(answer, dict) else {"y": answer}
        return {name: found[name] for name in wanted or found}

    def capture(self, feeds: Tensors) -> None:
        pass

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        captured = self.rows is None or dict(shapes)["x"][0] == self.rows
        places = {name: (shape, np.dtype(np.float32)) for name, shape in shapes}
        return _ByHand(self, places, self._thread) if self._thread is not None and captured else None

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:
        return ""

    def close(self) -> None:
        pass


def doubled(x: Tensor) -> Tensor:
    return x * 2


class Scripted(Formula):
    """y = 2x. A held engine's runs wait until they are let; `faults` looks at x and says what goes wrong."""

    def __init__(
        self, *, held: bool = False, faults: Callable[[Tensor], BaseException | None] = lambda _: None, staged: bool = False
    ) -> None:
        super().__init__(doubled, staged=staged)
        self.faults = faults
        self.seen: list[Tensor] = []
        self.closed = False
        self._let: float = 0 if held else float("inf")
        self._changed = threading.Condition()
        self._begun = threading.Semaphore(0)

    def let(self, runs: float = float("inf")) -> None:
        """Let so many more runs end."""
        with self._changed:
            self._let += runs
            self._changed.notify_all()

    def hold(self) -> None:
        """Let no further run end."""
        with self._changed:
            self._let = 0

    async def begun(self, runs: int = 1) -> None:
        """Wait until so many more runs have begun."""
        for _ in range(runs):
            assert await asyncio.to_thread(self._begun.acquire, timeout=_PATIENCE_SECONDS)

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        self.seen.append(feeds["x"].copy())
        self._begun.release()
        cancelled = cancellation or Cancellation()
        cancelled.bind(self._wake)
        with self._changed:
            assert self._changed.wait_for(lambda: self._let > 0 or cancelled.cancelled, _HELD_SECONDS)
            if cancelled.cancelled:
                raise RunCancelledError("nobody waits for it")
            self._let -= 1
        fault = self.faults(feeds["x"])
        try:
            if fault is not None:
                raise fault
        finally:
            # In its traceback is this frame.
            del fault
        return super().run(feeds, wanted)

    def _wake(self) -> None:
        threading.Thread(target=self.let, args=(0,)).start()

    def close(self) -> None:
        self.closed = True

    @property
    def firsts(self) -> list[list[float]]:
        """The first value of each row, run by run: which requests went together, and in which order."""
        return [seen[:, 0].tolist() for seen in self.seen]


class _ByHand(Stage):
    """The run of a staged engine."""

    def __init__(self, engine: Formula | None, places: Places, thread: ThreadPoolExecutor | None) -> None:
        self._engine, self._thread = engine, thread
        self.feeds: Tensors = {name: np.full(shape, -1, dtype) for name, (shape, dtype) in places.items()}
        self.seconds = 0.0

    def write(self, name: str, parts: Sequence[Tensor]) -> None:
        np.concatenate(parts, out=self.feeds[name])

    def start(self, cancellation: Cancellation | None = None) -> None:
        assert self._thread is not None and self._engine is not None
        self._run = self._thread.submit(self._engine.run, self.feeds, (), cancellation)

    def answers(self, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        answers = self._run.result()
        self.seconds = 1e-6
        return {name: answers[name] for name in wanted or answers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def a_stage(places: Places) -> Stage:
    """Places to write to, and nothing that computes."""
    return _ByHand(None, places, None)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Caller:
    """Waits for one answer. Hearing a second one is an error."""

    def __init__(self) -> None:
        self.future: asyncio.Future[tuple[Answer, Timing]] = asyncio.get_running_loop().create_future()

    def __call__(self, answer: Answer, timing: Timing) -> None:
        self.future.set_result((answer, timing))

    @property
    def heard(self) -> bool:
        return self.future.done()

    async def answer(self) -> Any:
        answer, _ = await asyncio.wait_for(self.future, _PATIENCE_SECONDS)
        return answer

    async def timing(self) -> Timing:
        _, timing = await asyncio.wait_for(self.future, _PATIENCE_SECONDS)
        return timing


def a_row(*values: float) -> dict[str, Tensor]:
    """Feeds of a row for each value."""
    return {"x": np.array([[value, -value] for value in values], np.float32)}


def a_batcher(
    engine: Formula, layout: Layout = ROWS, profile: dict[int, float] | None = None, *, max_rows: int = 8, **more: Any
) -> Batcher:
    # Without anything measured, larger never pays: what the tests want joined says so by its profile.
    return Batcher(engine, layout, LatencyProfile(profile or {}), max_rows=max_rows, **more)


# Far from what a run by hand takes, on either side, so that what is learnt on the way changes no decision.
FLAT = dict.fromkeys((1, 2, 4, 8, 16), 1e-6)
"""A device that takes as long for many rows as for one."""
LINEAR = {rows: rows * 10.0 for rows in (1, 2, 4, 8)}
"""A device that takes n times as long for n rows."""

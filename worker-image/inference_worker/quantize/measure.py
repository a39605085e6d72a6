"""Run two models on the same rows: for their answers, and for their time."""

import statistics
import time

import numpy as np

from inference_worker.batch.items import Items
from inference_worker.engines.engine import Engine, Tensor
from inference_worker.quantize import rows
from inference_worker.quantize.records import Timing

# Enough for a steady median; the budget keeps slow models from holding up a start.
_MOST_RUNS, _LEAST_RUNS = 101, 5
_BUDGET_SECONDS = 5.0


def answers(engine: Engine, found: Items, batch_size: int) -> dict[str, Tensor]:
    """Every output for all rows, run at `batch_size` unless the model's own is fixed.

    The batch size matters: dynamic ranges are taken over a batch. Raises what Engine.run does.
    """
    parts: dict[str, list[Tensor]] = {spec.name: [] for spec in engine.outputs}
    for feeds, given, real in rows.batches(found, engine, batch_size):
        for name, array in engine.run(feeds).items():
            by_row = array.ndim > 0 and len(array) == given
            parts[name].append(array[:real] if by_row else array.ravel())
    return {name: _joined(each) for name, each in parts.items()}


def _joined(parts: list[Tensor]) -> Tensor:
    if len({part.shape[1:] for part in parts}) > 1:
        # Free sizes differ from batch to batch: the values can still be compared, one by one.
        parts = [part.ravel() for part in parts]
    return np.concatenate(parts)


def timing(before: Engine, after: Engine, found: Items, batch_size: int, threads: int) -> Timing:
    """Time both in turns, so that whatever else the machine does meets both alike."""
    size = before.rows or batch_size
    real = min(size, len(found))
    feeds = rows.filled(found.rows(0, real), before, real, size)
    taken: tuple[list[float], list[float]] = ([], [])
    for engine in (before, after):
        engine.run(feeds)
    end = time.perf_counter() + _BUDGET_SECONDS
    while len(taken[0]) < _MOST_RUNS and (len(taken[0]) < _LEAST_RUNS or time.perf_counter() < end):
        for engine, times in zip((before, after), taken, strict=True):
            begun = time.perf_counter()
            engine.run(feeds)
            times.append((time.perf_counter() - begun) * 1e3)
    first, second = (round(statistics.median(times), 4) for times in taken)
    return Timing(batch_size=size, runs=len(taken[0]), threads=threads, before_ms=first, after_ms=second)

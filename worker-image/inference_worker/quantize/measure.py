"""Run two models on the same rows: for their answers, and for their time."""

import statistics
import time

import numpy as np

from inference_worker.batch.items import Items
from inference_worker.batching.rows import layout_of
from inference_worker.engines.engine import Engine, Tensor, Tensors
from inference_worker.quantize import rows
from inference_worker.quantize.records import Timing

# Enough for a steady median; the budget keeps slow models from holding up a start.
_MOST_RUNS, _LEAST_RUNS = 101, 5
_BUDGET_SECONDS = 5.0


def answers(engine: Engine, found: Items, batch_size: int) -> dict[str, Tensor]:
    """Every output for all rows, run at `batch_size` unless the model's own is fixed.

    The batch size matters where ranges are taken over a batch. Raises what Engine.run does.
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
    """Time both in turns, so that whatever else the machine does meets both alike; row by row what must run so."""
    size = before.rows or batch_size
    real = min(size, len(found))
    feeds = rows.filled(found.rows(0, real), before, real, size)
    runs = tuple(_runs(engine, feeds, size) for engine in (before, after))
    taken: tuple[list[float], list[float]] = ([], [])
    for engine, parts in zip((before, after), runs, strict=True):
        _run(engine, parts)
    end = time.perf_counter() + _BUDGET_SECONDS
    while len(taken[0]) < _MOST_RUNS and (len(taken[0]) < _LEAST_RUNS or time.perf_counter() < end):
        for engine, parts, times in zip((before, after), runs, taken, strict=True):
            begun = time.perf_counter()
            _run(engine, parts)
            times.append((time.perf_counter() - begun) * 1e3)
    first, second = (round(statistics.median(times), 4) for times in taken)
    return Timing(batch_size=size, runs=len(taken[0]), threads=threads, before_ms=first, after_ms=second)


def _runs(engine: Engine, feeds: Tensors, size: int) -> list[Tensors]:
    layout = layout_of(engine.inputs, {})
    if engine.rows is not None or not engine.mixes(engine.inputs):
        return [feeds]
    return [layout.part(feeds, row, row + 1) for row in range(size)]


def _run(engine: Engine, parts: list[Tensors]) -> None:
    for feeds in parts:
        engine.run(feeds)

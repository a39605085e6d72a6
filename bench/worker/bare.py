"""The bare loop that batch mode is held against: what a careful user would write for one model and one file."""

import os
import time
from pathlib import Path

import numpy as np

from bench.worker.models import DATATYPES, session


def main(arguments: list[str]) -> None:
    """Print rows a second with reading and writing, and of the runs alone. Arguments: model, rows, batch, output."""
    model, rows, batch, output = Path(arguments[0]), Path(arguments[1]), int(arguments[2]), Path(arguments[3])
    opened = session(model)
    assert all(port.type in DATATYPES for port in opened.get_inputs())
    axes = {port.name: None if not port.shape else 1 if port.name == "state" else 0 for port in opened.get_inputs()}
    begun = time.perf_counter()
    loaded = np.load(rows, mmap_mode="r")
    arrays = dict(loaded) if rows.suffix == ".npz" else {opened.get_inputs()[0].name: loaded}
    count = next(array.shape[axes[name] or 0] for name, array in arrays.items() if axes[name] is not None)
    names = [port.name for port in opened.get_outputs()]
    kept: list[list[np.ndarray]] = []
    computed = 0.0
    for start in range(0, count, batch):
        feeds = {name: _part(array, axes[name], start, batch) for name, array in arrays.items()}
        then = time.perf_counter()
        kept.append(opened.run(names, feeds))
        computed += time.perf_counter() - then
    joined = {
        name: np.concatenate(column, axis=1 if name == "stateN" else 0)
        for name, column in zip(names, zip(*kept, strict=True), strict=True)
    }
    with output.open("wb") as file:
        np.savez(file, allow_pickle=False, **{name.replace("/", "_"): array for name, array in joined.items()})
        os.fsync(file.fileno())
    took = time.perf_counter() - begun
    print(count / took, count / computed)


def _part(array: np.ndarray, axis: int | None, start: int, size: int) -> np.ndarray:
    if axis is None:
        return array
    return np.ascontiguousarray(array[start : start + size] if axis == 0 else array[:, start : start + size])

"""Whether the first size of a model that has no free one counts rows: found by running it.

An export with a batch size of its own (`[64, 784]`) has rows; an image without any (`[3, 224, 224]`), or one vector, has not. Both
look alike in the file. Rows are rows where each answer follows its own row: in another place, and beside other neighbours.
"""

from collections.abc import Mapping

import numpy as np

from inference_worker.batching.rows import Layout, fixed_axes, layout_of
from inference_worker.engines.engine import Engine, Tensor, Tensors
from inference_worker.probe import NARROW, REFUSALS, WIDER, alike, different

_ROUNDING = 1e-3


def layout_of_fixed(engine: Engine, sample: Tensors) -> Layout:
    """The layout of a model that takes exactly so many rows a run; one without rows where they turn out to be something else."""
    rows = engine.rows
    assert rows is not None, "its first size is free"
    axes = fixed_axes(engine.outputs, rows)
    layout = layout_of(engine.inputs, axes, f"it takes exactly {rows} rows a run")
    if rows == 1 or not (why := _dependent(engine, layout, sample)):
        return layout
    without = dict.fromkeys(spec.name for spec in engine.outputs)
    return Layout(
        dict.fromkeys(layout.inputs), without, f"its first dimension does not count rows: {why}", dict.fromkeys(layout.optional)
    )


def _dependent(engine: Engine, layout: Layout, sample: Tensors) -> str:
    """Why what the first dimension counts are no rows; empty where they are."""
    if (lost := next((name for name, axis in layout.outputs.items() if axis is None), None)) is not None:
        return f"output {lost!r} has none"
    if mixed := engine.mixes(engine.inputs):
        return mixed
    for values in (NARROW, WIDER):
        one, other = (different(sample, engine.inputs, seed, values) for seed in (1, 2))
        try:
            alone = engine.run(one)
            moved = engine.run(_turned(one, layout.inputs))
            beside = engine.run(_with_first_of(one, other, layout.inputs))
        except REFUSALS as error:
            if values is WIDER:
                # A vocabulary may be smaller; what small values have shown stands.
                continue
            return f"it refused rows that differ: {error}"
        for name, axis in layout.outputs.items():
            if not alike(_turned({name: alone[name]}, layout.outputs)[name], moved[name], _ROUNDING):
                return f"output {name!r} depends on the places of the rows"
            if not alike(_first(alone[name], axis), _first(beside[name], axis), _ROUNDING):
                return f"output {name!r} depends on the rows beside"
    return ""


def _turned(tensors: Tensors, axes: Mapping[str, int | None]) -> dict[str, Tensor]:
    """Each row in the next row's place, and the last in the first's."""
    return {name: array if (axis := axes.get(name)) is None else np.roll(array, 1, axis) for name, array in tensors.items()}


def _with_first_of(one: Tensors, other: Tensors, axes: Mapping[str, int | None]) -> dict[str, Tensor]:
    """The first row of one beside the rows of the other."""
    found: dict[str, Tensor] = {}
    for name, array in other.items():
        axis = axes.get(name)
        rest = array if axis is None else np.delete(array, 0, axis)
        found[name] = one[name] if axis is None else np.concatenate([_first(one[name], axis), rest], axis)
    return found


def _first(array: Tensor, axis: int | None) -> Tensor:
    return array if axis is None else np.take(array, [0], axis)

"""Whether the first size of a model that has no free one counts rows: found by running it.

An export with a batch size of its own (`[64, 784]`) has rows; an image without any (`[3, 224, 224]`), or one vector, has not. Both
look alike in the file. Rows are rows where each answer follows its own row: in another place, and beside other neighbours.
"""

from inference_worker.batching.rows import Layout, fixed_layout
from inference_worker.engines.engine import Engine, Tensors
from inference_worker.likeness import WIDE_ROUNDING, differing
from inference_worker.probe import REFUSALS, sized
from inference_worker.trial_rows import NARROW, WIDER, different


def layout_of_fixed(engine: Engine, sample: Tensors) -> Layout:
    """The layout of a model that takes exactly so many rows a run; one without rows where they turn out to be something else."""
    rows = engine.rows
    assert rows is not None, "its first size is free"
    layout = fixed_layout(engine.inputs, engine.outputs, rows)
    if rows == 1 or not (why := _dependent(engine, layout, sample, rows)):
        return layout
    without = dict.fromkeys(spec.name for spec in engine.outputs)
    return Layout(
        dict.fromkeys(layout.inputs), without, f"its first dimension does not count rows: {why}", dict.fromkeys(layout.optional)
    )


def _dependent(engine: Engine, layout: Layout, sample: Tensors, rows: int) -> str:
    """Why what the first dimension counts are no rows; empty where they are."""
    if (lost := next((name for name, axis in layout.outputs.items() if axis is None), None)) is not None:
        return f"output {lost!r} has none"
    if mixed := engine.mixes(sized(engine.inputs, sample)):
        return mixed
    for values in (NARROW, WIDER):
        one, other = (different(sample, engine.inputs, seed, values) for seed in (1, 2))
        try:
            why = _compared(engine, layout, one, other, rows)
        except REFUSALS as error:
            if values is WIDER:
                # A vocabulary may be smaller; what small values have shown stands.
                continue
            return f"it refused rows that differ: {error}"
        if why:
            return why
    return ""


def dependent_items(engine: Engine, layout: Layout, items: Tensors, rows: int) -> str:
    """Why somebody's items must not be taken for rows, tried with a run of them; empty where each is answered by itself.

    Raises what Engine.run does for items that it refuses.
    """
    if rows == 1 or None in layout.outputs.values():
        return ""
    if mixed := engine.mixes(sized(engine.inputs, items)):
        return mixed
    return _compared(engine, layout, items, layout.padded(layout.part(items, 0, 1), rows - 1), rows)


def _compared(engine: Engine, layout: Layout, one: Tensors, other: Tensors, rows: int) -> str:
    """Why the rows of `one` depend on each other or on those of `other`; empty where they don't. Raises what Engine.run does."""
    first, rest = layout.part(one, 0, 1), layout.part(one, 1, rows)
    alone = engine.run(one)
    moved = engine.run(layout.joined((rest, first)))
    beside = engine.run(layout.joined((first, layout.part(other, 1, rows))))
    of_first, of_rest = layout.answer(alone, 0, 1), layout.answer(alone, 1, rows)
    if name := (
        differing(of_rest, layout.answer(moved, 0, rows - 1), WIDE_ROUNDING)
        or differing(of_first, layout.answer(moved, rows - 1, rows), WIDE_ROUNDING)
    ):
        return f"output {name!r} depends on the places of the rows"
    if name := differing(of_first, layout.answer(beside, 0, 1), WIDE_ROUNDING):
        return f"output {name!r} depends on the rows beside"
    return ""

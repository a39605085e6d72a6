"""Where a model's rows are, and whether those of several requests may share a run: found by running it.

Nothing is taken from the file's word alone. A graph can promise a free first dimension and mix its rows (a softmax over the
batch), or lose it (a reshape to a fixed size). So rows are run alone and in company: short and long ones, small values and wide
ones, since a scale that is taken over the whole run shows only where the values differ. These are two questions: rows that must
not share a run are still rows, and a batch job runs them one by one.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inference_worker import datatypes
from inference_worker.batching.rows import Layout, layout_of
from inference_worker.engines.engine import Engine, Tensor, Tensors, TensorSpec
from inference_worker.errors import let_go
from inference_worker.likeness import KERNELS, ROUNDING, WIDE_ROUNDING, Tolerance, differing
from inference_worker.row_axes import candidates
from inference_worker.trial_rows import NARROW, SIGNED, WIDE, WIDER, Values, different, sample_of, shared_ones

_FLIPS = 1e-3
"""How many whole numbers of a row may change in each of its rows with the number of rows: a net is undecided about few."""

_LENGTHS = (1, 8, 64, 224)
"""Sizes that are tried where any is allowed, until the model takes one."""

_LONG_LENGTHS = (4096, 16000)
"""The same where no input has more than one such size: sound and text, of which a second is a usual length."""

_CROWD = 4
"""How often three rows stand in one run of many, at the least."""

_MOST_ROWS = 256
"""The most rows of a trial."""

_PATIENCE_SECONDS = 1.0
"""How long is spent on trials beyond the first."""

REFUSALS = (ValueError, RuntimeError, MemoryError)


@dataclass(frozen=True, slots=True)
class Trial:
    """Rows to be run in each other's company, of one shape: each in several versions, of which the first that is taken runs.

    Only those of a `required` trial may not be refused alone.
    """

    rows: tuple[tuple[Tensors, ...], ...]
    rounding: Tolerance = WIDE_ROUNDING
    required: bool = False


def taken_sample(engine: Engine) -> tuple[dict[str, Tensor], int]:
    """The smallest zeros of one row that the model takes, and the length of what is free in them. Raises what Engine.run does."""
    required = [spec for spec in engine.inputs if not spec.optional]
    free = max((sum(size is None for axis, size in enumerate(s.shape) if axis != s.batch_axis) for s in required), default=0)
    lengths = (*_LENGTHS, *_LONG_LENGTHS) if free == 1 else _LENGTHS if free else _LENGTHS[:1]
    rows = engine.rows or 1
    refusal: Exception | None = None
    for length in lengths:
        sample = sample_of(engine.inputs, rows, length)
        try:
            engine.run(sample)
        except (ValueError, RuntimeError) as error:
            refusal = refusal or let_go(error)
        else:
            return sample, length
    try:
        assert refusal is not None
        raise refusal
    finally:
        # Its traceback has this frame.
        del refusal


def understood(
    engine: Engine, sample: Tensors, length: int | None = None, *, most: int = 0, clock: Callable[[], float] = time.perf_counter
) -> Layout:
    """The layout of a model that takes `sample`, which has one row, and `most` rows a run at the most.

    With a `length`, `sample` is of zeros whose free sizes have it: every axis that may count rows is tried, and other lengths
    too. Without one it is somebody's first item, whose rows are where the engine's inputs say.
    """
    # What may be left out was never tried, unless the sample has it.
    given = tuple(replace(spec, optional=False) for spec in engine.inputs if spec.name in sample)
    tried = candidates(given, engine.outputs) if length is not None else (given,)
    tried = tuple(each for each in tried if any(spec.batch_axis is not None for spec in each))
    if not tried:
        return layout_of(engine.inputs, dict.fromkeys(spec.name for spec in engine.outputs), _NO_ROWS)
    found: list[Layout] = []
    for inputs in tried:
        found.append(_layout(engine, inputs, sample, length, most, clock))
        if found[-1].joins:
            break
    # The first that joins, else the one that has rows in most of its answers.
    best = max(found, key=lambda layout: (layout.joins, sum(axis is not None for axis in layout.outputs.values())))
    return replace(best, optional={spec.name: spec.batch_axis for spec in engine.inputs if spec.name not in sample})


_NO_ROWS = "none of its inputs has a dimension that counts rows"


def _layout(
    engine: Engine, inputs: tuple[TensorSpec, ...], sample: Tensors, length: int | None, most: int, clock: Callable[[], float]
) -> Layout:
    single = layout_of(inputs, {})
    one, other = (different(sample, inputs, seed, NARROW) for seed in (1, 2))
    first = Trial(((one,), (other,), (sample,)), ROUNDING, required=True)
    try:
        two, three = engine.run(single.joined((one, other))), engine.run(single.joined((one, other, sample)))
    except REFUSALS as error:
        why = engine.mixes(sized(inputs, sample)) or f"it refused several rows at once: {error}"
        return replace(single, outputs=_named_axes(engine, inputs), why=why)
    axes = {name: _grown(array.shape, three[name].shape) for name, array in two.items()}
    without = next((name for name, axis in axes.items() if axis is None), None)
    why = f"its output {without!r} has no dimension that counts rows" if without is not None else ""
    layout = replace(single, outputs=axes, why=engine.mixes(sized(inputs, sample)) or why)
    if not layout.joins:
        return layout
    begun = clock()
    why = _mixed(engine, layout, first, three) or _crowded(engine, layout, (one, other, sample), three)
    why = why or _infected(engine, layout, (one, other, sample), three)
    trials = _trials(inputs, sample, length)
    while not why and clock() - begun <= _PATIENCE_SECONDS and (trial := next(trials, None)) is not None:
        why = _mixed(engine, layout, trial)
    times = min(most, _MOST_ROWS) // 3
    if not why and times > _CROWD and clock() - begun <= _PATIENCE_SECONDS:
        why = _crowded(engine, layout, (one, other, sample), three, times)
    return replace(layout, why=why)


def sized(inputs: tuple[TensorSpec, ...], sample: Tensors) -> tuple[TensorSpec, ...]:
    """The inputs that a sample has, with its sizes where theirs are free, but for the rows."""
    return tuple(
        replace(spec, shape=tuple(None if axis == spec.batch_axis else size for axis, size in enumerate(sample[spec.name].shape)))
        for spec in inputs
        if spec.name in sample
    )


def _grown(two: tuple[int, ...], three: tuple[int, ...]) -> int | None:
    grown = [axis for axis, sizes in enumerate(zip(two, three, strict=False)) if sizes == (2, 3)]
    return grown[0] if len(two) == len(three) and len(grown) == 1 else None


def _named_axes(engine: Engine, inputs: tuple[TensorSpec, ...]) -> dict[str, int | None]:
    """The outputs' axes by the name of the inputs' rows; the first axis where it is free and nothing has a name."""
    placed = [(spec.names, spec.batch_axis) for spec in inputs if spec.batch_axis is not None]
    names = {names[axis] if axis < len(names) else None for names, axis in placed}
    return {spec.name: _named_axis(spec, names) for spec in engine.outputs}


def _named_axis(spec: TensorSpec, names: set[str | None]) -> int | None:
    found = [axis for axis, name in enumerate(spec.names) if name is not None and name in names]
    if found:
        return found[0]
    return 0 if spec.shape[:1] == (None,) and None in names else None


def _trials(inputs: tuple[TensorSpec, ...], sample: Tensors, length: int | None) -> Iterator[Trial]:
    """What is to be tried beyond the sample itself."""
    if any(spec.batch_axis is not None and spec.dtype.kind == "i" for spec in inputs):
        yield _trial(sample, inputs, 8, ((NARROW,), (SIGNED, NARROW), (SIGNED, NARROW)))
    if (switched := shared_ones(sample, inputs)) is not sample:
        yield _trial(switched, inputs, 9, ((NARROW,), (WIDE, NARROW), (WIDER, WIDE, NARROW)))
    lengths = (None, None) if length is None else (length + 4, length + 12, length, 2 * length, length + 50)
    for seed, size in enumerate(lengths, start=3):
        base = sample if size is None else sample_of(inputs, 1, size)
        # A vocabulary may be too small for wide values: the row is narrower then, and still another one.
        yield _trial(base, inputs, seed, ((NARROW,), (WIDE, NARROW), (WIDER, WIDE, NARROW)))


def _trial(base: Tensors, inputs: Sequence[TensorSpec], seed: int, versions: Sequence[Sequence[Values]]) -> Trial:
    return Trial(
        tuple(tuple(different(base, inputs, seed + 10 * place, values) for values in row) for place, row in enumerate(versions))
    )


def _mixed(engine: Engine, layout: Layout, trial: Trial, together: Tensors | None = None) -> str:
    """Why the rows of a trial must not share a run; empty when they may, or when the model does not take them even alone.

    Each row stands in several places beside others, always three at a time: kernels round differently for other numbers of rows,
    but not for other neighbours. `together` are the answers of all rows in one run, where they are known.
    """
    try:
        taken = [_taken(engine, versions) for versions in trial.rows]
    except REFUSALS as error:
        return f"it refused a row of small values: {error}" if trial.required else ""
    (one, _), (other, _), (third, _) = taken
    company = ((one, other, third), (third, one, other), (one, one, one), (third, third, third))
    try:
        first = together if together is not None else engine.run(layout.joined(company[0]))
        answers = [first, *(engine.run(layout.joined(rows)) for rows in company[1:])]
    except REFUSALS as error:
        return f"it refused several rows at once: {error}"
    known: dict[int, Tensors] = {}
    for rows, joined in zip(company, answers, strict=True):
        for index, row in enumerate(rows):
            answer = layout.answer(joined, index, index + 1)
            if mixed := differing(known.setdefault(id(row), answer), answer, trial.rounding):
                return f"its output {mixed!r} for a row depends on the rows beside it"
    if mixed := _counted([(alone, known[id(row)]) for row, alone in taken]):
        return f"its output {mixed!r} for a row depends on the number of rows beside it"
    return ""


def _taken(engine: Engine, versions: tuple[Tensors, ...]) -> tuple[Tensors, Tensors]:
    """The first version of a row that the model takes, with its answer. Raises what Engine.run does where it takes none."""
    for version in versions[:-1]:
        with contextlib.suppress(*REFUSALS):
            return version, engine.run(version)
    return versions[-1], engine.run(versions[-1])


def _counted(answers: Sequence[tuple[Tensors, Tensors]]) -> str | None:
    """The first output that follows the number of rows: `answers` are those of each row among so many, and among others."""
    for few, many in answers:
        real = {name: array for name, array in few.items() if datatypes.is_real(array) or array.shape != many[name].shape}
        if found := differing(real, many, KERNELS):
            return found
    for name, array in answers[0][0].items():
        # A whole number may flip where a net is undecided, but not the same one in each row.
        if not datatypes.is_real(array):
            changed = np.logical_and.reduce([few[name] != many[name] for few, many in answers])
            if changed.size and changed.mean() > _FLIPS:
                return name
    return None


def _crowded(engine: Engine, layout: Layout, three: tuple[Tensors, ...], together: Tensors, times: int = _CROWD) -> str:
    """Why three rows must not share a run, by more of them than three: what reaches further shows only then.

    Time steps that were taken for rows look four of them back, say. `together` are the answers of the three in one run.
    """
    rows = three * times
    try:
        joined = engine.run(layout.joined(rows))
    except REFUSALS:
        # How many rows it takes at once is for the warm-up to find.
        return ""
    answers = [
        (layout.answer(together, index % 3, index % 3 + 1), layout.answer(joined, index, index + 1)) for index in range(len(rows))
    ]
    return f"its output {mixed!r} for a row depends on the rows beside it" if (mixed := _counted(answers)) else ""


def _infected(engine: Engine, layout: Layout, three: tuple[Tensors, ...], together: Tensors) -> str:
    """Why rows must not share a run with one that is not finite: a product with zero is none then, however small its weight.

    Nor must such a row, which is past every threshold, depend on those. `together` are the answers of the three in one run.
    """
    row, other, last = three
    real = [name for name, axis in layout.inputs.items() if axis is not None and datatypes.is_real(other[name])]
    for value in (np.nan, np.inf, -np.inf) if real else ():
        ill = {**other, **{name: np.full_like(other[name], value) for name in real}}
        try:
            # In one place both times: kernels give what is no number another sign or lane elsewhere.
            beside, exchanged = (engine.run(layout.joined((first, ill, third))) for first, third in ((row, last), (last, row)))
        except REFUSALS:
            continue
        for one, answers, place in ((together, beside, 0), (exchanged, beside, 1), (together, beside, 2)):
            expected, found = (layout.answer(each, place, place + 1) for each in (one, answers))
            if mixed := differing(expected, found, ROUNDING):
                who = "a row that is not finite depends on the rows" if place == 1 else "a row depends on a row"
                return f"its output {mixed!r} for {who} beside it" + ("" if place == 1 else " that is not finite")
    return ""

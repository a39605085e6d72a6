"""Which axis of each input may count rows, by shapes and names alone. `probe.py` tries them in this order.

A name that stands in several tensors is one size, so the name that inputs and outputs have in common is the likeliest. Exporters
also give no names, or one of its own to each tensor: the first axis is then the likeliest, else the only one that is free.
"""

from collections.abc import Sequence
from dataclasses import replace

from inference_worker.engines.engine import TensorSpec

_MOST = 4


def candidates(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> tuple[tuple[TensorSpec, ...], ...]:
    """The inputs with their axes of rows, likeliest first, at most four; none where no size is free."""
    found = [*(_by_name(name, inputs) for name in _names(inputs, outputs)), _by_place(inputs)]
    if not _shared_names(inputs, outputs):
        # No name says anything of several tensors, so the place says more than a name does.
        found.insert(0, found.pop())
    distinct = dict.fromkeys(each for each in found if any(spec.batch_axis is not None for spec in each))
    return tuple(distinct)[:_MOST]


def row_names(inputs: Sequence[TensorSpec]) -> frozenset[str]:
    """The names of the axes on which the inputs have their rows."""
    axes = [(spec.names, spec.batch_axis) for spec in inputs if spec.batch_axis is not None]
    return frozenset(name for names, axis in axes if axis < len(names) and (name := names[axis]) is not None)


def _names(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> list[str]:
    """Names of the inputs' free sizes: those first that more tensors have, then those that stand further in front."""
    tensors = (*inputs, *outputs)
    # Twice in one tensor, a name is a size of something else than rows (a square matrix, say).
    twice = {name for spec in tensors for name in spec.names if name is not None and spec.names.count(name) > 1}
    places_of = [(name, spec, axis) for spec in inputs for axis, name in enumerate(spec.names) if name is not None]
    order = dict.fromkeys(name for name, spec, axis in places_of if name not in twice and _leads(spec, axis))

    def rank(name: str) -> tuple[int, int, int]:
        places = [spec.names.index(name) for spec in tensors if name in spec.names]
        answered = sum(name in spec.names for spec in outputs)
        return -answered, -len(places), sum(places)

    return sorted(order, key=rank)


def _shared_names(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> list[str]:
    names = [set(spec.names) - {None} for spec in (*inputs, *outputs)]
    return [name for name in _names(inputs, outputs) if sum(name in each for each in names) > 1]


def _by_name(name: str, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple(
        replace(spec, batch_axis=spec.names.index(name) if name in spec.names else _place(spec, named=False)) for spec in inputs
    )


def _by_place(inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, batch_axis=_place(spec, named=True)) for spec in inputs)


def _place(spec: TensorSpec, *, named: bool) -> int | None:
    """The first axis where it is free, else the only free one. Axes with a name count only if it is theirs alone and `named`."""
    free = [axis for axis, size in enumerate(spec.shape) if size is None and _counts(spec, axis, named=named)]
    return free[0] if free and (free[0] == 0 or len(free) == 1) and _leads(spec, free[0]) else None


def _counts(spec: TensorSpec, axis: int, *, named: bool) -> bool:
    name = spec.names[axis] if axis < len(spec.names) else None
    return name is None or (named and spec.names.count(name) == 1)


def _leads(spec: TensorSpec, axis: int) -> bool:
    """Whether no fixed 1 stands before the axis: that is a batch of one row, and what follows is within the row."""
    return 1 not in spec.shape[:axis]

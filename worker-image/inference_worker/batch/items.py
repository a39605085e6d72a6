"""Items of a batch task: rows for a model's inputs, wherever they come from. `formats/` reads them, `matching.py` fits them."""

import sys
from array import array as packed
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from inference_worker.batch.ragged import Column, Ragged
from inference_worker.engines.engine import Tensor, Tensors, TensorSpec
from inference_worker.errors import WorkerError


class Items(Protocol):
    """Rows that can be read by range, in any order and again.

    `names` holds a name for each item, where they have names. `lines` says that they came as text, so that answers are JSON lines.
    `breaks` are the items, in order, whose shapes are not those of the item before: no run and no range reaches across one.
    """

    names: Sequence[str] | None
    lines: bool
    breaks: Sequence[int]

    def __len__(self) -> int: ...

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """Feeds for rows start..end, between two breaks, each array with the rows on the axis that its input counts them on."""
        ...


class ArrayItems:
    """Rows that are already arrays, each with its rows on the axis that `axes` names (None: shared by all rows)."""

    def __init__(
        self,
        arrays: Mapping[str, Column],
        axes: Mapping[str, int | None],
        *,
        names: Sequence[str] | None = None,
        lines: bool = False,
    ) -> None:
        self._arrays = arrays
        self._axes = axes
        self._length = next(count(arrays[name], axis) for name, axis in axes.items() if axis is not None)
        self.names = names
        self.lines = lines
        ragged = [array.breaks for array in arrays.values() if isinstance(array, Ragged)]
        # Eight bytes each: where all neighbours differ there is one an item.
        self.breaks: Sequence[int] = packed("q", np.unique(np.concatenate(ragged)).tobytes()) if ragged else ()

    def __len__(self) -> int:
        return int(self._length)

    @property
    def nbytes(self) -> int:
        """The memory of all rows, and of what they are views of."""
        return sum(map(memory_of, self._arrays.values()))

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """See Items. Slices are made contiguous and in memory here, since a memory map reads only now."""
        return {name: _rows(array, self._axes[name], start, end) for name, array in self._arrays.items()}


def count(column: Column, axis: int) -> int:
    """The items of a column, which an array counts on `axis`."""
    return len(column) if isinstance(column, Ragged) else column.shape[axis]


def memory_of(column: Column) -> int:
    """The bytes that a column keeps in memory."""
    if isinstance(column, Ragged):
        return memory_of(column.values) + memory_of(column.shapes)
    # numpy keeps a view's owner alive, however little the view shows of it.
    owner = column.base if isinstance(column.base, np.ndarray) else column
    texts = sum(map(sys.getsizeof, column.flat)) if column.dtype.kind == "O" else 0
    return max(column.nbytes, owner.nbytes) + texts


def _rows(array: Column, axis: int | None, start: int, end: int) -> Tensor:
    if isinstance(array, Ragged):
        return np.ascontiguousarray(np.moveaxis(array.rows(start, end), 0, axis or 0))
    if axis is None:
        return np.asarray(array)
    return np.ascontiguousarray(array[(slice(None),) * axis + (slice(start, end),)])


def invalid(message: str) -> WorkerError:
    """A fault of the input, in words for its author."""
    return WorkerError(WorkerReason.INPUT_INVALID, message)


def refuse_non_finite(feeds: Tensors, start: int, inputs: Sequence[TensorSpec]) -> None:
    """Raise WorkerError naming the first item that holds NaN or infinity, or the input that all items share."""
    for spec in inputs:
        name, array = spec.name, feeds.get(spec.name)
        if array is None or not datatypes.is_real(array) or _surely_finite(array):
            continue
        if spec.batch_axis is None:
            if not np.isfinite(array).all():
                raise invalid(f"input {name!r} holds NaN or infinity; clean the data, or set input.allowNonFinite: true")
            continue
        by_item = np.moveaxis(array, spec.batch_axis, 0)
        bad = ~np.isfinite(by_item.reshape(len(by_item), -1)).all(axis=1)
        if bad.any():
            item = start + int(bad.argmax())
            raise invalid(f"item {item} of input {name!r} holds NaN or infinity; clean the data, or set input.allowNonFinite: true")


def _surely_finite(array: Tensor) -> bool:
    """Whether one sum shows that every value is finite, at a tenth of the price of looking at each.

    NaN and infinity stay in a sum; a sum that overflows by itself only makes the caller look closer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum(dtype=np.float32 if array.dtype.itemsize < 4 else None)))

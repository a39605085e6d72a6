"""Arrays of different shapes, one an item: how they are kept in memory, and how a `.npz` holds them.

numpy pickles a list of such arrays, and nobody here loads pickles. So a `.npz` has two arrays for them: all values in one row under
the name itself, and under `NAME.shapes` the shape of each item. `docs/tasks/read-an-output.md` tells users.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from inference_worker.engines.engine import Tensor

SUFFIXES = (".item_shapes", ".shapes")
"""What the second array's name ends with: the first only where the model has an output of the other's name."""

# More elements than a file may hold; numpy fails in its own words on shapes far above, even with a zero among the sizes.
_LARGEST = float(1 << 40)
# Sizes beside a zero have no values that bound them, and a model that sums over the zero answers with all of them.
LARGEST_BESIDE_ZERO = 1 << 24
_DIMENSIONS = 32


class Ragged:
    """All values in one row, and for each item a row of sizes."""

    __slots__ = ("_ends", "shapes", "values")

    def __init__(self, values: Tensor, shapes: Tensor) -> None:
        self.values = values
        self.shapes = shapes
        self._ends = shapes.prod(axis=1, dtype=np.int64).cumsum()

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def breaks(self) -> Tensor:
        """The items whose shape is not that of the item before."""
        found: Tensor = np.flatnonzero((self.shapes[1:] != self.shapes[:-1]).any(axis=1)) + 1
        return found

    def rows(self, start: int, end: int) -> Tensor:
        """Items start..end, which have one shape, as one array."""
        begin = int(self._ends[start - 1]) if start else 0
        return self.values[begin : int(self._ends[end - 1])].reshape(end - start, *self.shapes[start].tolist())

    def spans(self) -> Iterator[Tensor]:
        """All items, neighbours of one shape as one array."""
        breaks = self.breaks.tolist()
        for start, end in zip([0, *breaks], [*breaks, len(self)], strict=True):
            yield self.rows(start, end)


Column = Tensor | Ragged
"""What all items give one input: an array that counts them on an axis, or arrays of different shapes."""


def joined(parts: Sequence[Tensor]) -> Column:
    """Arrays with their items in front, one after another. Raises ValueError where the numbers of dimensions differ."""
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) == 1:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len({len(shape) for shape in shapes}) > 1:
        one, other = min(shapes, key=len), max(shapes, key=len)
        raise ValueError(f"shapes {list(one)} and {list(other)} differ in the number of dimensions")
    sizes = np.array([part.shape[1:] for part in parts], dtype=np.int64)
    return Ragged(np.concatenate([part.reshape(-1) for part in parts]), np.repeat(sizes, [len(part) for part in parts], axis=0))


def assembled(parts: list[Column]) -> Column:
    """Columns of one input, one after another. Empties the list as it goes: what it holds and the whole are not there at once."""
    shapes = {part.shape[1:] if isinstance(part, np.ndarray) else None for part in parts}
    if len(shapes) == 1 and None not in shapes:
        return _moved(parts, np.asarray)
    sizes = np.concatenate([_sizes(part) for part in parts])
    return Ragged(_moved(parts, _flat), sizes)


def _moved(parts: list[Column], values_of: Callable[[Column], Tensor]) -> Tensor:
    """The values of all, which are let go one after another."""
    if len(parts) == 1:
        return values_of(parts.pop())
    first = values_of(parts[0])
    whole = np.empty((sum(len(values_of(part)) for part in parts), *first.shape[1:]), dtype=first.dtype)
    parts.reverse()
    start = 0
    while parts:
        values = values_of(parts.pop())
        whole[start : start + len(values)] = values
        start += len(values)
    return whole


def _flat(part: Column) -> Tensor:
    return part.values if isinstance(part, Ragged) else part.reshape(-1)


def _sizes(part: Column) -> Tensor:
    """The shape of each item, a row of sizes."""
    if isinstance(part, Ragged):
        return part.shapes
    return np.repeat(np.array([part.shape[1:]], dtype=np.int64), len(part), axis=0)


def as_arrays(columns: Mapping[str, Column]) -> dict[str, Tensor]:
    """The columns as a `.npz` holds them."""
    arrays: dict[str, Tensor] = {}
    for name, column in columns.items():
        if isinstance(column, Ragged):
            rare, usual = SUFFIXES
            arrays[name] = column.values
            arrays[name + (rare if name + usual in columns else usual)] = column.shapes
        else:
            arrays[name] = column
    return arrays


def as_columns(arrays: Mapping[str, Tensor], expected: Collection[str]) -> dict[str, Column]:
    """The columns that the arrays of a `.npz` are; those of the `expected` names are never sizes of others.

    Raises ValueError where sizes and values do not fit each other.
    """
    columns: dict[str, Column] = dict(arrays)
    for name, values in arrays.items():
        for key in (name + suffix for suffix in SUFFIXES):
            shapes = columns.get(key)
            if key in expected or not isinstance(shapes, np.ndarray) or not _may_be_sizes(values, shapes):
                continue
            _require_fit(name, values, key, shapes)
            columns[name] = Ragged(values, shapes.astype(np.int64))
            del columns[key]
            break
    return columns


def _may_be_sizes(values: Tensor, shapes: Tensor) -> bool:
    return values.ndim == 1 and shapes.ndim == 2 and shapes.dtype.kind in "iu"


def _require_fit(name: str, values: Tensor, key: str, shapes: Tensor) -> None:
    if not len(shapes):
        raise ValueError(f"{key!r} has no rows, so there are no items; give the shape of each item")
    if shapes.shape[1] > _DIMENSIONS:
        raise ValueError(f"{key!r} has {shapes.shape[1]} sizes an item, more than the {_DIMENSIONS} that are taken")
    if shapes.size and int(shapes.min()) < 0:
        raise ValueError(f"{key!r} holds a size below zero; give the shape of each item")
    sizes = shapes.astype(np.float64)
    with np.errstate(over="ignore"):
        elements = np.maximum(sizes, 1).prod(axis=1)
        largest = elements.max()
        total = sizes.prod(axis=1).sum() if largest <= _LARGEST else np.inf
    if total != values.size:
        raise ValueError(f"the shapes in {key!r} do not make up the {values.size} values in {name!r}; write both again")
    if (elements[(sizes == 0).any(axis=1)] > LARGEST_BESIDE_ZERO).any():
        raise ValueError(
            f"{key!r} holds a shape with a zero and more than {LARGEST_BESIDE_ZERO} elements beside it; write it again"
        )

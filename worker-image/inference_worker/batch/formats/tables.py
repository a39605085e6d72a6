"""Inputs as CSV: the first line names the columns, each further line is an item.

An input with one number or text an item takes the column of its name; one with k of them takes the columns `NAME_0` to `NAME_k-1`.
Where a single input takes numbers, all columns feed it in their order, whatever their names: few tables are named after a model's
input. Nothing is guessed from the values. A header that may be an item is refused, since that item would be lost without a word.
"""

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from inference_worker import datatypes
from inference_worker.batch.formats.gathering import Gathering
from inference_worker.batch.items import ArrayItems, invalid
from inference_worker.batch.matching import from_arrays, item_shape, sole_input
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError

# Python's own limit of 128 KiB is less than a long document. A quote that is never closed ends here.
_CELL_LIMIT_CHARACTERS = 16 << 20
_NAMED = 8
_TRUTH = {"true": True, "false": False}

Columns = dict[str, list[int]]
"""For each input, the numbers of the columns that feed it."""


def read_csv(lines: Iterable[str], inputs: Sequence[TensorSpec], *, empty: bool = False) -> ArrayItems:
    """Rows from the lines of a CSV. Raises WorkerError INPUT_INVALID, with the number of the line.

    With `empty`, an empty cell stands for NaN where a floating-point number is wanted: pandas writes NaN so.
    """
    csv.field_size_limit(_CELL_LIMIT_CHARACTERS)
    reader = csv.reader(lines, strict=True)
    rows = _rows(reader)
    header = [cell.strip() for cell in next(rows, [])]
    if not header:
        raise invalid("the input holds no items; there is nothing to run")
    columns = _columns(header, inputs)
    specs = [spec for spec in inputs if spec.name in columns]
    parsers = {spec.name: _parser(spec, empty=empty) for spec in specs}
    gathered, line = Gathering(specs, nulls=False), 0
    for row in rows:
        if len(row) != len(header):
            raise invalid(
                f"line {reader.line_num} has {len(row)} cells, but the header has {len(header)}; quote cells that hold commas"
            )
        for spec in specs:
            parse = parsers[spec.name]
            try:
                cells = [parse(row[index]) for index in columns[spec.name]]
            except ValueError as error:
                raise invalid(f"line {reader.line_num}, input {spec.name!r}: {error}") from error
            gathered.values[spec.name].append(cells if item_shape(spec) else cells[0])
        line = reader.line_num
        gathered.ended(line, sum(map(len, row)))
    if not line:
        raise invalid("the input holds no items; there is nothing to run")
    return from_arrays(gathered.columns(), inputs, lines=True)


def _rows(reader: Any) -> Iterator[list[str]]:
    """Lines that are not empty."""
    try:
        for row in reader:
            if row:
                yield row
    except csv.Error as error:
        raise invalid(f"line {reader.line_num} is no CSV: {error}; is a quote left open?") from error


def _columns(header: list[str], inputs: Sequence[TensorSpec]) -> Columns:
    """Which columns feed which input. Raises WorkerError unless each is used once and no input is missing."""
    where = {name: index for index, name in enumerate(header) if name}
    if len(where) < len([name for name in header if name]):
        doubled = next(name for index, name in enumerate(header) if name and where[name] != index)
        raise invalid(f"two columns are named {doubled!r}; rename one of them")
    found = {spec.name: indexes for spec in inputs if (indexes := _named(where, spec))}
    missing = [spec for spec in inputs if not spec.optional and spec.name not in found]
    used = set(itertools.chain.from_iterable(found.values()))
    free = [index for index in range(len(header)) if index not in used]
    sole = sole_input(inputs)
    if sole is not None and sole.name not in found and sole.datatype != "BYTES" and len(item_shape(sole)) < 2 and free:
        _require_names([header[index] for index in free], sole)
        if _takes(sole, len(free)):
            return {**found, sole.name: free}
        raise invalid(f"{len(free)} columns are left for input {sole.name!r}, which takes {_wanted(sole)}; give those alone")
    if missing or free:
        raise _mismatch(header, missing, free, inputs)
    return found


def _named(where: Mapping[str, int], spec: TensorSpec) -> list[int]:
    """The columns that an input finds by its name; none when they are not all there."""
    shape = item_shape(spec)
    if len(shape) > 1:
        return []
    if spec.name in where and shape in ((), (1,), (None,)):
        return [where[spec.name]]
    numbered = itertools.takewhile(where.__contains__, (f"{spec.name}_{i}" for i in itertools.count()))
    indexes = [where[name] for name in numbered]
    return indexes if shape and _takes(spec, len(indexes)) else []


def _takes(spec: TensorSpec, count: int) -> bool:
    """Whether so many columns make an item of an input."""
    shape = item_shape(spec)
    return count == 1 if not shape else len(shape) == 1 and count > 0 and shape[0] in (None, count)


def _require_names(names: list[str], spec: TensorSpec) -> None:
    """Raise WorkerError where the first line may be an item, or a column has no name."""
    if not names[0] and (len(names) == 1 or _are_counted(names[1:]) or not any(map(_is_value, names))):
        raise _nameless()
    if len(names) > 1 and _are_counted(names):
        # What pandas calls the columns of an array.
        return
    if any(map(_is_value, names)):
        raise invalid(f"line 1 holds values where the columns' names belong; add a header such as {_wanted(spec)}")
    if "" in names:
        raise _nameless()


def _are_counted(names: list[str]) -> bool:
    return names == [str(i) for i in range(len(names))]


def _nameless() -> WorkerError:
    return invalid("a column has no name, as the index that pandas adds; leave it out: to_csv(file, index=False)")


def _is_value(text: str) -> bool:
    """Whether a name may be a number or a truth value."""
    try:
        float(text)
    except ValueError:
        return text.lower() in _TRUTH
    return True


def _mismatch(header: list[str], missing: Sequence[TensorSpec], free: list[int], inputs: Sequence[TensorSpec]) -> WorkerError:
    if deep := next((spec for spec in missing if len(item_shape(spec)) > 1), None):
        return invalid(f"CSV can't hold input {deep.name!r} of shape {deep.wire_shape}; give it as .npy, .npz or JSON lines")
    given = ", ".join(repr(name) for name in header[:_NAMED]) + (", ..." if len(header) > _NAMED else "")
    names = ", ".join(_wanted(spec) for spec in inputs)
    if any(mark in name for mark in ";\t" for name in header):
        return invalid(f"the first line is {given}, and the model wants {names}; separate cells by commas")
    if missing:
        return invalid(f"the columns are {given}, but the model wants {names}; name them so in the first line")
    if not header[free[0]]:
        return _nameless()
    return invalid(f"the model has no input for column {header[free[0]]!r}; it wants {names}, so leave the column out")


def _wanted(spec: TensorSpec) -> str:
    """The columns of an input, for messages."""
    shape = item_shape(spec)
    if shape in ((), (1,)):
        return spec.name
    return f"{spec.name}_0, {spec.name}_1 and so on" if shape[0] is None else f"{spec.name}_0 to {spec.name}_{shape[0] - 1}"


def _parser(spec: TensorSpec, *, empty: bool) -> Callable[[str], Any]:
    """What makes a value of a cell, or raises ValueError with words about the cell."""
    if spec.datatype == "BYTES":
        return str
    if spec.datatype == "BOOL":
        return _truth
    if datatypes.is_real(np.empty(0, spec.dtype)):
        return _real_or_nan if empty else _real
    return _whole


def _truth(cell: str) -> bool:
    if (value := _TRUTH.get(cell.strip().lower())) is None:
        raise ValueError(f"{_short(cell)} is neither true nor false; write one of them")
    return value


def _whole(cell: str) -> int:
    try:
        return int(_plain(cell))
    except ValueError:
        raise ValueError(f"{_short(cell)} is no whole number; write digits alone") from None


def _real(cell: str) -> float:
    if not cell.strip():
        raise ValueError("a cell is empty; fill it, or set input.allowNonFinite: true to take it for NaN")
    try:
        return float(_plain(cell))
    except ValueError:
        raise ValueError(f"{_short(cell)} is no number; write it like -1.5e3") from None


def _real_or_nan(cell: str) -> float:
    return _real(cell) if cell.strip() else np.nan


def _plain(cell: str) -> str:
    """The cell, unless Python alone would read a number in it. Raises ValueError."""
    if "_" in cell:
        raise ValueError(cell)
    return cell


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:40] + "...")

"""Inputs as JSON lines: an object of input names to values a line; or just the values, when one input takes them."""

import itertools
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from inference_worker import datatypes
from inference_worker.batch.formats.texts import BYTE_ORDER_MARK
from inference_worker.batch.items import ArrayItems, invalid
from inference_worker.batch.matching import from_arrays, item_shape, matched, misshapen, sole_input, takes
from inference_worker.batch.ragged import Column, joined
from inference_worker.datatypes import uneven
from inference_worker.engines.engine import Tensor, TensorSpec


def from_json_lines(text: str, inputs: Sequence[TensorSpec], *, nulls: bool = False) -> ArrayItems:
    """Rows from a text. See read_json_lines."""
    # JSON text may hold the other line ends of Unicode inside its strings: only the newline ends a line.
    return read_json_lines(text.split("\n"), inputs, nulls=nulls)


def read_json_lines(lines: Iterable[str], inputs: Sequence[TensorSpec], *, nulls: bool = False, ours: bool = False) -> ArrayItems:
    """Rows from lines. Raises WorkerError INPUT_INVALID, with the number of the line.

    With `nulls`, null stands for NaN where a floating-point number is wanted: our own answers are written so. `ours` are lines of
    another job (see matching.matched).
    """
    columns: dict[str, list[Any]] = {}
    numbers: list[int] = []
    keys: Collection[str] = ()
    feeding: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        # A mark stands in the middle too, where files were put together.
        plain = line.removeprefix(BYTE_ORDER_MARK)
        if not plain.strip():
            continue
        row = _as_object(_parse_line(plain, number), number, inputs)
        if row.keys() != keys or not columns:
            feeding, keys = _feeding(row, number, inputs, ours=ours), row.keys()
            if columns and columns.keys() != set(feeding.values()):
                raise invalid(f"line {number} has {sorted(row)}, but earlier lines have {sorted(columns)}; give the same in each")
            columns = columns or {name: [] for name in feeding.values()}
        for key, name in feeding.items():
            columns[name].append(row[key])
        numbers.append(number)
    if not any(columns.values()):
        raise invalid("the input holds no items; there is nothing to run")
    specs = [spec for spec in inputs if spec.name in columns]
    return from_arrays({spec.name: column(columns[spec.name], spec, numbers, nulls=nulls) for spec in specs}, inputs, lines=True)


def column(values: list[Any], spec: TensorSpec, numbers: Sequence[int], *, nulls: bool) -> Column:
    """The values of all items for one input; `numbers` are those of their lines. Raises WorkerError INPUT_INVALID."""
    if spec.batch_axis is None:
        if (odd := next((item for item, value in enumerate(values) if value != values[0]), None)) is not None:
            raise invalid(
                f"line {numbers[odd]}: input {spec.name!r} is shared by all items, so every line must give the same value"
            )
        return _array(values[:1], spec, numbers, nulls=nulls).reshape(_claimed(values[0], spec))
    shapes = [_claimed(value, spec) for value in values]
    alike = shapes.count(shapes[0]) == len(shapes)
    parts, start = [], 0
    for shape, span in itertools.groupby(shapes):
        if not alike and not takes(spec, shape):
            raise misshapen(f"line {numbers[start]}", spec, shape)
        end = start + len(list(span))
        parts.append(_array(values[start:end], spec, numbers[start:end], nulls=nulls).reshape(end - start, *shape))
        start = end
    return np.moveaxis(parts[0], 0, spec.batch_axis) if alike else joined(parts)


def _array(values: list[Any], spec: TensorSpec, numbers: Sequence[int], *, nulls: bool) -> Tensor:
    """Items of one shape as an array, items first. Raises WorkerError that names the line which keeps them from it."""
    try:
        return _texts(values) if spec.datatype == "BYTES" else _numbers(values, spec, nulls=nulls)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        if len(values) > 1:
            # Half by half: one of them holds the item at fault.
            half = len(values) // 2
            _array(values[:half], spec, numbers[:half], nulls=nulls)
            _array(values[half:], spec, numbers[half:], nulls=nulls)
        raise invalid(f"line {numbers[0]}, input {spec.name!r}: no {spec.datatype} tensor: {error}") from error


def _claimed(value: Any, spec: TensorSpec) -> tuple[int, ...]:
    """The shape of an item by its first elements. In JSON, `[]` stands for no rows of any width: the input says which."""
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    if shape and not shape[-1]:
        shape.extend(size or 0 for size in item_shape(spec)[len(shape) :])
    return tuple(shape)


def _parse_line(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise invalid(f"line {number} is no JSON: {error}; write one JSON value a line") from error


def _as_object(row: Any, number: int, inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    sole = sole_input(inputs)
    if sole is None:
        names = sorted(spec.name for spec in inputs)
        raise invalid(f"line {number}: the model has inputs {names}; write an object that names them")
    return {sole.name: row}


def _feeding(row: dict[str, Any], number: int, inputs: Sequence[TensorSpec], *, ours: bool) -> dict[str, str]:
    feeding = matched(row, inputs, ours=ours)
    if feeding is None:
        optional = sorted(spec.name for spec in inputs if spec.optional)
        names = f"{sorted(spec.name for spec in inputs if not spec.optional)}{f' (optional: {optional})' if optional else ''}"
        raise invalid(f"line {number} has {sorted(row)}, but the model wants {names}; name the inputs so")
    return feeding


def _numbers(values: list[Any], spec: TensorSpec, *, nulls: bool) -> Tensor:
    try:
        return _exactly(values, spec)
    except TypeError as error:
        if not datatypes.is_real(np.empty(0, spec.dtype)) or not _holds_null(values):
            raise
        if not nulls:
            raise ValueError("null among the values; clean the data, or set input.allowNonFinite: true for NaN") from error
        return _exactly(_with_nan(values), spec)


def _exactly(values: list[Any], spec: TensorSpec) -> Tensor:
    if spec.datatype != "BF16":
        return datatypes.from_values(values, spec.datatype)
    # Through the type that holds all of its values: numpy knows it by bytes alone.
    exact = datatypes.from_values(values, "FP32")
    with np.errstate(over="ignore"):
        array: Tensor = exact.astype(spec.dtype)
    if (np.isinf(array) & np.isfinite(exact)).any():
        raise OverflowError("a value does not fit BF16")
    return array


def _holds_null(values: list[Any]) -> bool:
    return any(value is None or (isinstance(value, list) and _holds_null(value)) for value in values)


def _with_nan(values: list[Any]) -> list[Any]:
    return [np.nan if value is None else _with_nan(value) if isinstance(value, list) else value for value in values]


def _texts(values: list[Any]) -> Tensor:
    array = np.array(values, dtype=object)
    if not all(isinstance(value, str) for value in array.ravel()):
        raise TypeError(uneven(values) or "only strings may stand there")
    return array

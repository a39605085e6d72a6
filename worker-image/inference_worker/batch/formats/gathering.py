"""Values from text as arrays, some lines at a time: as Python objects, all lines of a file take twenty times as much.

What the arrays themselves take is bounded by the worker's memory: the refusal says how much that is.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from inference_worker import cpu, datatypes
from inference_worker.batch.items import invalid, memory_of
from inference_worker.batch.matching import item_shape, misshapen, takes
from inference_worker.batch.ragged import Column, assembled, joined
from inference_worker.datatypes import uneven
from inference_worker.engines.engine import Tensor, TensorSpec

_LINES_AT_ONCE = 64 << 10
_CHARACTERS_AT_ONCE = 16 << 20
_SHARE = 2
"""The items may have one in so many bytes of the worker's memory: the model and its runs need the rest."""


class Gathering:
    """Gathers the values of lines. Whoever reads them appends to `values`, by input, and says when a line has ended."""

    def __init__(self, specs: Sequence[TensorSpec], *, nulls: bool) -> None:
        """With `nulls`, null stands for NaN where a floating-point number is wanted."""
        self.values: dict[str, list[Any]] = {spec.name: [] for spec in specs}
        self._inputs = [_Input(spec, nulls=nulls) for spec in specs]
        self._numbers: list[int] = []
        self._characters = 0
        self._memory = cpu.usable_memory_bytes()

    def ended(self, number: int, characters: int) -> None:
        """Line `number` has given its values. Raises WorkerError INPUT_INVALID for what is no tensor, or too much."""
        self._numbers.append(number)
        self._characters += characters
        if len(self._numbers) >= _LINES_AT_ONCE or self._characters >= _CHARACTERS_AT_ONCE:
            self._close()

    def columns(self) -> dict[str, Column]:
        """All values, once and at the end. Raises WorkerError INPUT_INVALID."""
        if self._numbers:
            self._close()
        return {each.spec.name: each.column() for each in self._inputs}

    def _close(self) -> None:
        for each in self._inputs:
            each.add(self.values[each.spec.name], self._numbers)
            self.values[each.spec.name].clear()
        held = sum(each.nbytes for each in self._inputs)
        if held > self._memory // _SHARE:
            whose = f"1/{_SHARE} of this worker's {self._memory}"
            cure = "split the input, raise resources.limits.memory, or give it as .npy"
            raise invalid(f"the items up to line {self._numbers[-1]} take {held} bytes, and may have {whose}; {cure}")
        self._numbers, self._characters = [], 0


class _Input:
    """What all lines so far give one input."""

    def __init__(self, spec: TensorSpec, *, nulls: bool) -> None:
        self.spec = spec
        self.nbytes = 0
        self._nulls = nulls
        self._parts: list[Column] = []
        self._first: tuple[int, Any, tuple[int, ...]] | None = None

    def add(self, values: list[Any], numbers: Sequence[int]) -> None:
        """The values of further lines, whose numbers are given. Raises WorkerError INPUT_INVALID."""
        part = self._shared(values, numbers) if self.spec.batch_axis is None else self._rows(values, numbers)
        if part is not None:
            self._parts.append(part)
            self.nbytes += memory_of(part)

    def column(self) -> Column:
        """All of them. What was gathered is gone afterwards."""
        axis = self.spec.batch_axis
        whole = assembled(self._parts) if axis is not None else self._parts.pop()
        return np.moveaxis(whole, 0, axis) if axis is not None and isinstance(whole, np.ndarray) else whole

    def _shared(self, values: list[Any], numbers: Sequence[int]) -> Tensor | None:
        spec, begins = self.spec, self._first is None
        number, first, shape = self._begun(values, numbers)
        if (odd := next((item for item, value in enumerate(values) if value != first), None)) is not None:
            raise invalid(
                f"line {numbers[odd]}: input {spec.name!r} is shared by all items, so every line must give the same value"
            )
        return _array([first], spec, [number], nulls=self._nulls).reshape(shape) if begins else None

    def _rows(self, values: list[Any], numbers: Sequence[int]) -> Column:
        spec = self.spec
        shapes = [_claimed(value, spec) for value in values]
        number, _, first = self._begun(values, numbers)
        parts, start = [], 0
        for shape, span in itertools.groupby(shapes):
            if shape != first:
                for place, one in ((number, first), (numbers[start], shape)):
                    if not takes(spec, one):
                        raise misshapen(f"line {place}", spec, one)
            end = start + len(list(span))
            parts.append(_array(values[start:end], spec, numbers[start:end], nulls=self._nulls).reshape(end - start, *shape))
            start = end
        return joined(parts)

    def _begun(self, values: list[Any], numbers: Sequence[int]) -> tuple[int, Any, tuple[int, ...]]:
        """The first line's number, its value and the shape of that."""
        if self._first is None:
            self._first = numbers[0], values[0], _claimed(values[0], self.spec)
        return self._first


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

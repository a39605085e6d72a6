"""Inputs as JSON lines: an object of input names to values a line; or just the values, when one input takes them."""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from inference_worker.batch.formats.gathering import Gathering
from inference_worker.batch.formats.texts import BYTE_ORDER_MARK
from inference_worker.batch.items import ArrayItems, invalid
from inference_worker.batch.matching import from_arrays, matched, sole_input
from inference_worker.engines.engine import TensorSpec


def from_json_lines(text: str, inputs: Sequence[TensorSpec], *, nulls: bool = False) -> ArrayItems:
    """Rows from a text. See read_json_lines."""
    # JSON text may hold the other line ends of Unicode inside its strings: only the newline ends a line.
    return read_json_lines(text.split("\n"), inputs, nulls=nulls)


def read_json_lines(lines: Iterable[str], inputs: Sequence[TensorSpec], *, nulls: bool = False, ours: bool = False) -> ArrayItems:
    """Rows from lines. Raises WorkerError INPUT_INVALID, with the number of the line.

    With `nulls`, null stands for NaN where a floating-point number is wanted: our own answers are written so. `ours` are lines of
    another job (see matching.matched).
    """
    gathered: Gathering | None = None
    keys: Collection[str] = ()
    feeding: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        # A mark stands in the middle too, where files were put together.
        plain = line.removeprefix(BYTE_ORDER_MARK)
        if not plain.strip():
            continue
        row = _as_object(_parse_line(plain, number), number, inputs)
        if gathered is None or row.keys() != keys:
            feeding, keys = _feeding(row, number, inputs, ours=ours), row.keys()
            if gathered is None:
                gathered = Gathering([spec for spec in inputs if spec.name in feeding.values()], nulls=nulls)
            elif gathered.values.keys() != set(feeding.values()):
                earlier = sorted(gathered.values)
                raise invalid(f"line {number} has {sorted(row)}, but earlier lines have {earlier}; give the same in each")
        for key, name in feeding.items():
            gathered.values[name].append(row[key])
        gathered.ended(number, len(line))
    if gathered is None or not gathered.values:
        raise invalid("the input holds no items; there is nothing to run")
    return from_arrays(gathered.columns(), inputs, lines=True)


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

"""Text of many short lines: read some at a time, the same as at once, in bounded memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker import cpu
from inference_worker.batch.formats import gathering
from inference_worker.batch.formats.lines import read_json_lines
from inference_worker.batch.formats.opening import open_items
from inference_worker.batch.formats.tables import read_csv
from inference_worker.errors import WorkerError
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import spec

if TYPE_CHECKING:
    from pathlib import Path

    from inference_worker.batch.items import Items
    from inference_worker.engines.engine import TensorSpec

FREE = (spec("x", (None, None)),)
MANY = 300_000


def told(lines: list[str], inputs: tuple[TensorSpec, ...], count: int) -> list[Any] | str:
    """All items, or why they are refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "_LINES_AT_ONCE", count)
        try:
            items = read_json_lines(lines, inputs, nulls=True)
        except WorkerError as error:
            return error.message
        return [{name: array.tolist() for name, array in items.rows(item, item + 1).items()} for item in range(len(items))]


values = st.lists(st.integers(0, 3).map(float), max_size=3)


@given(st.lists(values | st.just([None]) | st.just(["text"]), min_size=1, max_size=12), st.integers(1, 4))
@settings(STEADY, max_examples=150)
def test_where_gathering_pauses_changes_no_item_and_no_refusal(rows: list[list[Any]], count: int) -> None:
    lines = [json.dumps({"x": row}) for row in rows]

    assert repr(told(lines, FREE, count)) == repr(told(lines, FREE, len(rows) + 1))


@given(st.lists(st.sampled_from([1.0, 2.0]), min_size=1, max_size=8), st.integers(1, 3))
@settings(STEADY, max_examples=60)
def test_a_shared_value_is_compared_with_that_of_the_first_line_however_many_are_gathered(rates: list[float], count: int) -> None:
    inputs = (spec("x", (None, 1)), spec("rate", (), None))
    lines = [json.dumps({"x": [1.0], "rate": rate}) for rate in rates]

    found = told(lines, inputs, count)

    assert isinstance(found, str) is (len(set(rates)) > 1)
    assert found == told(lines, inputs, 99)


def test_a_fixed_shape_that_changes_later_names_its_line() -> None:
    lines = ['{"x": [1, 2]}'] * 5 + ['{"x": [1, 2, 3]}']

    refusal = told(lines, (spec("x", (None, 2)),), 2)

    assert isinstance(refusal, str) and refusal.startswith("line 6")


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_many_short_lines_take_the_memory_of_their_arrays(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"in.{form}.gz"
    path.write_bytes(gzip.compress((b"x\n" if form == "csv" else b"") + b"1\n" * MANY, 1))

    tracemalloc.start()
    items = open_items(path, "auto", (spec("x", (None,)),))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # As objects they take 150 bytes a line; those gathered are 10 MB.
    assert len(items) == MANY and float(items.rows(MANY - 1, MANY)["x"][0]) == 1.0
    assert peak < MANY * 4 * 3 + gathering._LINES_AT_ONCE * 250, peak


def test_neighbours_that_all_differ_keep_eight_bytes_for_each() -> None:
    items: Items = read_json_lines(['{"x": [1]}', '{"x": [1, 2]}'] * 500, FREE)

    assert list(items.breaks) == list(range(1, 1000)) and not isinstance(items.breaks, list)


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_more_than_the_worker_holds_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch, datatype: str) -> None:
    monkeypatch.setattr(gathering, "_LINES_AT_ONCE", 100)
    monkeypatch.setattr(cpu, "usable_memory_bytes", lambda: 4000)
    line = '"a"' if datatype == "BYTES" else "1"

    with pytest.raises(WorkerError, match=r"up to line \d+ take \d+ bytes, and may have 1/2 of this worker's 4000"):
        read_json_lines([line] * 100_000, (spec("x", (None,), datatype=datatype),))
    with pytest.raises(WorkerError, match=r"resources\.limits\.memory"):
        read_csv(["x\n", *["1\n"] * 100_000], (spec("x", (None,), datatype=datatype),))


def test_lines_of_one_shape_become_one_array() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "_LINES_AT_ONCE", 3)
        items = read_json_lines([f'{{"x": [{i}]}}' for i in range(10)], (spec("x", (None, 1)),))

    assert np.array_equal(items.rows(0, 10)["x"][:, 0], np.arange(10)) and not items.breaks

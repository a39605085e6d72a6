"""Items of different lengths: neighbours of one shape go together, each form that we write is read again, and misfits are named."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_worker import datatypes
from inference_worker.batch import encoding
from inference_worker.batch.directory import Directory
from inference_worker.batch.formats.opening import open_items, open_text
from inference_worker.batch.manifest import Header
from inference_worker.batch.output import Output
from inference_worker.batch.ragged import Ragged, joined
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_items_arrays import refusal, spec
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from pathlib import Path

    from inference_worker.batch.items import Items
    from inference_worker.batch.ragged import Column

FREE = spec("x", "FP32", None)
FORMS = {"npz": encoding.npz, "jsonl": encoding.json_lines}


def one_by_one(items: Items, name: str = "x", axis: int = 0) -> list[Any]:
    """Each item by itself, read as a run reads it: by stretches between the breaks."""
    bounds = [0, *items.breaks, len(items)]
    assert all(a < b for a, b in pairwise(bounds))
    return [item for a, b in pairwise(bounds) for item in np.moveaxis(items.rows(a, b)[name], axis, 0).tolist()]


def column_of(values: list[np.ndarray]) -> Column:
    return joined([value[None] for value in values])


def written(directory: Path, values: list[np.ndarray], form: str, step: int) -> Path:
    header = Header(job="team/before", uid="u", model_digest="sha256:aa", input="i", total=len(values))
    with Output(Directory(directory), header, suffix=f".{form}") as output:
        for start in range(0, len(values), step):
            end = min(start + step, len(values))
            output.commit(start, end, FORMS[form]({"x": column_of(values[start:end])}))
        output.finish()
    return directory


def npz(path: Path, **arrays: Any) -> Path:
    """Names have a dot for each double underscore."""
    np.savez(path, **{name.replace("__", "."): array for name, array in arrays.items()})
    return path


shapes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12)


@given(
    shapes,
    st.sampled_from(["FP32", "INT8", "BOOL", "BF16", "BYTES"]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([*FORMS]),
    st.integers(1, 5),
)
@settings(STEADY, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_shapes_answers_have_they_are_the_next_jobs_items(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[tuple[int, int]], datatype: str, axis: int, form: str, step: int
) -> None:
    """Wherever the input counts them, and however they fall into chunks."""
    dtype = datatypes.NUMPY[datatype]
    values = [(np.arange(a * b) % 2 + i % 3).reshape(a, b) for i, (a, b) in enumerate(shapes)]
    typed = [value.astype(str).astype(object) if datatype == "BYTES" else value.astype(dtype) for value in values]
    wanted = TensorSpec("x", datatype, dtype, (None, None, None), batch_axis=axis)

    items = open_items(written(tmp_path_factory.mktemp("out"), typed, form, step), "auto", (wanted,))

    assert one_by_one(items, axis=axis) == [value.tolist() for value in typed]
    # JSON does not say how wide nothing is.
    told = [shape if all(shape) or form == "npz" else (shape[0], 0) for shape in shapes]
    assert list(items.breaks) == [i for i in range(1, len(told)) if told[i] != told[i - 1]]
    assert items.rows(0, 1)["x"].dtype == dtype


@given(st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=1, max_size=12))
@settings(STEADY, max_examples=60)
def test_lines_of_any_lengths_are_items(values: list[list[int]]) -> None:
    items = open_text("\n".join(map(json.dumps, values)), "jsonl", (FREE,))

    assert one_by_one(items) == values and items.rows(0, 1)["x"].dtype == np.float32


def test_no_rows_are_an_item_of_the_width_that_the_model_takes() -> None:
    """What a detector says of a picture without objects."""
    items = open_text("[[1, 2]]\n[]\n[]\n", "jsonl", (spec("x", "FP32", None, 2),))

    assert list(items.breaks) == [1] and items.rows(1, 3)["x"].shape == (2, 0, 2)


def test_a_range_within_a_stretch_is_read_alone_and_again() -> None:
    ragged = joined([np.arange(6).reshape(3, 2), np.zeros((1, 0), np.int64), np.arange(8).reshape(2, 4)])

    assert isinstance(ragged, Ragged) and ragged.breaks.tolist() == [3, 4] and len(ragged) == 6
    assert [ragged.rows(*bounds).tolist() for bounds in ((1, 3), (3, 4), (5, 6), (1, 2))] == [
        [[2, 3], [4, 5]],
        [[]],
        [[4, 5, 6, 7]],
        [[2, 3]],
    ]


def test_two_inputs_break_where_either_does() -> None:
    rows = [{"a": [1], "b": [1]}, {"a": [2], "b": [1, 2]}, {"a": [3], "b": [3, 4]}, {"a": [4, 5], "b": [5, 6]}]

    items = open_text("\n".join(map(json.dumps, rows)), "jsonl", (spec("a", "INT64", None), spec("b", "INT64", None)))

    assert list(items.breaks) == [1, 3] and one_by_one(items, "a") == [[1], [2], [3], [4, 5]]


@pytest.mark.parametrize(
    ("lines", "line", "found"),
    [
        (["[1, 2]", "", "[1, 2, 3]"], "line 3", "[3]"),
        (["[1, 2]", "[]"], "line 2", "[0]"),
        (["[1, 2]", "7"], "line 2", "[]"),
        (["[[1, 2]]", "[1, 2]"], "line 1", "[1, 2]"),
    ],
)
def test_a_line_of_another_length_than_the_model_takes_is_named_with_both_shapes(lines: list[str], line: str, found: str) -> None:
    with pytest.raises(WorkerError) as caught:
        open_text("\n".join(lines), "jsonl", (spec("x", "FP32", 2),))

    message = caught.value.message
    assert message.startswith(line) and "'x'" in message and found in message and "[2]" in message.split("wants")[1]


@pytest.mark.parametrize(
    ("datatype", "lines", "line", "why"),
    [
        ("FP32", ["[[1, 2]]", "[[1, 2], [3]]"], "line 2", "lists of 1 and 2 values"),
        ("FP32", ["[[1, 2], [3, 4]]", "[[1, 2], [3]]"], "line 2", "lists of 1 and 2 values"),
        ("FP32", ["[[1, 2]]", "[[1, [2]]]"], "line 2", "beside a value"),
        ("BYTES", ['[["a", "b"]]', '[["a"], ["b", "c"]]'], "line 2", "lists of 1 and 2 values"),
        ("BYTES", ['[["a", "b"]]', '[["a", 2]]'], "line 2", "only strings"),
        ("INT8", ["[[1]]", "[[2]]", "[[300]]"], "line 3", "does not fit INT8"),
        ("FP32", ["[[1]]", '[["a"]]', "[[1]]"], "line 2", "str among the values"),
        ("FP32", ["[[1]]", "[[null]]"], "line 2", "allowNonFinite"),
        ("FP32", ["[1]", "[" * 80 + "]" * 80], "line 1", "[1]"),
    ],
)
def test_a_line_that_is_no_tensor_is_named_in_our_words(datatype: str, lines: list[str], line: str, why: str) -> None:
    with pytest.raises(WorkerError) as caught:
        open_text("\n".join(lines), "jsonl", (spec("x", datatype, None, None),))

    assert line in caught.value.message and why in caught.value.message and "inhomogeneous" not in caught.value.message


def test_arrays_of_different_lengths_are_an_input_in_the_form_of_our_output(tmp_path: Path) -> None:
    """What the documentation tells to write by hand."""
    path = npz(tmp_path / "in.npz", x=np.arange(7.0), x__shapes=[[2], [2], [3]], n=[7, 8, 9])

    items = open_items(path, "auto", (FREE, spec("n", "INT64")))

    assert one_by_one(items) == [[0, 1], [2, 3], [4, 5, 6]] and one_by_one(items, "n") == [7, 8, 9]
    assert refusal(path, spec("x", "FP32", 2), spec("n", "INT64")).startswith("item 2 has shape [3] for input 'x'")


def test_a_chunk_of_another_length_is_named_with_its_item(tmp_path: Path) -> None:
    directory = written(tmp_path / "out", [np.zeros(2), np.zeros(2), np.zeros(3), np.zeros(2)], "npz", 2)

    assert all(word in refusal(directory, spec("x", "FP64", 2)) for word in ("chunk-0000000002", "item 0", "[3]", "[2]"))


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ([[2], [2], [2]], "7 values"),
        ([[2], [2], [-3]], "below zero"),
        (np.zeros((0, 1), np.int64), "no rows"),
        ([[2**62, 2**62, 0]], "7 values"),
        ([[2**40, 2**40, 2**40, 2**40]], "7 values"),
        (np.ones((7, 40), np.int64), "40 sizes"),
    ],
)
def test_sizes_that_do_not_fit_the_values_are_refused(tmp_path: Path, sizes: Any, why: str) -> None:
    message = refusal(npz(tmp_path / "in.npz", x=np.arange(7.0), x__shapes=sizes), FREE)

    assert why in message and "x.shapes" in message


@pytest.mark.parametrize("sizes", [[1, 2], [[1.5]], [["a"]]])
def test_an_array_that_can_not_be_sizes_is_another_array(tmp_path: Path, sizes: Any) -> None:
    assert "x.shapes" in refusal(npz(tmp_path / "in.npz", x=np.arange(3.0), x__shapes=sizes), FREE)


def test_an_input_that_is_called_like_sizes_is_fed() -> None:
    inputs = (spec("x", "FP32"), spec("x.shapes", "INT64", 1))
    columns: dict[str, Column] = {"x": np.arange(2, dtype=np.float32), "x.shapes": np.array([[1], [1]])}

    assert_fed(encoding.npz(columns), inputs, {"x": [0, 1], "x.shapes": [[1], [1]]})


def test_outputs_that_are_called_like_sizes_stay_apart() -> None:
    columns: dict[str, Column] = {"x": column_of([np.zeros(1), np.ones(2)]), "x.shapes": np.array([[5], [6]])}

    assert_fed(
        encoding.npz(columns), (spec("x", "FP64", None), spec("x.shapes", "INT64", 1)), {"x": [[0], [1, 1]], "x.shapes": [[5], [6]]}
    )


def assert_fed(data: bytes, inputs: tuple[TensorSpec, ...], expected: dict[str, Any]) -> None:
    from inference_worker.batch.formats.arrays import read_npz
    from inference_worker.batch.matching import from_arrays
    from inference_worker.batch.ragged import as_columns

    items = from_arrays(as_columns(read_npz(io.BytesIO(data)), {spec.name for spec in inputs}), inputs)
    assert {name: one_by_one(items, name) for name in expected} == expected


def test_an_input_that_all_items_share_is_of_one_shape(tmp_path: Path) -> None:
    shared = TensorSpec("w", "FP32", np.dtype(np.float32), (None,), batch_axis=None)
    path = npz(tmp_path / "in.npz", w=np.arange(3, dtype=np.float32), w__shapes=[[1], [2]], x=np.zeros((2, 2), np.float32))

    assert "share" in refusal(path, shared, FREE)
    with pytest.raises(WorkerError, match=r"^line 2: .*share"):
        open_text('{"w": [1], "x": [1]}\n{"w": [1, 2], "x": [1]}', "jsonl", (shared, FREE))


def test_answers_of_different_numbers_of_dimensions_have_no_form() -> None:
    with pytest.raises(ValueError, match=r"\[1\] and \[1, 1\]"):
        joined([np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1))])


def test_a_zero_is_no_cover_for_sizes_without_values(tmp_path: Path) -> None:
    """A model that sums over the zero would answer one item of a few bytes with gigabytes."""
    path = npz(tmp_path / "x.npz", x=np.zeros(3, np.float32), x__shapes=np.array([[0, 1 << 28], [1, 3]]))

    assert "zero" in refusal(path, spec("x", "FP32", None, None))

"""Inputs as JSON lines: what people and programs write, and every way to get it wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from inference_worker.batch import encoding
from inference_worker.batch.formats.lines import from_json_lines
from inference_worker.batch.formats.opening import open_items
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_items_arrays import PAIR, X, spec
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from pathlib import Path

    from inference_worker.engines.engine import TensorSpec

TEXT = spec("text", "BYTES")


def rows(text: str, *inputs: TensorSpec) -> dict[str, np.ndarray]:
    items = from_json_lines(text, inputs)
    return items.rows(0, len(items))


def refusal(text: str, *inputs: TensorSpec) -> str:
    with pytest.raises(WorkerError) as caught:
        from_json_lines(text, inputs)
    assert caught.value.reason is WorkerReason.INPUT_INVALID and caught.value.permanent
    return caught.value.message


def texts(array: np.ndarray) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else value for value in array.ravel()]


def test_objects_feed_inputs_by_name_in_any_order() -> None:
    fed = rows('{"a": [1, 2], "b": 3}\n{"b": 4, "a": [5, 6.5]}', *PAIR)

    assert fed["a"].tolist() == [[1, 2], [5, 6.5]] and fed["a"].dtype == np.float32
    assert fed["b"].tolist() == [3, 4] and fed["b"].dtype == np.int64


def test_bare_values_feed_the_only_input() -> None:
    assert rows("[1, 2]\n[3, 4]\n", X)["x"].tolist() == [[1, 2], [3, 4]]
    assert rows("5\n-6\n", spec("n", "INT64"))["n"].tolist() == [5, -6]


def test_bare_values_do_not_feed_two_inputs() -> None:
    message = refusal('{"a": [1, 2], "b": 3}\n[1, 2]', *PAIR)

    assert "line 2" in message and "'a', 'b'" in message


def test_one_value_an_item_feeds_an_input_with_a_dimension_for_it() -> None:
    """What `DataFrame.to_json(orient="records", lines=True)` writes, for a model of scikit-learn."""
    fed = rows('{"age": 30, "colour": "red"}\n{"age": 4.5, "colour": "blue"}', spec("age", "FP32", 1), spec("colour", "BYTES", 1))

    assert fed["age"].tolist() == [[30], [4.5]] and fed["colour"].tolist() == [["red"], ["blue"]]


def test_nested_values_keep_their_shape() -> None:
    assert rows('{"x": [[1, 2], [3, 4]]}', spec("x", "FP32", None, 2))["x"].shape == (1, 2, 2)


@pytest.mark.parametrize("ending", ["\r\n", "\n", "\n\n \n\t\n"])
def test_line_ends_and_blank_lines_make_no_items(ending: str) -> None:
    assert len(rows(ending.join(["", "[1, 2]", "[3, 4]", ""]), X)["x"]) == 2


def test_the_line_that_is_no_json_is_named_as_an_editor_counts_it() -> None:
    assert "line 4 " in refusal("[1, 2]\n\n\n[1, 2\n", X)


@pytest.mark.parametrize("line", ["{", "[1,]", "nul", "{'x': [1, 2]}", "[1, 2] [3, 4]", "[1, 2]\ufeff", "[1 2]", "\x00"])
def test_what_is_no_json_is_refused(line: str) -> None:
    assert "line 1 " in refusal(line, X)


@pytest.mark.parametrize(
    "text", ["\ufeff[1, 2]\n[3, 4]", "\ufeff[1, 2]\n\ufeff[3, 4]\n\ufeff"], ids=["a file", "files put together"]
)
def test_a_byte_order_mark_is_no_part_of_a_line(text: str) -> None:
    """wbolster/jsonlines#68, infiniflow/ragflow#19179: the first record was lost, or refused."""
    assert rows(text, X)["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("line", ["{}", '{"y": [1, 2]}', '{"x": [1, 2], "y": 1}', '{"X": [1, 2]}'])
def test_other_names_are_refused_with_the_line(line: str) -> None:
    message = refusal(f"[1, 2]\n{line}", X)

    assert "line 2" in message and "'x'" in message


@pytest.mark.parametrize("text", ["", "\n", "  \r\n\t\n"])
def test_no_lines_is_an_error_that_says_so(text: str) -> None:
    assert "no items" in refusal(text, X)


@pytest.mark.parametrize("line", ["[1]", "[1, 2, 3]", "[[1, 2]]", "1", "[]", "[[1], [2, 3]]", "[1, [2]]"])
def test_rows_of_another_shape_are_refused(line: str) -> None:
    assert "'x'" in refusal(line, X)
    assert "'x'" in refusal(f"[1, 2]\n{line}", X)


@pytest.mark.parametrize("value", ["300", "-1", "1e3", "1.0", "0.5", "99999999999999999999999"])
def test_numbers_that_do_not_fit_whole_bytes_are_refused(value: str) -> None:
    assert "'n'" in refusal(value, spec("n", "UINT8"))


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"])
def test_the_extremes_of_each_whole_number_are_exact(datatype: str) -> None:
    n = spec("n", datatype)
    limits = np.iinfo(n.dtype)

    assert rows(f"{limits.min}\n{limits.max}\n0", n)["n"].tolist() == [limits.min, limits.max, 0]
    refusal(f"{limits.max + 1}", n)
    refusal(f"{limits.min - 1}", n)


def test_large_whole_numbers_are_taken_as_fractions() -> None:
    assert rows("[12345678901234567890, 1]", X)["x"].tolist() == [[np.float32(12345678901234567890), 1]]


@pytest.mark.parametrize(("datatype", "value"), [("FP32", "[1e39, 1]"), ("FP16", "[70000, 1]")])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_fractions_that_do_not_fit_are_refused(datatype: str, value: str) -> None:
    refusal(value, spec("x", datatype, 2))


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("FP32", '["1.5", "2"]'),
        ("FP32", "[null, 1]"),
        ("INT64", '["1", "2"]'),
        ("BOOL", "[2.5, 0]"),
        ("BOOL", '["false", ""]'),
        ("BOOL", "[null, 3]"),
        ("FP32", "[true, false]"),
        ("INT64", "[true, false]"),
    ],
)
def test_values_of_another_kind_are_refused_as_serving_does(datatype: str, value: str) -> None:
    refusal(value, spec("x", datatype, 2))


def test_null_is_refused_with_the_way_to_take_it_for_nan() -> None:
    assert "allowNonFinite" in refusal("[null, 1]", X)


def test_null_stands_for_nan_where_nan_is_allowed_since_our_own_answers_are_written_so() -> None:
    items = from_json_lines('{"x": [null, 1]}', (X,), nulls=True)

    assert np.array_equal(items.rows(0, 1)["x"], np.array([[np.nan, 1]], np.float32), equal_nan=True)


@pytest.mark.parametrize(("line", "wanted"), [("null", spec("n", "INT64")), ('{"text": null}', TEXT), ("null", spec("b", "BOOL"))])
def test_null_stands_for_nothing_but_nan(line: str, wanted: TensorSpec) -> None:
    with pytest.raises(WorkerError):
        from_json_lines(line, (wanted,), nulls=True)


def test_bfloat16_is_read_from_json() -> None:
    half = rows("[0.1, 3e38]", spec("x", "BF16", 2))["x"]

    assert half.dtype == datatypes.NUMPY["BF16"] and half.astype(np.float32).tolist()[0][0] == pytest.approx(0.1, rel=0.01)
    assert "BF16" in refusal("[3.4028e38, 1]", spec("x", "BF16", 2))


@pytest.mark.parametrize("datatype", ["BF16", "FP16", "FP32", "FP64"])
def test_every_kind_of_fraction_is_written_with_null_for_nan(datatype: str) -> None:
    array = np.array([[1.5, np.nan], [-np.inf, 0.25]]).astype(datatypes.NUMPY[datatype])

    assert encoding.json_lines({"y": array}) == b'{"y": [1.5, null]}\n{"y": [null, 0.25]}\n'


@pytest.mark.parametrize("value", ['{"a": 1}', '[{"a": 1}, 2]', '["abc", 1]'])
def test_objects_and_texts_are_no_numbers(value: str) -> None:
    refusal(json.dumps({"x": json.loads(value)}), X)


def test_truth_values_feed_a_model_that_wants_them() -> None:
    assert rows("[true, false]", spec("x", "BOOL", 2))["x"].tolist() == [[True, False]]


def test_half_precision_is_read_from_json() -> None:
    half = rows("[0.1, 65504]", spec("x", "FP16", 2))["x"]

    assert half.dtype == np.float16 and half.tolist() == [[np.float16(0.1), 65504]]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_what_is_not_finite_is_left_for_the_check_that_knows_the_job(value: str) -> None:
    assert not np.isfinite(rows(f"[{value}, 1]", X)["x"]).all()


@pytest.mark.parametrize("text", ["", "plain", "größe ✓ 漢字", "😀", "a\tb\\n", '"quoted"', "nul\x00inside", "\r\n"])
def test_texts_come_as_they_are(text: str) -> None:
    for escaped in (True, False):
        line = json.dumps({"text": text}, ensure_ascii=escaped)
        assert texts(rows(f"{line}\n{line}", TEXT)["text"]) == [text, text]


@pytest.mark.parametrize("text", ["line\u2028separator", "next\u0085line", "paragraph\u2029"], ids=["2028", "0085", "2029"])
def test_unicode_line_separators_inside_of_a_text_end_no_line(text: str) -> None:
    line = json.dumps({"text": text}, ensure_ascii=False)

    assert texts(rows(line, TEXT)["text"]) == [text]


def test_texts_in_rows_keep_their_shape() -> None:
    fed = rows('[["a", "b"], ["c", "d"]]', spec("text", "BYTES", 2, 2))["text"]

    assert fed.shape == (1, 2, 2) and texts(fed) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("value", ["5", "null", "true", '{"a": 1}', '["a"]'])
def test_what_is_no_text_is_refused_for_a_model_that_reads_text(value: str) -> None:
    refusal(f'{{"text": "fine"}}\n{{"text": {value}}}', TEXT)


def test_an_endless_number_is_refused_with_its_line() -> None:
    assert "line 1" in refusal("[" + "9" * 5000 + ", 1]", X)


def test_a_bottomless_nest_is_refused_with_its_line() -> None:
    assert "line 1" in refusal("[" * 100_000, X)


def test_a_file_in_another_encoding_than_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes('{"text": "größe"}\n'.encode("latin-1"))

    with pytest.raises(WorkerError) as caught:
        open_items(tmp_path / "in.jsonl", "auto", (TEXT,))
    assert caught.value.reason is WorkerReason.INPUT_INVALID


@pytest.mark.parametrize("name", ["in.jsonl", "in.ndjson", "in.JSONL"])
def test_a_file_of_lines_is_known_by_its_ending(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"text": "größe"}\r\n')

    assert texts(open_items(tmp_path / name, "auto", (TEXT,)).rows(0, 1)["text"]) == ["größe"]


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.lists(floats, min_size=2, max_size=2), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=8))
@settings(STEADY, max_examples=60)
def test_whatever_json_writes_is_read_back_exactly(values: list[tuple[list[float], int]]) -> None:
    fed = rows("\n".join(json.dumps({"a": a, "b": b}) for a, b in values), *PAIR)

    assert fed["a"].tolist() == [a for a, _ in values] and fed["b"].tolist() == [b for _, b in values]


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "x"]), inner, max_size=2),
    max_leaves=6,
)


@given(st.lists(anything, min_size=1, max_size=3), st.sampled_from([(X,), PAIR, (TEXT,), (spec("n", "UINT8"),)]))
@settings(STEADY, max_examples=200)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_any_json_is_taken_or_refused_and_never_fails_otherwise(values: list[Any], inputs: tuple[TensorSpec, ...]) -> None:
    try:
        fed = rows("\n".join(json.dumps(value) for value in values), *inputs)
    except WorkerError as error:
        assert error.reason is WorkerReason.INPUT_INVALID  # noqa: PT017
        return

    assert {name: array.dtype for name, array in fed.items()} == {s.name: s.dtype for s in inputs}

"""Inputs as CSV: what pandas, spreadsheets and people write; each way to lose an item or to mix up columns is refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.formats.opening import open_text
from inference_worker.batch.formats.tables import read_csv
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_items_arrays import spec
from tests.unit.worker.conftest import STEADY

# As scikit-learn's converter makes them: a column of its own for each input, or one input of all numbers.
AGE, COLOUR = spec("age", "FP32", 1), spec("colour", "BYTES", 1)
FLOWER = spec("float_input", "FP32", 4)
TEXT = spec("text", "BYTES")
COUNT = spec("n", "INT64")


def rows(text: str, *inputs: TensorSpec, empty: bool = False) -> dict[str, np.ndarray]:
    items = read_csv(io.StringIO(text, newline=""), inputs, empty=empty)
    assert items.lines and items.names is None
    return items.rows(0, len(items))


def refusal(text: str, *inputs: TensorSpec, empty: bool = False) -> str:
    with pytest.raises(WorkerError) as caught:
        read_csv(io.StringIO(text, newline=""), inputs, empty=empty)
    assert caught.value.reason is WorkerReason.INPUT_INVALID and caught.value.permanent
    return caught.value.message


def test_columns_feed_the_inputs_of_their_names_in_any_order() -> None:
    fed = rows("colour,age\nred,30\nblue,-1.5e1\n", AGE, COLOUR)

    assert fed["age"].tolist() == [[30], [-15]] and fed["colour"].tolist() == [["red"], ["blue"]]


def test_a_column_feeds_an_input_without_a_second_dimension_too() -> None:
    assert rows("text\nred\nblue\n", TEXT)["text"].tolist() == ["red", "blue"]


@pytest.mark.parametrize("header", ["sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)", "0,1,2,3", "a,b,c,d"])
def test_all_columns_feed_the_only_input_in_their_order(header: str) -> None:
    """`DataFrame.to_csv(index=False)`, with the names of a data set or those that pandas gives to an array."""
    fed = rows(f"{header}\n5.1,3.5,1.4,0.2\n4.9,3,1.4,0.2\n", FLOWER)["float_input"]

    assert fed.dtype == np.float32 and np.allclose(fed, [[5.1, 3.5, 1.4, 0.2], [4.9, 3, 1.4, 0.2]])


def test_numbered_columns_feed_an_input_in_the_order_of_their_numbers() -> None:
    fed = rows("x_1,id,x_0\n1,7,0\n", spec("x", "FP32", 2), spec("id", "INT64"))

    assert fed["x"].tolist() == [[0, 1]] and fed["id"].tolist() == [7]


def test_numbered_columns_feed_an_input_of_any_width() -> None:
    assert rows("x_0,x_1,x_2,n\n1,2,3,4\n", spec("x", "FP32", None), COUNT)["x"].tolist() == [[1, 2, 3]]


def test_texts_in_several_columns_are_found_by_number() -> None:
    assert rows("text_0,text_1\na,b\n", spec("text", "BYTES", 2))["text"].tolist() == [["a", "b"]]


def test_items_stand_on_the_axis_where_the_input_counts_them() -> None:
    across = TensorSpec("x", "FP32", np.dtype(np.float32), (2, None), batch_axis=1)

    assert rows("a,b\n1,2\n3,4\n5,6\n", across)["x"].tolist() == [[1, 3, 5], [2, 4, 6]]


def test_a_shared_input_has_the_same_value_in_every_line() -> None:
    rate = TensorSpec("rate", "INT64", np.dtype(np.int64), (), batch_axis=None)

    assert rows("x,rate\n1,16000\n2,16000\n", spec("x"), rate)["rate"].tolist() == 16000
    assert "shared" in refusal("x,rate\n1,16000\n2,8000\n", spec("x"), rate)


@pytest.mark.parametrize(
    "text",
    [
        "5.1,3.5,1.4,0.2\n4.9,3,1.4,0.2\n",
        "5,3,1,0\n4,3,1,0\n",
        "5.1,3.5,,0.2\n",
        "NaN,1,2,3\n4,5,6,7\n",
        "5.1,3.5,n/a,0.2\n1,2,3,4\n",
    ],
    ids=["fractions", "whole numbers", "an empty cell", "NaN", "a word"],
)
def test_an_item_is_never_taken_for_the_header(text: str) -> None:
    """ersilia-os/zaira-chem#2: without a header, the first item was missing from the answers."""
    assert "header" in refusal(text, FLOWER)


def test_the_first_number_is_never_taken_for_the_header() -> None:
    assert "header" in refusal("0\n1\n2\n", spec("x", "FP32", 1))


def test_the_first_text_is_never_taken_for_the_header() -> None:
    """aws/sagemaker-huggingface-inference-toolkit#25: a line of text without a header can't be told from one."""
    assert "text" in refusal("what a nice film\nnot for me\n", TEXT)


def test_the_first_truth_value_is_never_taken_for_the_header() -> None:
    assert "header" in refusal("True,False\nFalse,False\n", spec("x", "BOOL", 2))


def test_the_header_is_never_taken_for_an_item() -> None:
    """ersilia-os/ersilia#1728: some batches had the header among their items."""
    assert rows("n\n1\n2\n", COUNT)["n"].tolist() == [1, 2]


@pytest.mark.parametrize("header", [",a,b,c,d", ",0,1,2,3", "a,b,c,"])
def test_the_index_that_pandas_adds_is_refused_by_its_name(header: str) -> None:
    """`DataFrame.to_csv(file)` writes the numbers of the rows as a column without a name."""
    cells = "0,1,2,3,4" if header.count(",") == 4 else "1,2,3,4"

    assert "index=False" in refusal(f"{header}\n{cells}\n", FLOWER)


def test_the_index_beside_named_columns_is_refused_too() -> None:
    assert "index=False" in refusal(",age,colour\n0,30,red\n", AGE, COLOUR)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("age\n30\n", "colour"),
        ("age,colour,label\n30,red,1\n", "'label'"),
        ("Age,colour\n30,red\n", "'Age'"),
        ("age,age,colour\n1,2,red\n", "two columns"),
        ("age;colour\n30;red\n", "commas"),
        ("age\tcolour\n30\tred\n", "commas"),
    ],
    ids=["missing", "one more", "capitals", "twice", "semicolons", "tabs"],
)
def test_other_columns_are_refused_with_those_wanted(text: str, word: str) -> None:
    assert word in refusal(text, AGE, COLOUR)


@pytest.mark.parametrize("header", ["a,b,c", "a,b,c,d,e", "float_input_0,float_input_1,float_input_2"])
def test_another_number_of_columns_is_refused_with_that_wanted(header: str) -> None:
    message = refusal(f"{header}\n" + ",".join("1" for _ in header.split(",")), FLOWER)

    assert f"{header.count(',') + 1} columns" in message and "float_input_3" in message


@pytest.mark.parametrize("inputs", [(spec("image", "FP32", 3, 8, 8),), (spec("image", "FP32", 3, 8, 8), COUNT)])
def test_what_no_table_holds_is_refused_with_a_form_that_does(inputs: tuple[TensorSpec, ...]) -> None:
    assert ".npy" in refusal("image,n\n1,2\n", *inputs)


@pytest.mark.parametrize("line", ["30", "30,red,more", "30,'red, dark'"])
def test_a_line_of_another_length_is_refused_with_its_number(line: str) -> None:
    assert "line 3 " in refusal(f"age,colour\n1,blue\n{line}\n", AGE, COLOUR)


def test_cells_may_hold_commas_quotes_and_line_ends() -> None:
    fed = rows('text\n"a, b"\n"say ""hi"""\n"two\r\nlines"\n', TEXT)["text"].tolist()

    assert fed == ["a, b", 'say "hi"', "two\r\nlines"]


def test_the_number_of_a_line_is_that_of_an_editor() -> None:
    assert "line 5," in refusal('text,n\n"two\nlines",1\n\nx,one\n', TEXT, COUNT)


def test_an_empty_text_is_a_text_and_an_empty_line_is_no_item() -> None:
    """As pandas writes a column of texts, one of them empty."""
    assert rows('text\n""\n\nx\n', TEXT)["text"].tolist() == ["", "x"]


@pytest.mark.parametrize("text", ["", "\n\n", "text\n", "text\r\n\r\n"])
def test_no_lines_is_an_error_that_says_so(text: str) -> None:
    assert "no items" in refusal(text, TEXT)


@pytest.mark.parametrize("text", ['text\n"open\n', 'text\n"a"b\n'])
def test_a_quote_that_is_left_open_is_refused(text: str) -> None:
    assert "quote" in refusal(text, TEXT)


@pytest.mark.parametrize("cell", ["", " ", "x", "1,5", "1_000", "NA", "None", "0x10", "1e", "--1"])
def test_what_is_no_number_is_refused_with_line_and_input(cell: str) -> None:
    message = refusal(f'age,colour\n1,a\n"{cell}",b\n', AGE, COLOUR)

    assert "line 3," in message and "'age'" in message


def test_an_empty_cell_is_refused_with_the_way_to_take_it_for_nan() -> None:
    assert "allowNonFinite" in refusal("a,b,c,d\n1,,3,4\n", FLOWER)


def test_an_empty_cell_is_nan_where_nan_is_allowed() -> None:
    """pandas writes NaN so."""
    fed = rows("a,b,c,d\n1,,3,4\n", FLOWER, empty=True)["float_input"]

    assert np.array_equal(fed, np.array([[1, np.nan, 3, 4]], np.float32), equal_nan=True)
    refusal('n\n""\n', COUNT, empty=True)


@pytest.mark.parametrize("cell", ["1.0", "1e3", "", "true", "9223372036854775808", "1_0"])
def test_what_is_no_whole_number_of_the_type_is_refused(cell: str) -> None:
    assert "'n'" in refusal(f"n,m\n{cell},1\n", COUNT, spec("m", "INT64"))


def test_whole_numbers_are_exact() -> None:
    assert rows(f"n\n{2**63 - 1}\n{-(2**63)}\n", COUNT)["n"].tolist() == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize(("cell", "value"), [("True", True), ("False", False), ("TRUE", True), ("false", False)])
def test_truth_values_are_read_as_pandas_and_spreadsheets_write_them(cell: str, *, value: bool) -> None:
    assert rows(f"b\n{cell}\n", spec("b", "BOOL"))["b"].tolist() == [value]


@pytest.mark.parametrize("cell", ["1", "0", "yes", ""])
def test_other_words_are_no_truth_values(cell: str) -> None:
    refusal(f'b\n"{cell}"\n', spec("b", "BOOL"))


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_every_kind_of_fraction_is_read(datatype: str) -> None:
    assert rows("x\n1.5\nnan\n", spec("x", datatype))["x"].astype(np.float64).tolist()[0] == 1.5


def test_a_long_document_is_a_cell() -> None:
    assert rows(f"text\n{'x' * 200_000}\n", TEXT)["text"].tolist() == ["x" * 200_000]


def test_a_table_of_very_many_columns_is_read_at_once() -> None:
    width = 20_000

    fed = rows(",".join(f"x_{i}" for i in range(width)) + "\n" + ",".join("1" for _ in range(width)), spec("x", "FP32", width))

    assert fed["x"].shape == (1, width)


def test_a_table_in_the_job_itself_is_read_if_the_format_says_so() -> None:
    items = open_text("\ufeffage,colour\r\n30,red\r\n", "csv", (AGE, COLOUR))

    assert items.lines and items.rows(0, 1)["age"].tolist() == [[30]]
    assert open_text('{"n": 1}', "auto", (COUNT,)).rows(0, 1)["n"].tolist() == [1]


@pytest.mark.parametrize("form", ["npy", "npz", "files"])
def test_a_job_holds_text_alone(form: Any) -> None:
    with pytest.raises(WorkerError, match=r"input\.format"):
        open_text("[1]", form, (COUNT,))


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(cells, numbers, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=6))
@settings(STEADY, max_examples=60)
def test_whatever_the_standard_library_writes_is_read_back_exactly(values: list[tuple[str, float, int]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_STRINGS if hasattr(csv, "QUOTE_STRINGS") else csv.QUOTE_ALL).writerows(
        [("colour", "age", "n"), *values]
    )

    fed = rows(file.getvalue(), AGE, COLOUR, COUNT)

    assert [row[0] for row in fed["colour"].tolist()] == [colour for colour, _, _ in values]
    assert [row[0] for row in fed["age"].tolist()] == [age for _, age, _ in values]
    assert fed["n"].tolist() == [n for _, _, n in values]


@given(
    st.text(st.sampled_from('ab01.,;"\n\r\t x_-'), max_size=40),
    st.sampled_from([(FLOWER,), (AGE, COLOUR), (TEXT,), (spec("x", "BOOL", 2),)]),
)
@settings(STEADY, max_examples=300)
def test_any_text_is_taken_or_refused_and_never_fails_otherwise(text: str, inputs: tuple[Any, ...]) -> None:
    try:
        fed = rows(text, *inputs)
    except WorkerError as error:
        assert error.reason is WorkerReason.INPUT_INVALID  # noqa: PT017
        return

    assert {name: array.dtype for name, array in fed.items()} == {s.name: s.dtype for s in inputs}


def test_a_table_of_a_real_model_is_read() -> None:
    given_inputs = np.load(Path(__file__).parents[3] / "models" / "mixed.in.npz")
    ages, colours = (given_inputs[name][:, 0].tolist() for name in ("age", "colour_of_car"))
    text = "age,colour_of_car\n" + "".join(f"{age},{colour}\n" for age, colour in zip(ages, colours, strict=True))

    fed = rows(text, AGE, spec("colour_of_car", "BYTES", 1))

    assert all(fed[name].tolist() == given_inputs[name].tolist() for name in given_inputs.files)

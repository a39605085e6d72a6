"""Texts in arrays: numpy's fixed-width strings, which is how our own output holds them, become the texts that a model reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_worker.batch import encoding
from inference_worker.batch.formats.opening import open_items
from tests.unit.worker.batch.test_items_arrays import X, refusal, saved, spec
from tests.unit.worker.conftest import STEADY

TEXT = spec("text", "BYTES")
BOXED = spec("text", "BYTES", 1)
MODELS = Path(__file__).parents[3] / "models"
WORDS = ["", "plain", "größe ✓ 漢字", "😀", "a\tb\n", "nul\x00inside"]


@pytest.mark.parametrize("dtype", ["<U11", ">U11", "S24"])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_fixed_width_strings_feed_a_model_that_reads_text(tmp_path: Path, dtype: str, suffix: str) -> None:
    """triton-inference-server/server#5726: an array of strings, as numpy makes it, was no input."""
    texts = np.array([word.encode() for word in WORDS] if dtype.startswith("S") else WORDS, dtype)
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        saved(path, texts)
    else:
        np.savez(path, text=texts)

    rows = open_items(path, "auto", (TEXT,)).rows(0, len(WORDS))["text"]

    assert rows.dtype == object and rows.tolist() == WORDS


@pytest.mark.parametrize("name", ["mixed", "tfidf-nolower"])
def test_the_inputs_of_real_text_models_are_read(name: str) -> None:
    with np.load(MODELS / f"{name}.in.npz") as given_inputs:
        arrays = dict(given_inputs)
    specs = tuple(spec(key, "BYTES" if array.dtype.kind == "U" else "FP32", 1) for key, array in arrays.items())

    rows = open_items(MODELS / f"{name}.in.npz", "auto", specs)

    assert {key: array.tolist() for key, array in rows.rows(0, len(rows)).items()} == {k: a.tolist() for k, a in arrays.items()}


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 0xFFFFFFFF], ids=hex)
@pytest.mark.parametrize("order", ["<", ">"])
def test_what_is_no_text_is_refused_and_breaks_nothing(tmp_path: Path, code: int, order: str) -> None:
    """numpy itself fails with a SystemError on such a value."""
    array = np.array([0x61, code], f"{order}u4").view(f"{order}U1")

    assert "Unicode" in refusal(saved(tmp_path / "x.npy", array), TEXT)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    assert "UTF-8" in refusal(saved(tmp_path / "x.npy", np.array([b"fine", b"\xff\xfe"])), TEXT)


@pytest.mark.parametrize("array", [np.array([1, 2]), np.array([1.5, 2]), np.array([True, False])], ids=["int", "float", "bool"])
def test_numbers_never_become_texts(tmp_path: Path, array: np.ndarray) -> None:
    assert "strings" in refusal(saved(tmp_path / "x.npy", array), TEXT)


def test_texts_never_become_numbers(tmp_path: Path) -> None:
    assert "float32" in refusal(saved(tmp_path / "x.npy", np.array([["1", "2"]])), X)


def test_texts_of_another_shape_are_refused_with_both(tmp_path: Path) -> None:
    message = refusal(saved(tmp_path / "x.npy", np.array([["a", "b"]])), BOXED)

    assert "[1, 2]" in message and "'N', 1" in message


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.array([["a"], ["b"]])], ids=["flat", "boxed"])
def test_one_text_an_item_feeds_an_input_with_a_dimension_for_it(tmp_path: Path, array: np.ndarray) -> None:
    """scikit-learn's models give labels as [N], and take texts as [N, 1]."""
    assert open_items(saved(tmp_path / "x.npy", array), "auto", (BOXED,)).rows(0, 2)["text"].tolist() == [["a"], ["b"]]


# numpy drops NUL characters from the end of a string.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(lambda word: word.rstrip("\0"))


@given(st.lists(st.lists(words, min_size=2, max_size=2), min_size=1, max_size=5))
@settings(STEADY, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_texts_we_write_are_read_back_exactly(tmp_path: Path, values: Any) -> None:
    (tmp_path / "out.npz").write_bytes(encoding.npz({"text": np.array(values, dtype=object)}))

    assert open_items(tmp_path / "out.npz", "auto", (spec("text", "BYTES", 2),)).rows(0, len(values))["text"].tolist() == values


@given(data=st.binary(min_size=4, max_size=40).map(lambda raw: raw[: len(raw) // 4 * 4]), order=st.sampled_from("<>"))
@settings(STEADY, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_code_points_make_the_reader_fail_in_another_way_than_by_refusing(tmp_path: Path, data: bytes, order: str) -> None:
    array = np.frombuffer(data, f"{order}U1")
    path = saved(tmp_path / "x.npy", array)
    codes = array.view(f"{order}u4")
    if (codes <= 0x10FFFF).all() and not ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
        assert open_items(path, "auto", (TEXT,)).rows(0, len(array))["text"].tolist() == array.tolist()
    else:
        refusal(path, TEXT)


@pytest.mark.parametrize("value", ["größe".encode(), b"\xff"])
def test_texts_that_an_engine_gives_as_bytes_are_written(value: bytes) -> None:
    array = np.array([value, "plain"], dtype=object)

    assert encoding.npz({"y": array}) and encoding.json_lines({"y": array}).count(b"\n") == 2

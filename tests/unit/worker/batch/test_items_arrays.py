"""Inputs as .npy and .npz: right ones are taken as they are, wrong ones are refused before anything runs."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_protocol.reasons import WorkerReason
from inference_worker import cpu, datatypes
from inference_worker.batch import encoding
from inference_worker.batch.formats import arrays as arrays_module
from inference_worker.batch.formats.opening import open_items
from inference_worker.batch.items import refuse_non_finite
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from pathlib import Path


def spec(name: str = "x", datatype: str = "FP32", *sizes: int | None) -> TensorSpec:
    return TensorSpec(name, datatype, datatypes.NUMPY[datatype], (None, *sizes))


X = spec("x", "FP32", 2)
PAIR = (spec("a", "FP32", 2), spec("b", "INT64"))


def saved(path: Path, array: Any, *, pickled: bool = False) -> Path:
    np.save(path, array, allow_pickle=pickled)
    return path


def refusal(path: Path, *inputs: TensorSpec, form: Any = "auto") -> str:
    with pytest.raises(WorkerError) as caught:
        open_items(path, form, inputs)
    assert caught.value.reason is WorkerReason.INPUT_INVALID and caught.value.permanent
    return caught.value.message


def test_an_npy_is_read_by_range_in_any_order_and_again(tmp_path: Path) -> None:
    array = np.arange(20, dtype=np.float32).reshape(10, 2)
    items = open_items(saved(tmp_path / "x.npy", array), "auto", (X,))

    assert len(items) == 10 and items.names is None
    for start, end in ((7, 10), (0, 3), (7, 10), (0, 10)):
        assert np.array_equal(items.rows(start, end)["x"], array[start:end])
        assert items.rows(start, end)["x"].flags.c_contiguous


def test_an_npz_feeds_two_inputs_by_name(tmp_path: Path) -> None:
    a, b = np.ones((4, 2), np.float32), np.arange(4)
    np.savez(tmp_path / "in.npz", b=b, a=a)

    rows = open_items(tmp_path / "in.npz", "auto", PAIR).rows(1, 3)

    assert np.array_equal(rows["a"], a[1:3]) and np.array_equal(rows["b"], b[1:3])


@pytest.mark.parametrize(
    "array",
    [np.ones((3, 2)), np.ones((3, 2), ">f4"), np.ones((3, 2), np.float16), np.ones((3, 2), np.int8), np.ones((2, 3), np.float32).T],
    ids=["float64", "big-endian", "float16", "int8", "Fortran order"],
)
def test_other_numbers_become_what_the_model_wants(tmp_path: Path, array: np.ndarray) -> None:
    rows = open_items(saved(tmp_path / "x.npy", array), "auto", (X,)).rows(0, 3)

    assert rows["x"].dtype == np.float32 and rows["x"].dtype.isnative and np.array_equal(rows["x"], np.ones((3, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, "U3", "S3", "datetime64[s]"])
def test_fractions_and_texts_never_become_whole_numbers(tmp_path: Path, dtype: Any) -> None:
    message = refusal(saved(tmp_path / "x.npy", np.ones(3).astype(dtype)), spec("x", "INT64"))

    assert "INT64" in message and "x" in message


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.array([1, 300], np.int64), "INT8"),
        (np.array([2**40], np.int64), "INT32"),
        (np.array([2**63], np.uint64), "INT64"),
        (np.array([70000], np.uint32), "UINT16"),
    ],
    ids=["int8", "int32", "int64", "uint16"],
)
def test_whole_numbers_that_do_not_fit_are_refused(tmp_path: Path, array: np.ndarray, datatype: str) -> None:
    refusal(saved(tmp_path / "x.npy", array), spec("x", datatype))


def test_bfloat16_is_read_as_our_own_output_holds_it_and_from_wider_types(tmp_path: Path) -> None:
    wanted, values = spec("x", "BF16", 2), np.array([[1.5, -2], [0.25, 3e38]], np.float32)
    (tmp_path / "out.npz").write_bytes(encoding.npz({"x": values.astype(wanted.dtype)}))
    np.savez(tmp_path / "in.npz", x=values)

    for name in ("out.npz", "in.npz"):
        rows = open_items(tmp_path / name, "auto", (wanted,)).rows(0, 2)["x"]
        assert rows.dtype == wanted.dtype and np.array_equal(rows, values.astype(wanted.dtype))


def test_fractions_beyond_bfloat16_are_refused(tmp_path: Path) -> None:
    assert "BF16" in refusal(saved(tmp_path / "x.npy", np.array([[1.0, 1e300]])), spec("x", "BF16", 2))


def test_whole_numbers_that_fit_a_narrower_type_are_taken(tmp_path: Path) -> None:
    items = open_items(saved(tmp_path / "x.npy", np.array([-128, 127])), "auto", (spec("x", "INT8"),))

    assert items.rows(0, 2)["x"].tolist() == [-128, 127]


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_fractions_that_do_not_fit_are_refused_as_such(tmp_path: Path) -> None:
    assert "1e+300" in refusal(saved(tmp_path / "x.npy", np.array([[1.0, 1e300]])), X)


@pytest.mark.parametrize(
    "shape",
    [(3, 3), (3, 1), (2,), (6,), (3, 2, 1), (), (1, 3, 2)],
    ids=["wide", "narrow", "flat", "long", "deep", "scalar", "boxed"],
)
def test_rows_of_another_shape_are_refused_with_both_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    message = refusal(saved(tmp_path / "x.npy", np.ones(shape, np.float32)), X)

    assert str(list(shape)) in message and "'N', 2" in message


def test_a_free_size_takes_any(tmp_path: Path) -> None:
    items = open_items(saved(tmp_path / "x.npy", np.ones((3, 7, 2), np.float32)), "auto", (spec("x", "FP32", None, 2),))

    assert items.rows(0, 1)["x"].shape == (1, 7, 2)


def test_no_items_is_an_error_that_says_so(tmp_path: Path) -> None:
    assert "no items" in refusal(saved(tmp_path / "x.npy", np.zeros((0, 2), np.float32)), X)


def test_unequal_numbers_of_items_are_refused_with_the_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", a=np.ones((4, 2), np.float32), b=np.arange(5))

    message = refusal(tmp_path / "in.npz", *PAIR)

    assert "4" in message and "5" in message


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c"), ("a", "B"), ("arr_0", "arr_1"), ()])
def test_arrays_of_other_names_are_refused_with_those_wanted(tmp_path: Path, names: tuple[str, ...]) -> None:
    arrays: dict[str, Any] = {name: np.ones((1, 2), np.float32) for name in names}
    np.savez(tmp_path / "in.npz", **arrays)

    assert "a, b" in refusal(tmp_path / "in.npz", *PAIR)


def test_an_array_that_was_saved_without_a_name_feeds_the_only_input(tmp_path: Path) -> None:
    """`numpy.savez(file, a)` calls it arr_0."""
    np.savez(tmp_path / "in.npz", np.ones((3, 2), np.float32))

    assert len(open_items(tmp_path / "in.npz", "auto", (X,)).rows(0, 3)["x"]) == 3


def test_an_input_that_is_called_as_numpy_calls_a_nameless_array_is_fed_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", np.ones((3, 2), np.float32))

    assert open_items(tmp_path / "in.npz", "auto", (spec("arr_0", "FP32", 2),)).rows(0, 1).keys() == {"arr_0"}


def test_an_array_of_another_name_does_not_feed_the_only_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", y=np.ones((3, 2), np.float32))

    assert "savez(file, x=" in refusal(tmp_path / "in.npz", X)


def test_one_nameless_array_does_not_feed_two_inputs(tmp_path: Path) -> None:
    assert "a, b" in refusal(saved(tmp_path / "x.npy", np.ones((1, 2), np.float32)), *PAIR)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was loaded",)


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_pickles_are_refused_and_never_loaded(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    array = np.array([Bomb()], dtype=object)
    if suffix == "npy":
        saved(path, array, pickled=True)
    else:
        np.savez(path, x=array)

    refusal(path, spec("x", "BYTES"))


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_texts_that_numpy_pickled_are_refused_with_the_way_to_save_them(tmp_path: Path, suffix: str) -> None:
    """What `df["text"].to_numpy()` becomes in a file."""
    path = tmp_path / f"x.{suffix}"
    array = np.array(["a", "b"], dtype=object)
    if suffix == "npy":
        saved(path, array, pickled=True)
    else:
        np.savez(path, x=array)

    assert "astype(str)" in refusal(path, spec("x", "BYTES"))


def test_a_bare_pickle_with_an_npy_name_is_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(pickle.dumps(Bomb()))

    refusal(tmp_path / "x.npy", X)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{", b"text\n", b"<html>", bytes(200)])
def test_what_is_no_npy_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)

    refusal(tmp_path / "x.npy", X)


@pytest.mark.parametrize("cut", [1, 4, 20, 60, 128, 150])
def test_a_cut_npy_is_refused(tmp_path: Path, cut: int) -> None:
    path = saved(tmp_path / "x.npy", np.ones((5, 2), np.float32))
    path.write_bytes(path.read_bytes()[:-cut])

    refusal(path, X)


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_cut_npz_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.ones((5, 2), np.float32))
    path.write_bytes(path.read_bytes()[:-cut])

    refusal(path, X)


def test_an_npz_with_a_flipped_byte_in_its_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x=np.full((50, 2), 7, np.float32))
    raw = bytearray(path.read_bytes())
    raw[raw.index(np.float32(7).tobytes() * 8) + 17] ^= 0xFF
    path.write_bytes(raw)

    refusal(path, X)


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_an_npz_called_npy_and_an_npy_called_npz_are_refused(tmp_path: Path, form: str) -> None:
    np.savez(tmp_path / "real.npz", x=np.ones((1, 2), np.float32))
    saved(tmp_path / "real.npy", np.ones((1, 2), np.float32))
    other = tmp_path / ("real.npz" if form == "npy" else "real.npy")

    refusal(other, X, form=form)


def test_an_npz_with_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        archive.writestr("x", b"not an array")

    refusal(tmp_path / "in.npz", X)


def test_an_npy_that_claims_more_than_it_holds_takes_no_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 2)})
    (tmp_path / "x.npy").write_bytes(header.getvalue())

    refusal(tmp_path / "x.npy", X)


def test_an_npz_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**14, 2)})
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())

    refusal(tmp_path / "in.npz", X)


def test_a_small_npz_does_not_take_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """alphagov/backdrop#360, headroomlabs-ai/headroom#3284: a small compressed file that inflates to gigabytes."""
    monkeypatch.setattr(arrays_module, "_INFLATED_LIMIT_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "in.npz", x=np.zeros((8 << 20, 1), np.uint8))

    assert "numpy.savez" in refusal(tmp_path / "in.npz", spec("x", "UINT8", 1))


def test_an_npz_that_does_not_fit_the_workers_memory_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "usable_memory_bytes", lambda: 8 << 20)
    np.savez_compressed(tmp_path / "in.npz", x=np.zeros((5 << 20, 1), np.uint8))

    text = refusal(tmp_path / "in.npz", spec("x", "UINT8", 1))

    assert str(8 << 20) in text and "resources.limits.memory" in text


def test_an_array_that_claims_more_than_its_member_holds_is_not_made_room_for(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 30, 1)})
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())

    assert str(1 << 30) in refusal(tmp_path / "in.npz", spec("x", "UINT8", 1))


def test_a_large_npz_that_is_not_compressed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays_module, "_INFLATED_LIMIT_BYTES", 1 << 10)
    np.savez(tmp_path / "in.npz", x=np.zeros((4 << 10, 1), np.uint8))

    assert len(open_items(tmp_path / "in.npz", "auto", (spec("x", "UINT8", 1),))) == 4 << 10


def test_a_compressed_npz_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "in.npz", x=np.ones((1000, 2), np.float32))

    assert len(open_items(tmp_path / "in.npz", "auto", (X,))) == 1000


def test_an_npz_with_a_password_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((1, 2), np.float32))
    raw = bytearray((tmp_path / "in.npz").read_bytes())
    for start in (6, raw.index(b"PK\x01\x02") + 8):
        raw[start] |= 1
    (tmp_path / "in.npz").write_bytes(raw)

    refusal(tmp_path / "in.npz", X)


def test_an_ending_that_says_nothing_asks_for_the_format(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"x")

    assert "input.format" in refusal(tmp_path / "x.bin", X)


def test_an_ending_in_capitals_is_understood(tmp_path: Path) -> None:
    saved(tmp_path / "x.npy", np.ones((1, 2), np.float32)).rename(tmp_path / "X.NPY")

    assert len(open_items(tmp_path / "X.NPY", "auto", (X,))) == 1


@pytest.mark.parametrize("form", ["npy", "npz", "jsonl"])
def test_a_directory_is_not_read_as_one_file(tmp_path: Path, form: str) -> None:
    assert "files" in refusal(tmp_path, X, form=form)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in.npy")

    assert "neither a file" in refusal(tmp_path / "in.npy", X)


def test_a_missing_input_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        open_items(tmp_path / "gone.npy", "auto", (X,))

    assert caught.value.reason is WorkerReason.INPUT_NOT_FOUND and "gone.npy" in caught.value.message
    assert "edit this job once that one has succeeded" in caught.value.message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, datatypes.NUMPY["BF16"]])
def test_the_first_item_that_is_not_finite_is_named(bad: float, dtype: Any) -> None:
    array = np.ones((6, 3), dtype)
    array[4, 1] = array[5, 0] = bad

    with pytest.raises(WorkerError) as caught:
        refuse_non_finite({"x": array}, 100, (spec(),))

    assert "item 104 " in caught.value.message and "allowNonFinite" in caught.value.message


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_large_numbers_are_not_taken_for_infinity() -> None:
    refuse_non_finite({"x": np.full((4, 2), 1e308), "h": np.full((4, 2), 65000, np.float16)}, 0, (spec("x"), spec("h")))
    refuse_non_finite({"i": np.array([2**62, 2**62]), "s": np.array([b"nan"], object)}, 0, (spec("i"), spec("s")))


@given(data=st.binary(max_size=200), name=st.sampled_from(["x.npy", "x.npz", "x.jsonl", "x.csv", "x.csv.gz"]), magic=st.booleans())
@settings(STEADY, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_make_the_reader_fail_in_another_way_than_by_refusing(
    tmp_path: Path, *, data: bytes, name: str, magic: bool
) -> None:
    starts = {
        "x.npy": b"\x93NUMPY\x01\x00",
        "x.npz": b"PK\x03\x04",
        "x.jsonl": b'{"x": ',
        "x.csv": b"x_0,x_1\n",
        "x.csv.gz": b"\x1f\x8b\x08",
    }
    start = starts[name] if magic else b""
    if name in ("x.jsonl", "x.csv"):
        data = data.decode("latin-1").encode()
    (tmp_path / name).write_bytes(start + data)

    with pytest.raises(WorkerError):
        open_items(tmp_path / name, "auto", (X,))


def a_header(path: Path, descr: str, shape: tuple[int, ...]) -> Path:
    """A file that ends with numpy's header, as one without data does; packed where the name says so."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    if path.suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", header.getvalue())
    else:
        path.write_bytes(header.getvalue())
    return path


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
@pytest.mark.parametrize("descr", ["<U0", "|S0", "|V0"])
def test_elements_of_no_bytes_do_not_stand_for_any_number_of_items(tmp_path: Path, name: str, descr: str) -> None:
    """Two hundred million of them, in a file of 128 bytes, became as many Python objects."""
    path = a_header(tmp_path / name, descr, (3,))

    assert "no bytes" in refusal(path, TensorSpec("x", "BYTES", datatypes.NUMPY["BYTES"], (None,)))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
@pytest.mark.parametrize("shape", [(10**12, 0), (1, 0, 2**27), (2**13, 0, 2**13)], ids=str)
def test_items_without_data_are_bounded_by_what_a_job_has(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    path = a_header(tmp_path / name, "<f4", shape)

    assert "no data" in refusal(path, spec("x", "FP32", *(None for _ in shape[1:])))


def test_some_items_of_no_rows_are_items(tmp_path: Path) -> None:
    path = a_header(tmp_path / "x.npy", "<f4", (10_000, 0, 768))

    assert len(open_items(path, "auto", (spec("x", "FP32", None, 768),))) == 10_000

"""Inputs as a directory of raw files: each file of the right size is an item, in the order of names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_worker.batch.formats.opening import open_items
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_items_arrays import PAIR, X, refusal, spec

if TYPE_CHECKING:
    from pathlib import Path

    from inference_worker.engines.engine import TensorSpec

ROW = np.array([1.5, -2], np.float32).tobytes()


def test_files_are_items_in_the_order_of_their_names(tmp_path: Path) -> None:
    for i, name in enumerate(["b.raw", "a.raw", "c"]):
        (tmp_path / name).write_bytes(np.full(2, i, np.float32).tobytes())

    items = open_items(tmp_path, "auto", (X,))

    assert items.names == ["a.raw", "b.raw", "c"]
    assert items.rows(0, 3)["x"].tolist() == [[1, 1], [0, 0], [2, 2]]


@pytest.mark.parametrize(("content", "size"), [(b"", 0), (ROW[:-1], 7), (ROW + b"\0", 9), (ROW * 2, 16)])
def test_a_file_of_another_size_is_refused_by_name(tmp_path: Path, content: bytes, size: int) -> None:
    (tmp_path / "good").write_bytes(ROW)
    (tmp_path / "wrong").write_bytes(content)

    message = refusal(tmp_path, X)

    assert "'wrong'" in message and str(size) in message and "8" in message


def test_links_are_left_out_wherever_they_point(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(ROW)
    (tmp_path / "secret").write_bytes(b"8 bytes!")
    (tmp_path / "in" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "again").symlink_to("a")
    (tmp_path / "in" / "broken").symlink_to("nowhere")

    assert open_items(tmp_path / "in", "auto", (X,)).names == ["a"]


def test_directories_inside_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(ROW)
    (tmp_path / "lost+found").mkdir()

    assert open_items(tmp_path, "auto", (X,)).names == ["a"]


def test_a_hidden_file_is_no_silent_item(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(ROW)
    (tmp_path / ".DS_Store").write_bytes(b"of the file manager")

    try:
        items = open_items(tmp_path, "auto", (X,))
    except WorkerError as error:
        assert ".DS_Store" in error.message  # noqa: PT017
    else:
        assert items.names == ["a"]


@pytest.mark.parametrize("content", ["nothing", "links"])
def test_a_directory_without_items_says_so(tmp_path: Path, content: str) -> None:
    if content == "links":
        (tmp_path / "a").symlink_to(__file__)

    assert "no files" in refusal(tmp_path, X)


def test_two_inputs_can_not_be_told_apart_in_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(ROW)

    assert ".npz" in refusal(tmp_path, *PAIR)


@pytest.mark.parametrize("wanted", [spec("x", "BYTES"), spec("x", "FP32", None, None)], ids=["text", "free sizes"])
def test_what_has_no_size_can_not_be_read_from_files(tmp_path: Path, wanted: object) -> None:
    (tmp_path / "a").write_bytes(ROW)

    refusal(tmp_path, wanted)  # type: ignore[arg-type]


def test_a_size_that_the_model_leaves_free_is_told_by_the_file(tmp_path: Path) -> None:
    for name, count in (("a", 2), ("b", 2), ("c", 6), ("d", 0)):
        (tmp_path / name).write_bytes(np.arange(count, dtype=np.float32).tobytes())

    items = open_items(tmp_path, "auto", (spec("x", "FP32", None, 2),))

    assert list(items.breaks) == [2, 3]
    assert [items.rows(*bounds)["x"].shape for bounds in ((0, 2), (2, 3), (3, 4))] == [(2, 1, 2), (1, 3, 2), (1, 0, 2)]


@pytest.mark.parametrize("wanted", [X, spec("x", "FP32", None, 2)], ids=["fixed", "free"])
def test_a_file_that_does_not_hold_whole_items_is_refused_with_the_sizes(tmp_path: Path, wanted: TensorSpec) -> None:
    (tmp_path / "a").write_bytes(ROW)
    (tmp_path / "b").write_bytes(ROW + ROW[:4])

    assert all(word in refusal(tmp_path, wanted) for word in ("'b'", "12 bytes", "8"))


def test_a_file_that_changes_while_the_job_runs_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(ROW)
    fixed, free = (open_items(tmp_path, "auto", (wanted,)) for wanted in (X, spec("x", "FP32", None)))
    (tmp_path / "b").write_bytes(ROW * 2)

    for items in (fixed, free):
        with pytest.raises(WorkerError, match="'b' has changed"):
            items.rows(0, 2)


def test_one_file_is_no_directory_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(ROW)

    assert "directory" in refusal(tmp_path / "a", X, form="files")


def test_a_model_of_single_numbers_reads_files_of_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(np.int64(-5).tobytes())

    assert open_items(tmp_path, "auto", (spec("n", "INT64"),)).rows(0, 1)["n"].tolist() == [-5]

"""Inputs with a default: they may be left out in every form, and what is left out is nothing else."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inference_protocol.messages import BatchTask
from inference_worker.batch.formats.lines import from_json_lines
from inference_worker.batch.formats.opening import open_items
from inference_worker.batch.formats.tables import read_csv
from inference_worker.batch.inputs import open_input
from inference_worker.batch.items import Items, refuse_non_finite
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_items_arrays import refusal, saved, spec

if TYPE_CHECKING:
    from pathlib import Path

# triton-inference-server/server#5489: an initializer that is an input too, so that it has a default.
IN = spec("in", "FP32", 2)
HIDDEN = TensorSpec("hidden", "FP32", np.dtype(np.float32), (2,), batch_axis=None, optional=True)
BIAS = replace(spec("bias", "FP32"), optional=True)
MODEL = (IN, HIDDEN, BIAS)
ROW = np.ones((3, 2), np.float32)


def fed(items: Items) -> set[str]:
    feeds = items.rows(0, len(items))
    refuse_non_finite(feeds, 0, MODEL)
    return set(feeds)


@pytest.mark.parametrize(
    "more", [{}, {"hidden": np.ones(2, np.float32)}, {"hidden": np.ones(2, np.float32), "bias": np.ones(3, np.float32)}]
)
def test_an_archive_may_leave_them_out(tmp_path: Path, more: dict[str, np.ndarray]) -> None:
    given: dict[str, Any] = {"in": ROW, **more}
    np.savez(tmp_path / "in.npz", **given)

    assert fed(open_items(tmp_path / "in.npz", "auto", MODEL)) == {"in", *more}


def test_an_array_without_a_name_feeds_the_input_that_has_no_default(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", ROW)

    assert fed(open_items(saved(tmp_path / "x.npy", ROW), "auto", MODEL)) == {"in"}
    assert fed(open_items(tmp_path / "in.npz", "auto", MODEL)) == {"in"}


def test_raw_files_feed_the_input_that_has_no_default(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(ROW[0].tobytes())

    assert fed(open_items(tmp_path, "auto", MODEL)) == {"in"}


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("[1, 2]\n[3, 4]", {"in"}),
        ('{"in": [1, 2]}', {"in"}),
        ('{"in": [1, 2], "hidden": [5, 6]}\n{"hidden": [5, 6], "in": [3, 4]}', {"in", "hidden"}),
        ('{"in": [1, 2], "bias": 1}', {"in", "bias"}),
    ],
)
def test_lines_may_leave_them_out(lines: str, names: set[str]) -> None:
    assert fed(from_json_lines(lines, MODEL)) == names


@pytest.mark.parametrize(
    ("header", "names"), [("a,b", {"in"}), ("in_0,in_1", {"in"}), ("in_0,bias,in_1", {"in", "bias"}), ("a,b,bias", {"in", "bias"})]
)
def test_a_table_may_leave_them_out(header: str, names: set[str]) -> None:
    line = ",".join("1" for _ in header.split(","))

    assert fed(read_csv(io.StringIO(f"{header}\n{line}\n"), MODEL)) == names


def test_a_line_that_leaves_out_what_another_gives_is_refused() -> None:
    with pytest.raises(WorkerError, match="line 2 has"):
        from_json_lines('{"in": [1, 2], "bias": 1}\n{"in": [1, 2]}', MODEL)


def test_what_has_no_default_may_not_be_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", bias=np.ones(3, np.float32))

    message = refusal(tmp_path / "in.npz", *MODEL)

    assert "wants in (optional: bias, hidden)" in message
    with pytest.raises(WorkerError, match="optional"):
        from_json_lines('{"bias": 1}', MODEL)


def test_a_name_of_none_is_no_input_that_was_left_out(tmp_path: Path) -> None:
    given: dict[str, Any] = {"in": ROW, "hiden": np.ones(2, np.float32)}
    np.savez(tmp_path / "in.npz", **given)

    assert "hiden" in refusal(tmp_path / "in.npz", *MODEL)


def test_items_that_nothing_counts_are_refused(tmp_path: Path) -> None:
    everything = (replace(IN, optional=True), HIDDEN)
    np.savez(tmp_path / "in.npz", hidden=np.ones(2, np.float32))

    assert "number of items" in refusal(tmp_path / "in.npz", *everything)
    with pytest.raises(WorkerError):
        open_input(BatchTask(input_data='{"hidden": [1, 2]}'), everything, tmp_path, tmp_path, lambda: False, ())

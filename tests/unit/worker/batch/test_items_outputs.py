"""Another job's output as input: all of its answers in their order, as they were committed, or a refusal that says why not."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_protocol.messages import BatchTask
from inference_worker.batch import encoding, identity
from inference_worker.batch.directory import Directory
from inference_worker.batch.formats import chunks
from inference_worker.batch.formats.opening import open_items
from inference_worker.batch.items import ArrayItems, Items
from inference_worker.batch.manifest import ATTEMPTS, SUMMARY, Header
from inference_worker.batch.output import Output
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from tests.outputs import chunk_file
from tests.unit.worker.batch.test_items_arrays import PAIR, X, refusal, spec
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from pathlib import Path

TEXT = spec("text", "BYTES")
WORDS = np.array(["größe", "", "three", "a much longer text than the others", "5", "six", "7"], dtype=object)
VALUES = np.arange(14, dtype=np.float32).reshape(7, 2)
FORMS = {"npz": encoding.npz, "jsonl": encoding.json_lines}


def written(directory: Path, columns: dict[str, np.ndarray], form: str, *, step: int = 3, finished: bool = True) -> Path:
    """What a job leaves behind."""
    total = len(next(iter(columns.values())))
    header = Header(job="team/before", uid="u", model_digest="sha256:aa", input="pvc://data/in.npy", total=total)
    with Output(Directory(directory), header, suffix=f".{form}") as output:
        for start in range(0, total, step):
            end = min(start + step, total)
            output.commit(start, end, FORMS[form]({name: array[start:end] for name, array in columns.items()}))
        if finished:
            output.finish()
    return directory


def all_rows(items: Items) -> dict[str, Any]:
    return {name: array.tolist() for name, array in items.rows(0, len(items)).items()}


@pytest.mark.parametrize("form", FORMS)
def test_one_jobs_answers_are_anothers_items_in_their_order(tmp_path: Path, form: str) -> None:
    items = open_items(written(tmp_path / "out", {"text": WORDS, "x": VALUES}, form), "auto", (X, TEXT))

    assert len(items) == 7 and items.lines == (form == "jsonl")
    assert all_rows(items) == {"x": VALUES.tolist(), "text": WORDS.tolist()}
    assert items.rows(0, 7)["text"].dtype == object and items.rows(0, 7)["x"].dtype == np.float32


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_read_by_range_in_any_order_and_again(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_KEPT_BYTES", 0)
    items = open_items(written(tmp_path / "out", {"x": VALUES}, form, step=2), "auto", (X,))

    for start, end in ((5, 7), (0, 1), (1, 6), (0, 7), (3, 4), (6, 7)):
        assert items.rows(start, end)["x"].tolist() == VALUES[start:end].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_outputs_that_the_model_has_no_input_for_are_left_out(tmp_path: Path, form: str) -> None:
    directory = written(tmp_path / "out", {"label": np.arange(7), "a": VALUES, "b": np.arange(7)}, form)

    assert all_rows(open_items(directory, "auto", PAIR)).keys() == {"a", "b"}


@pytest.mark.parametrize("form", FORMS)
def test_the_only_output_feeds_the_only_input_whatever_their_names(tmp_path: Path, form: str) -> None:
    assert all_rows(open_items(written(tmp_path / "out", {"embedding": VALUES}, form), "auto", (X,)))["x"] == VALUES.tolist()


@pytest.mark.parametrize("form", FORMS)
def test_outputs_that_do_not_feed_the_model_are_refused_with_both_names(tmp_path: Path, form: str) -> None:
    message = refusal(written(tmp_path / "out", {"label": np.arange(7), "score": np.arange(7)}, form), X)

    assert "label" in message and "score" in message and "x" in message


@pytest.mark.parametrize("column", ["item", "item_name"])
def test_the_names_of_items_are_no_input_and_stay_with_them(tmp_path: Path, column: str) -> None:
    names = np.array([f"{i}.raw" for i in range(7)])

    items = open_items(written(tmp_path / "out", {"y": VALUES, column: names}, "npz"), "auto", (X,))

    assert all_rows(items) == {"x": VALUES.tolist()} and list(items.names or ()) == names.tolist()


def test_an_input_that_is_called_item_is_fed(tmp_path: Path) -> None:
    named = {"item": WORDS, "item_name": np.array([f"{i}.raw" for i in range(7)])}

    items = open_items(written(tmp_path / "out", named, "npz"), "auto", (spec("item", "BYTES"),))

    assert all_rows(items) == {"item": WORDS.tolist()} and items.names is not None and items.names[0] == "0.raw"


def test_numbers_in_a_column_that_is_called_item_are_no_names(tmp_path: Path) -> None:
    items = open_items(written(tmp_path / "out", {"item": np.arange(7), "x": VALUES}, "npz"), "auto", (X,))

    assert items.names is None and all_rows(items).keys() == {"x"}


@pytest.mark.parametrize("form", FORMS)
def test_one_chunk_is_an_input_too(tmp_path: Path, form: str) -> None:
    written(tmp_path / "out", {"label": np.arange(7), "x": VALUES, "item": WORDS}, form)

    items = open_items(chunk_file(tmp_path / "out", 3), "auto", (X,))

    assert all_rows(items) == {"x": VALUES[3:6].tolist()} and items.lines == (form == "jsonl")


@pytest.mark.parametrize("form", FORMS)
def test_items_move_to_the_axis_where_the_input_counts_them(tmp_path: Path, form: str) -> None:
    """A recurrent state goes in as [3, N, 4], and comes out with the items first."""
    state = np.arange(7 * 3 * 4, dtype=np.float32).reshape(7, 3, 4)
    across = TensorSpec("h", "FP32", np.dtype(np.float32), (3, None, 4), batch_axis=1)

    items = open_items(written(tmp_path / "out", {"h": state}, form), "auto", (across,))

    assert items.rows(2, 5)["h"].tolist() == np.moveaxis(state, 0, 1)[:, 2:5].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_an_input_that_all_items_share_is_fed_if_they_agree(tmp_path: Path, form: str) -> None:
    rate = TensorSpec("rate", "INT64", np.dtype(np.int64), (), batch_axis=None)
    same = {"x": VALUES, "rate": np.full(7, 16000)}
    for name, column in (("in a chunk", np.arange(7)), ("between chunks", np.repeat([1, 2, 3], 3)[:7])):
        assert "share" in refusal(written(tmp_path / name, {"x": VALUES, "rate": column}, form), X, rate)

    assert all_rows(open_items(written(tmp_path / "out", same, form), "auto", (X, rate)))["rate"] == 16000


def test_nan_in_arrays_goes_through_and_in_lines_where_it_is_allowed(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[4, 1] = np.nan
    arrays, lines = (written(tmp_path / form, {"x": values}, form) for form in FORMS)

    assert np.isnan(open_items(arrays, "auto", (X,)).rows(4, 5)["x"][0, 1])
    assert np.isnan(open_items(lines, "auto", (X,), missing=True).rows(4, 5)["x"][0, 1])
    assert "allowNonFinite" in refusal(lines, X)


@pytest.mark.parametrize("datatype", ["BF16", "FP16", "FP64", "INT8", "BOOL", "BYTES"])
@pytest.mark.parametrize("form", FORMS)
def test_every_type_comes_back_as_it_was_written(tmp_path: Path, form: str, datatype: str) -> None:
    wanted = spec("v", datatype)
    column = WORDS if datatype == "BYTES" else np.array([0, 1, 1, 0, 1, 0, 1]).astype(wanted.dtype)

    rows = open_items(written(tmp_path / "out", {"v": column}, form), "auto", (wanted,)).rows(0, 7)["v"]

    assert rows.dtype == wanted.dtype and (rows == column).all()


@pytest.mark.parametrize("form", ["npz", "auto"])
def test_a_format_that_fits_the_chunks_may_be_named(tmp_path: Path, form: Any) -> None:
    directory = written(tmp_path / "out", {"x": VALUES}, "npz")

    assert len(open_items(directory, form, (X,))) == 7
    assert "input.format" in refusal(directory, X, form="jsonl")
    assert "input.format" in refusal(directory, X, form="csv")


@pytest.mark.parametrize("form", FORMS)
def test_an_output_whose_job_has_not_ended_is_refused_with_that_job(tmp_path: Path, form: str) -> None:
    assert "team/before" in refusal(written(tmp_path / "out", {"x": VALUES}, form, finished=False), X)


def edited(directory: Path, **changes: Any) -> None:
    summary = json.loads((directory / SUMMARY).read_text())
    (directory / SUMMARY).write_text(json.dumps({**summary, **changes}))


def damage(directory: Path, how: str) -> None:
    summary = json.loads((directory / SUMMARY).read_text())
    first, second = (directory / chunk["file"] for chunk in summary["chunks"][:2])
    if how == "a flipped byte":
        second.write_bytes(second.read_bytes()[:-1] + b"\1")
    elif how == "another chunk's bytes":
        second.write_bytes(first.read_bytes())
    elif how == "a missing file":
        second.unlink()
    elif how == "a link":
        second.rename(directory / "elsewhere")
        second.symlink_to("elsewhere")
    elif how == "a gap":
        edited(directory, chunks=[summary["chunks"][0], *summary["chunks"][2:]])
    elif how == "no end":
        edited(directory, chunks=summary["chunks"][:-1])
    elif how == "another order":
        edited(directory, chunks=summary["chunks"][::-1])
    elif how == "a path":
        edited(directory, chunks=[{**chunk, "file": f"../out/{chunk['file']}"} for chunk in summary["chunks"]])
    elif how == "no chunks":
        edited(directory, chunks=[], total=0)
    elif how == "other counts":
        for chunk, (start, end) in zip(summary["chunks"], ((0, 2), (2, 6), (6, 7)), strict=True):
            chunk.update(start=start, end=end)
        edited(directory, chunks=summary["chunks"])


@pytest.mark.parametrize(
    "how",
    [
        "a flipped byte",
        "another chunk's bytes",
        "a missing file",
        "a link",
        "a gap",
        "no end",
        "another order",
        "a path",
        "no chunks",
        "other counts",
    ],
)
def test_an_output_that_is_not_whole_is_refused(tmp_path: Path, how: str) -> None:
    directory = written(tmp_path / "out", {"x": VALUES}, "npz")
    damage(directory, how)

    refusal(directory, X)


def test_a_chunk_that_changes_while_the_job_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_KEPT_BYTES", 0)
    directory = written(tmp_path / "out", {"x": VALUES}, "npz")
    items = open_items(directory, "auto", (X,))
    chunk_file(directory, 3).write_bytes(encoding.npz({"x": VALUES[:3]}))

    with pytest.raises(WorkerError, match="run its job again"):
        items.rows(0, 7)


def test_a_range_reads_no_chunk_beside_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_KEPT_BYTES", 0)
    items = open_items(written(tmp_path / "out", {"x": VALUES}, "npz"), "auto", (X,))
    items.rows(6, 7)
    for start in (0, 6):
        chunk_file(tmp_path / "out", start).unlink()

    assert items.rows(3, 6)["x"].tolist() == VALUES[3:6].tolist()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"job": "a"}', b"null"])
def test_a_directory_with_a_manifest_of_somebody_else_is_one_of_raw_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SUMMARY).write_bytes(content)
    (tmp_path / ATTEMPTS).mkdir()
    (tmp_path / ATTEMPTS / "00000000-1.jsonl").write_bytes(content + b"\n")

    assert "bytes" in refusal(tmp_path, X)


def test_the_input_is_another_one_once_its_job_has_run_again(tmp_path: Path) -> None:
    """Otherwise a resumed attempt would join answers to two different inputs."""
    task = BatchTask(input_uri="pvc://data/before", output_uri="pvc://data/out")
    directory = written(tmp_path / "data" / "before", {"x": VALUES}, "npz")
    first = identity.content_of(task, directory)
    edited(directory, uid="another")

    assert first.startswith("sha256:") and identity.content_of(task, directory) != first


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4).map(lambda t: t.rstrip("\0")), min_size=1, max_size=9),
    st.integers(1, 4),
    st.sampled_from(list(FORMS)),
    st.integers(0, 8),
    st.integers(1, 9),
)
@settings(STEADY, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_range_of_any_answers_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], step: int, form: str, start: int, length: int
) -> None:
    column = np.array(words, dtype=object)
    items = open_items(written(tmp_path_factory.mktemp("out"), {"text": column}, form, step=step), "auto", (TEXT,))
    start = min(start, len(words) - 1)
    end = min(start + length, len(words))

    assert items.rows(start, end)["text"].tolist() == words[start:end]


def crafted(directory: Path, column: np.ndarray, *, count: int, name: str = "x") -> Path:
    """An output whose chunks, of one item each, are compressed as no worker's are."""
    arrays: dict[str, Any] = {"x": np.zeros((1, 2), np.float32), name: column}
    header = Header(job="team/before", uid="u", model_digest="sha256:aa", input="i", total=count)
    with Output(Directory(directory), header, suffix=".npz") as output:
        for start in range(count):
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)
            output.commit(start, start + 1, buffer.getvalue())
        output.finish()
    return directory


def test_small_chunks_do_not_keep_large_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_KEPT_BYTES", 1 << 20)
    directory = crafted(tmp_path / "out", np.zeros((1, 100_000), np.float32), count=4)

    items = chunks.open_output(directory, (spec("x", "FP32", None),))

    assert len(items._kept) == 2 and items.rows(0, 4)["x"].shape == (4, 100_000)


def test_a_chunk_that_inflates_as_none_of_ours_does_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_INFLATED_BYTES", 1 << 16)
    directory = crafted(tmp_path / "out", np.zeros((1, 100_000), np.float32), count=1)

    for path in (directory, chunk_file(directory, 0)):
        message = refusal(path, spec("x", "FP32", None))
        assert "inflates" in message and "chunk-0000000000-" in message


def test_a_chunk_of_holes_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = written(tmp_path / "out", {"x": VALUES}, "npz", step=7)
    monkeypatch.setattr(chunks, "_LARGEST_BYTES", 1 << 20)
    with chunk_file(directory, 0).open("r+b") as file:
        file.truncate((1 << 20) + 1)

    for path in (directory, chunk_file(directory, 0)):
        assert "1048576" in refusal(path, X)


def test_names_that_fill_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_NAMES_BYTES", 1000)
    directory = crafted(tmp_path / "out", np.array(["a" * 300]), count=4, name="item")

    assert "leave the column out" in refusal(directory, X)


def test_rows_count_with_their_texts_and_with_what_they_are_views_of() -> None:
    texts = ArrayItems({"t": np.array(["a" * 5000], dtype=object)}, {"t": 0})
    view = ArrayItems({"x": np.zeros((1000, 10))[:1]}, {"x": 0})

    assert texts.nbytes > 5000 and view.nbytes == 80_000

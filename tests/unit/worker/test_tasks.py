"""Batch tasks in one process: each row's answer is what bare ONNX Runtime gives for that row, however rows are batched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_protocol.messages import BatchTask, ModelSource, Progress, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker.batch import directory, pipeline
from inference_worker.batch import items as reading
from inference_worker.batch import task as module
from inference_worker.batch.task import Task
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.rows import Layout
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.warmup import Warm
from tests.process import models
from tests.process.harness import answers_in, spans
from tests.unit.worker.conftest import STEADY, answering, saying
from tests.unit.worker.scripted_engines import ALONE, FLAT, ROWS, Formula, doubled, spec

if TYPE_CHECKING:
    from inference_worker.engines.engine import Engine

CPU = ("CPUExecutionProvider",)
OUT = "pvc://data/out"


@cache
def engine_of(data: bytes) -> OnnxEngine:
    return OnnxEngine(data, providers=CPU, threads=1)


def a_task(
    root: Path,
    data: bytes | Engine,
    *,
    batch: int = 4,
    attempt: int = 1,
    uid: str = "uid",
    digest: str = "sha256:m",
    warm: Warm | None = None,
    **task: Any,
) -> Task:
    source = ModelSource(name="net", version="1", uri="pvc://data/m.onnx")
    config = WorkerConfig("team", "job", uid, attempt, source, CPU, batch_size=batch)
    engine = engine_of(data) if isinstance(data, bytes) else data
    return Task(config, BatchTask(**task), engine, warm, digest=digest, root=root)


def refusal(task: Task) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        task.run()
    return caught.value


def bare(data: bytes, **feeds: np.ndarray) -> list[np.ndarray]:
    """ONNX Runtime without anything of ours around it, row by row."""
    session = onnxruntime.InferenceSession(data, providers=list(CPU))
    count = len(next(iter(feeds.values())))
    rows = [session.run(None, {k: v[i : i + 1] for k, v in feeds.items()}) for i in range(count)]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def some_rows(count: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@given(count=st.integers(1, 40), batch=st.integers(1, 17), fixed=st.none() | st.integers(1, 9), seed=st.integers(0, 9))
@settings(STEADY, max_examples=60)
def test_every_row_equals_bare_onnx_runtime_for_any_sizes(
    tmp_path_factory: pytest.TempPathFactory, count: int, batch: int, fixed: int | None, seed: int
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "data").mkdir()
    x = some_rows(count, seed=seed)
    np.save(root / "data" / "in.npy", x)

    task = a_task(root, models.matmul(rows=fixed), batch=batch, input_uri="pvc://data/in.npy", output_uri=OUT)
    task.run()

    (truth,) = bare(models.matmul(), x=x)
    assert np.allclose(answers_in(root / "data" / "out")["y"], truth, rtol=1e-5, atol=1e-6)
    assert task.finished and task.progress is not None
    assert (task.progress.total, task.progress.completed, task.progress.resumed) == (count, count, 0)
    assert task.sketch.total == count


@pytest.mark.parametrize(("items", "limit"), [(10, 9), (1, 0)])
def test_more_items_than_a_firm_deadline_allows_are_refused_before_one_is_run(
    root: Path, volume: Path, items: int, limit: int
) -> None:
    np.save(volume / "in.npy", some_rows(items))
    deadline = "2026-04-02T12:00:00Z"
    for target in (OUT, None):
        task = a_task(root, models.matmul(), input_uri="pvc://data/in.npy", items_limit=limit, deadline=deadline, output_uri=target)
        fault = refusal(task)

        assert (fault.reason, fault.permanent) == (WorkerReason.TOO_MANY_ITEMS, True)
        assert f"{items} items of the input" in fault.message and f"{limit} can be by the deadline {deadline}" in fault.message
        assert "set a later deadline" in fault.message and "Soft" in fault.message
        assert task.progress == Progress(total=items, completed=0) and not task.sketch.total


def test_what_an_earlier_attempt_has_answered_does_not_count_against_a_firm_deadline(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", some_rows(10))
    a_task(root, models.matmul(), input_uri="pvc://data/in.npy", output_uri=OUT).run()

    again = a_task(root, models.matmul(), attempt=2, input_uri="pvc://data/in.npy", output_uri=OUT, items_limit=0)
    again.run()

    assert again.finished


def test_each_batch_size_gives_every_row_when_sizes_change_in_between(root: Path, volume: Path) -> None:
    for number, count in enumerate((10, 2, 10)):
        x = some_rows(count, seed=number)
        np.save(volume / "in.npy", x)
        a_task(root, models.matmul(), batch=10, input_uri="pvc://data/in.npy", output_uri=f"{OUT}-{number}").run()
        assert np.allclose(answers_in(volume / f"out-{number}")["y"], bare(models.matmul(), x=x)[0], rtol=1e-5)


TESTS = Path(__file__).resolve().parents[2]
FREE = Warm(ROWS, LatencyProfile(FLAT), None, inline=False, threads=1)


@pytest.mark.parametrize(("fixed", "expected"), [(None, [4, 4, 2]), (3, [3, 3, 3, 3])], ids=["free", "fixed"])
def test_no_run_has_more_rows_than_allowed_and_a_fixed_model_always_its_own(
    root: Path, volume: Path, fixed: int | None, expected: list[int]
) -> None:
    np.save(volume / "in.npy", some_rows(10, 2))
    engine = Formula(doubled, rows=fixed)

    a_task(root, engine, batch=4, warm=FREE, input_uri="pvc://data/in.npy", output_uri=OUT).run()

    assert engine.sizes == expected


def test_batches_have_the_jobs_own_size_even_where_a_smaller_one_is_quicker(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", some_rows(6, 2))
    engine = Formula(doubled)
    warm = Warm(ROWS, LatencyProfile({1: 1.0, 2: 1.1, 4: 9.0}), None, inline=False, threads=1)

    a_task(root, engine, batch=4, warm=warm, input_uri="pvc://data/in.npy", output_uri=OUT).run()

    assert engine.sizes == [4, 2]


def softmax_over_items(x: np.ndarray) -> np.ndarray:
    return x / x.sum(axis=0, keepdims=True)


@pytest.mark.parametrize("warmed", [True, False])
def test_a_model_that_mixes_its_rows_is_run_item_by_item(root: Path, volume: Path, *, warmed: bool) -> None:
    np.save(volume / "in.npy", np.arange(1, 9, dtype=np.float32).reshape(4, 2))
    engine = Formula(softmax_over_items)
    warm = Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1) if warmed else None

    a_task(root, engine, batch=4, warm=warm, input_uri="pvc://data/in.npy", output_uri=OUT).run()

    # Alone, each is all there is.
    assert np.array_equal(answers_in(volume / "out")["y"], np.ones((4, 2)))
    assert engine.sizes[-4:] == [1, 1, 1, 1]


@pytest.mark.parametrize("warmed", [True, False])
def test_items_may_lie_on_another_axis_on_either_side(root: Path, volume: Path, *, warmed: bool) -> None:
    """A recurrent state is [layers, items, width]; its answer here is [width, layers, items]."""
    states = np.arange(2 * 7 * 3, dtype=np.float32).reshape(2, 7, 3)
    np.save(volume / "in.npy", states)
    engine = Formula(lambda h: np.moveaxis(h, 2, 0) * 2, inputs=(spec("h", (2, None, 3), 1),), outputs=(spec("y", (3, 2, None)),))
    warm = Warm(Layout({"h": 1}, {"y": 2}), LatencyProfile(FLAT), None, inline=False, threads=1) if warmed else None

    a_task(root, engine, batch=3, warm=warm, input_uri="pvc://data/in.npy", output_uri=OUT).run()

    assert np.array_equal(answers_in(volume / "out")["y"], np.moveaxis(states, 1, 0).transpose(0, 2, 1) * 2)
    assert engine.sizes[-3:] == [3, 3, 1]


def test_two_inputs_of_a_fixed_model_are_padded_alike(root: Path, volume: Path) -> None:
    a, b = some_rows(7, 2), some_rows(7, 2, seed=1)
    np.savez(volume / "in.npz", a=a, b=b)

    a_task(root, models.add(rows=5), input_uri="pvc://data/in.npz", output_uri=OUT).run()

    assert np.array_equal(answers_in(volume / "out")["total"], a + b)


def test_inline_lines_are_answered_inline(root: Path) -> None:
    text = a_task(root, models.label(), batch=2, input_data="[0, 1, 0, 0]\n[0, 0, 0, 1]\n[9, 0, 0, 0]\n").run()

    assert text is not None
    assert [json.loads(line) for line in text.splitlines()] == [{"class": 1}, {"class": 3}, {"class": 0}]


def test_inline_texts_come_back_as_texts(root: Path) -> None:
    text = a_task(root, models.named_label(), input_data="[0, 1, 0, 0]\n[0, 0, 0, 1]").run()

    assert text is not None
    assert [json.loads(line)["text"] for line in text.splitlines()] == ["one", "drei ✓"]


def test_answers_too_long_for_the_status_are_refused_with_the_way_out(root: Path) -> None:
    error = refusal(a_task(root, models.identity(), input_data="[1, 2]\n" * 500))

    assert error.reason is WorkerReason.INPUT_INVALID and error.permanent and "output.uri" in error.message


def test_lines_in_give_lines_out_with_one_object_for_each_item(root: Path, volume: Path) -> None:
    (volume / "in.jsonl").write_text("".join(json.dumps({"x": [i, -i]}) + "\n" for i in range(10)))

    a_task(root, models.two_outputs(), batch=3, input_uri="pvc://data/in.jsonl", output_uri=OUT).run()

    lines = [json.loads(line) for path in sorted((volume / "out").glob("chunk-*")) for line in path.read_text().splitlines()]
    assert lines == [{"same": [i, -i], "negated": [-i, i]} for i in range(10)]


def test_files_in_give_answers_with_the_files_names(root: Path, volume: Path) -> None:
    (volume / "in").mkdir()
    for i in range(5):
        (volume / "in" / f"{i}.raw").write_bytes(np.full(2, i, np.float32).tobytes())

    a_task(root, models.identity(), batch=2, input_uri="pvc://data/in", output_uri=OUT).run()

    found = answers_in(volume / "out")
    assert found["item"].tolist() == [f"{i}.raw" for i in range(5)] and found["y"].tolist() == [[i, i] for i in range(5)]


@pytest.mark.parametrize("name", ["item", "file", "allow_pickle"])
def test_an_output_may_have_any_name(root: Path, volume: Path, name: str) -> None:
    (volume / "in").mkdir()
    (volume / "in" / "a").write_bytes(np.ones(2, np.float32).tobytes())

    a_task(root, models.renamed_output(name), input_uri="pvc://data/in", output_uri=OUT).run()

    assert answers_in(volume / "out")[name].tolist() == [[1, 1]]


def test_a_model_with_string_labels_answers_an_npy_input(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", np.eye(4, dtype=np.float32))

    a_task(root, models.named_label(), input_uri="pvc://data/in.npy", output_uri=OUT).run()

    assert answers_in(volume / "out")["text"].tolist() == ["zero", "one", "two", "drei ✓"]


def test_whole_numbers_stay_whole_in_the_answers(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", np.eye(4, dtype=np.float32))

    a_task(root, models.label(), input_uri="pvc://data/in.npy", output_uri=OUT).run()

    found = answers_in(volume / "out")["class"]
    assert found.dtype == np.int64 and found.tolist() == [0, 1, 2, 3]


def test_half_precision_stays_half_precision(root: Path, volume: Path) -> None:
    x = some_rows(3, 2).astype(np.float16)
    np.save(volume / "in.npy", x)

    a_task(root, models.identity(models.HALF), input_uri="pvc://data/in.npy", output_uri=OUT).run()

    assert np.array_equal(answers_in(volume / "out")["y"], x)


@pytest.mark.parametrize("text", ["plain", "größe ✓", "", "b'x'", "a\0b"])
def test_texts_go_through_a_batch_unchanged(root: Path, text: str) -> None:
    line = json.dumps({"x": text}, ensure_ascii=False)

    answer = a_task(root, models.identity(models.STRING, ["N"]), input_data=f"{line}\n{line}").run()

    assert answer is not None and [json.loads(row) for row in answer.splitlines()] == [{"y": text}] * 2


@pytest.mark.parametrize("name", ["column_sums", "grand_total"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_model_whose_answers_have_no_rows_is_run_item_by_item(root: Path, volume: Path, name: str, batch: int) -> None:
    x = some_rows(6, 2)
    np.save(volume / "in.npy", x)
    data = getattr(models, name)()

    a_task(root, data, batch=batch, input_uri="pvc://data/in.npy", output_uri=OUT).run()

    (answers,) = answers_in(volume / "out").values()
    assert np.allclose(answers, x if name == "column_sums" else x.sum(axis=1), rtol=1e-6)


def test_an_answer_without_a_row_for_each_of_so_many_items_is_refused_in_words(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", some_rows(6, 2))
    engine = Formula(lambda x: x.sum(axis=0), outputs=(spec("y", (2,), None),), rows=3)

    error = refusal(a_task(root, engine, input_uri="pvc://data/in.npy", output_uri=OUT))

    assert error.permanent and "no row per item" in error.message and "serve" in error.message


def test_a_scalar_input_is_shared_by_all_items(root: Path, volume: Path) -> None:
    x = some_rows(5, 2)
    np.savez(volume / "in.npz", x=x, factor=np.float32(3))

    a_task(root, models.scaled(), batch=2, input_uri="pvc://data/in.npz", output_uri=OUT).run()
    lines = a_task(root, models.scaled(), input_data='{"x": [1, 2], "factor": 3}\n{"factor": 3.0, "x": [3, 4]}').run()

    assert np.allclose(answers_in(volume / "out")["y"], x * 3)
    assert [json.loads(line)["y"] for line in (lines or "").splitlines()] == [[3, 6], [9, 12]]


def test_lines_that_disagree_about_what_they_share_are_refused(root: Path) -> None:
    error = refusal(a_task(root, models.scaled(), input_data='{"x": [1, 2], "factor": 3}\n{"x": [1, 2], "factor": 4}'))

    assert error.reason is WorkerReason.INPUT_INVALID and "'factor'" in error.message and "shared" in error.message


def test_a_model_whose_inputs_count_nothing_is_run_over_whole_requests(root: Path, volume: Path) -> None:
    engine = Formula(lambda factor: {"y": factor * 2}, inputs=(spec("factor", (), None),), outputs=(spec("y", (), None),))
    square = (TESTS / "models" / "square.onnx").read_bytes()
    squares = np.random.default_rng(1).random((3, 4, 4)).astype(np.float32)
    np.save(volume / "in.npy", squares)

    lines = a_task(root, engine, input_data="3\n4").run()
    a_task(root, square, batch=2, input_uri="pvc://data/in.npy", output_uri=OUT).run()

    assert [json.loads(line)["y"] for line in (lines or "").splitlines()] == [6, 8]
    assert np.allclose(answers_in(volume / "out")["y"], np.stack([each @ each for each in squares]), rtol=1e-5)


def test_a_shared_scalar_stays_a_scalar(root: Path, volume: Path) -> None:
    x = some_rows(5, 3)
    np.savez(volume / "in.npz", x=x, k=np.int64(2))

    a_task(root, models.column(), batch=2, input_uri="pvc://data/in.npz", output_uri=OUT).run()

    assert np.array_equal(answers_in(volume / "out")["y"], x[:, 2])


def test_a_shared_value_that_is_not_finite_is_refused_by_name(root: Path) -> None:
    error = refusal(a_task(root, models.scaled(), input_data='{"x": [1, 2], "factor": Infinity}'))

    assert error.reason is WorkerReason.INPUT_INVALID and "'factor'" in error.message


def test_an_item_on_another_axis_that_is_not_finite_is_named_by_its_number(root: Path, volume: Path) -> None:
    states = np.zeros((2, 7, 3), np.float32)
    states[1, 5, 0] = np.nan
    np.save(volume / "in.npy", states)
    engine = Formula(lambda h: np.moveaxis(h, 1, 0), inputs=(spec("h", (2, None, 3), 1),), outputs=(spec("y", (None, 2, 3)),))

    assert "item 5 " in refusal(a_task(root, engine, batch=7, input_uri="pvc://data/in.npy", output_uri=OUT)).message


@pytest.mark.parametrize("bad", ["NaN", "Infinity"])
def test_numbers_that_are_not_finite_stop_the_job_unless_they_are_allowed(root: Path, bad: str) -> None:
    lines = f"[1, 2]\n[3, {bad}]\n"

    error = refusal(a_task(root, models.two_outputs(), batch=1, input_data=lines))
    assert error.reason is WorkerReason.INPUT_INVALID and "item 1 " in error.message

    assert a_task(root, models.two_outputs(), batch=1, input_data=lines, allow_non_finite=True).run() is not None


@pytest.mark.parametrize("place", ["inline", "lines"])
def test_answers_that_are_not_finite_are_still_json(root: Path, volume: Path, place: str) -> None:
    lines = "[-1, 4]\n"
    if place == "inline":
        text = a_task(root, models.square_root(), input_data=lines).run() or ""
    else:
        (volume / "in.jsonl").write_text(lines)
        a_task(root, models.square_root(), input_uri="pvc://data/in.jsonl", output_uri=OUT).run()
        text = next((volume / "out").glob("chunk-*")).read_text()

    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_row_that_the_model_refuses_is_the_inputs_fault(root: Path) -> None:
    error = refusal(a_task(root, models.gather(), batch=1, input_data="1\n2\n99\n"))

    assert error.reason is WorkerReason.INPUT_INVALID and "item 2" in error.message


@pytest.mark.parametrize("suffix", [".npy", ".jsonl"])
def test_an_input_on_a_volume_is_checked_against_its_digest(root: Path, volume: Path, suffix: str) -> None:
    if suffix == ".npy":
        np.save(volume / "in.npy", some_rows(3, 2))
    else:
        (volume / "in.jsonl").write_text("[1, 2]\n")
    task = a_task(root, models.identity(), input_uri=f"pvc://data/in{suffix}", input_digest="sha256:" + "0" * 64, output_uri=OUT)

    assert refusal(task).reason is WorkerReason.INPUT_INVALID


def test_answers_in_the_workers_own_file_system_are_refused(root: Path, volume: Path, tmp_path: Path) -> None:
    np.save(volume / "in.npy", some_rows(3, 2))
    task = a_task(root, models.identity(), input_uri="pvc://data/in.npy", output_uri=f"file://{tmp_path}/out")

    assert refusal(task).reason is WorkerReason.URI_FORBIDDEN


def test_answers_into_the_directory_of_the_input_are_refused_at_once(root: Path, volume: Path) -> None:
    (volume / "in").mkdir()
    (volume / "in" / "a").write_bytes(np.ones(2, np.float32).tobytes())

    refusal(a_task(root, models.identity(), input_uri="pvc://data/in", output_uri="pvc://data/in"))


def test_answers_do_not_go_over_http(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", some_rows(3, 2))
    error = refusal(a_task(root, models.identity(), input_uri="pvc://data/in.npy", output_uri="https://host/out"))

    assert error.reason is WorkerReason.URI_FORBIDDEN and "pvc://" in error.message


def test_inline_lines_that_were_edited_do_not_replace_finished_answers(root: Path, volume: Path) -> None:
    a_task(root, models.identity(), output_uri=OUT, input_data="[1, 1]\n[2, 2]\n").run()

    with pytest.raises(WorkerError) as caught:
        a_task(root, models.identity(), attempt=2, output_uri=OUT, input_data="[3, 3]\n[4, 4]\n").run()

    assert caught.value.reason is WorkerReason.OUTPUT_CONFLICT
    (chunk,) = (volume / "out").glob("chunk-*")
    assert [json.loads(line)["y"] for line in chunk.read_text().splitlines()] == [[1, 1], [2, 2]]


def test_a_stopped_task_commits_what_it_has_and_a_later_attempt_goes_on(
    root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping: list[Task] = []
    checks = reading.refuse_non_finite

    def stop_at_the_first_item(*feeds: Any) -> None:
        checks(*feeds)
        for task in stopping:
            task.stop()

    monkeypatch.setattr(module, "refuse_non_finite", stop_at_the_first_item)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    x = some_rows(50)
    np.save(volume / "in.npy", x)

    for attempt in range(1, 60):
        task = a_task(root, models.matmul(), batch=1, attempt=attempt, input_uri="pvc://data/in.npy", output_uri=OUT)
        stopping[:] = [task] if attempt != 8 else []
        task.run()
        if task.finished:
            break
        assert not (volume / "out" / "manifest.json").exists()

    assert attempt == 8 and task.progress is not None
    assert (task.progress.resumed, task.progress.completed) == (7, 50)
    assert np.allclose(answers_in(volume / "out")["y"], bare(models.matmul(), x=x)[0], rtol=1e-5)
    assert list(spans(volume / "out")) == [*((i, i + 1) for i in range(7)), (7, 50)]


def test_a_task_that_is_stopped_before_it_begins_runs_nothing(root: Path, volume: Path) -> None:
    np.save(volume / "in.npy", some_rows(5, 2))
    engine = Formula(doubled)
    task = a_task(root, engine, warm=FREE, input_uri="pvc://data/in.npy", output_uri=OUT)

    task.stop()
    task.run()

    assert engine.sizes == [] and not task.finished


def test_commits_follow_the_clock_and_the_bytes(root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(volume / "in.npy", some_rows(9))
    monkeypatch.setattr(pipeline, "_SEGMENT_BATCHES", 1)
    monkeypatch.setattr(module, "_COMMIT_BYTES", 3 * 4 * 2)

    a_task(root, models.matmul(), batch=1, input_uri="pvc://data/in.npy", output_uri=OUT).run()
    assert list(spans(volume / "out")) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 9)]

    monkeypatch.setattr(directory, "_COMMIT_SECONDS", 0.0)
    a_task(root, models.matmul(), batch=4, input_uri="pvc://data/in.npy", output_uri=f"{OUT}-2").run()
    assert list(spans(volume / "out-2")) == [(0, 4), (4, 8), (8, 9)]


def test_the_task_names_no_input(root: Path) -> None:
    assert refusal(a_task(root, models.identity())).reason is WorkerReason.INPUT_INVALID


@pytest.mark.parametrize("form", ["npy", "npz", "files"])
def test_inline_lines_with_another_format_named_are_answered_or_refused(root: Path, form: Any) -> None:
    try:
        text = a_task(root, models.identity(), input_data="[1, 2]", input_format=form).run()
    except WorkerError as error:
        assert error.reason is WorkerReason.INPUT_INVALID  # noqa: PT017
    else:
        assert json.loads(text or "") == {"y": [1, 2]}


LINES = b"[1, 2]\n[3, 4]\n"


@pytest.mark.usefixtures("loopback_allowed")
def test_an_input_over_http_is_read_and_checked(root: Path) -> None:
    digest = f"sha256:{hashlib.sha256(LINES).hexdigest()}"
    serve = saying(f"HTTP/1.1 200 OK\nContent-Length: {len(LINES)}", LINES)
    with answering(serve, serve) as (port, _):
        uri = f"http://files.test:{port}/in.jsonl"
        assert (a_task(root, models.identity(), input_uri=uri, input_digest=digest).run() or "").count("\n") == 2

        error = refusal(a_task(root, models.identity(), input_uri=uri, input_digest="sha256:" + "0" * 64))
    assert error.reason is WorkerReason.INPUT_INVALID


@pytest.mark.usefixtures("loopback_allowed")
def test_an_input_with_a_signed_address_is_still_lines(root: Path) -> None:
    with answering(saying(f"HTTP/1.1 200 OK\nContent-Length: {len(LINES)}", LINES)) as (port, _):
        text = a_task(root, models.identity(), input_uri=f"http://files.test:{port}/in.jsonl?signature=x").run()

    assert (text or "").count("\n") == 2


@pytest.mark.usefixtures("loopback_allowed")
@pytest.mark.parametrize("body", [LINES, b"no lines"], ids=["good", "bad"])
def test_nothing_that_was_fetched_is_left_behind(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    with answering(saying(f"HTTP/1.1 200 OK\nContent-Length: {len(body)}", body)) as (port, _), contextlib.suppress(WorkerError):
        a_task(root, models.identity(), input_uri=f"http://files.test:{port}/in.jsonl").run()

    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("loopback_allowed")
def test_a_task_that_is_told_to_stop_while_it_fetches_ends(root: Path) -> None:
    def hang(connection: socket.socket, _: bytes) -> None:
        threading.Timer(0.1, task.stop).start()
        connection.settimeout(60)
        connection.recv(1)

    with answering(hang) as (port, _):
        task = a_task(root, models.identity(), input_uri=f"http://files.test:{port}/in.jsonl")
        assert task.run() is None

    assert not task.finished


@pytest.mark.usefixtures("loopback_allowed")
def test_an_input_that_can_not_be_reached_is_not_called_a_model(root: Path) -> None:
    with answering(saying("HTTP/1.1 503 Busy\nContent-Length: 0")) as (port, _):
        error = refusal(a_task(root, models.identity(), input_uri=f"http://files.test:{port}/in.jsonl"))

    assert "Model" not in error.reason

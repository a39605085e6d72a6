"""Items and requests of different lengths, as texts and sounds are: neighbours of one length share runs, and no answer is lost."""

from __future__ import annotations

import io
import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from onnx import helper

from inference_protocol.messages import BatchTask
from inference_protocol.reasons import WorkerReason
from tests.outputs import chunk_file
from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import a_config, answers_in, committed, spans
from tests.process.patched import DIE_BEFORE_SYNC
from tests.process.wire import post

if TYPE_CHECKING:
    from inference_protocol.messages import WorkerConfig
    from tests.process.harness import Place, Worker

PAGE = Path(__file__).parents[3] / "docs" / "tasks" / "read-an-output.md"
# A chunk for each batch, so that a small job has several.
EACH = {"inference_worker.batch.directory:_COMMIT_SECONDS": 0.0, "inference_worker.batch.pipeline:_SEGMENT_BATCHES": 1}
LENGTHS = [3, 3, 3, 3, 3, 1, 1, 4, 0, 2, 2, 2, 2, 2, 2, 1, 5, 5]
ITEMS = [[float(i)] * length for i, length in enumerate(LENGTHS)]


def negated() -> bytes:
    """x [N, T] -> y [N, T]: any number of items of any length."""
    shape: models.Shape = ["N", "T"]
    return models.model(
        [helper.make_node("Neg", ["x"], ["y"])],
        [models.tensor("x", models.FLOAT, shape)],
        [models.tensor("y", models.FLOAT, shape)],
    )


def positions() -> bytes:
    """x [1, T] -> y [2, K]: where it is not zero. As a detector's, answers to items of one shape have as many columns as there are finds."""
    return models.model(
        [helper.make_node("NonZero", ["x"], ["y"])],
        [models.tensor("x", models.FLOAT, [1, "T"])],
        [models.tensor("y", models.INT64, [2, "K"])],
    )


def flat(items: list[list[float]]) -> list[float]:
    return [value for item in items for value in item]


def data_of(form: str, items: list[list[float]]) -> bytes:
    if form == "jsonl":
        return "\n".join(map(json.dumps, items)).encode()
    file = io.BytesIO()
    arrays: dict[str, Any] = {"x": np.array(flat(items), np.float32), "x.shapes": np.array([[len(item)] for item in items])}
    np.savez(file, **arrays)
    return file.getvalue()


def read_output(folder: Path) -> list[Any]:
    """Each answer in `y`; those in arrays are read by the code on the page for users."""
    chunks = [folder / chunk["file"] for chunk in json.loads((folder / "manifest.json").read_bytes())["chunks"]]
    if chunks[0].suffix == ".jsonl":
        return [json.loads(line)["y"] for path in chunks for line in path.read_text().splitlines()]
    known: dict[str, Any] = {}
    for block in re.findall(r"```python\n((?:import|def).*?)```", PAGE.read_text(), re.DOTALL):
        # What is done with the functions is done with the page's own directory.
        exec(block.partition("\nanswers = ")[0].partition("\nfolder = ")[0], known)
    return [item.tolist() for item in known["read_items"](str(folder), "y")]


def a_job(place: Place, model: bytes, uri: str, out: str, **changes: Any) -> WorkerConfig:
    task = BatchTask(input_uri=uri, output_uri=f"pvc://data/{out}")
    return a_config(place.put(f"{out}.onnx", model), **{"task": task, "batch_size": 4, "job": out, "uid": out, **changes})


def done(place: Place, *args: Any, **patches: Any) -> Path:
    ended = place.run(a_job(place, *args), patches={**EACH, **patches})
    assert ended.said.outcome == "Succeeded", ended.said.message
    return place.claim / str(args[2])


@pytest.mark.parametrize("whole", [False, True], ids=["a chunk a batch", "one chunk"])
@pytest.mark.parametrize("form", ["jsonl", "npz"])
def test_items_of_different_lengths_go_through_two_jobs_in_their_order(place: Place, form: str, *, whole: bool) -> None:
    patches = {name: value for name, value in EACH.items() if not whole}
    uri = place.put(f"in.{form}", data_of(form, ITEMS))
    for source, out in ((uri, "first"), ("pvc://data/first", "second")):
        ended = place.run(a_job(place, negated(), source, out), patches=patches)
        assert ended.said.outcome == "Succeeded", ended.said.message

    first = place.claim / "first"
    assert read_output(first) == [[-value for value in item] for item in ITEMS]
    assert read_output(place.claim / "second") == ITEMS
    if not whole:
        # Runs of four at most, and none of two lengths.
        assert list(spans(first)) == [(0, 4), (4, 5), (5, 7), (7, 8), (8, 9), (9, 13), (13, 15), (15, 16), (16, 18)]


def test_one_chunk_is_an_input_under_another_name_too(place: Place) -> None:
    first = done(
        place,
        negated(),
        place.put("in.npz", data_of("npz", ITEMS)),
        "first",
        **{"inference_worker.batch.directory:_COMMIT_SECONDS": 60.0},
    )
    place.put("renamed.npz", chunk_file(first, 0).read_bytes())
    model = models.model(
        [helper.make_node("Neg", ["y"], ["x"]), helper.make_node("Identity", ["x"], ["z"])],
        [models.tensor("y", models.FLOAT, ["N", "T"])],
        [models.tensor("z", models.FLOAT, ["N", "T"])],
    )

    last = done(place, model, "pvc://data/renamed.npz", "last", **{"inference_worker.batch.directory:_COMMIT_SECONDS": 60.0})

    assert np.array_equal(answers_in(last)["z"], flat(ITEMS)) and answers_in(last)["z.shapes"][:, 0].tolist() == LENGTHS


@pytest.mark.parametrize("form", ["jsonl", "npz"])
def test_a_kill_at_any_commit_loses_and_doubles_no_item(place: Place, form: str) -> None:
    uri = place.put(f"in.{form}", data_of(form, ITEMS))
    config = a_job(place, negated(), uri, "out")
    for attempt, sync in enumerate((5, 7, 7, 10), start=1):
        worker = place.start(msgspec.structs.replace(config, attempt=attempt), patches={**EACH, DIE_BEFORE_SYNC: sync})
        assert worker.ended().code == -signal.SIGKILL
    assert 0 < committed(place.claim / "out") < len(LENGTHS)

    ended = place.run(msgspec.structs.replace(config, attempt=5), patches=EACH)

    assert ended.said.outcome == "Succeeded" and ended.said.progress is not None and ended.said.progress.resumed > 0
    assert read_output(place.claim / "out") == [[-value for value in item] for item in ITEMS]
    assert list(spans(place.claim / "out"))[:3] == [(0, 4), (4, 5), (5, 7)]


@pytest.mark.parametrize("form", ["jsonl", "npz", "npy"])
def test_answers_of_different_lengths_to_items_of_one_length_feed_the_next_job(place: Place, form: str) -> None:
    """A detector finds as many objects as there are."""
    x = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], np.float32)
    uri = place.put_array("in.npy", x) if form == "npy" else place.put(f"in.{form}", data_of(form, x.tolist()))
    first = done(place, positions(), uri, "first")
    again = models.model(
        [helper.make_node("Identity", ["x"], ["y"])],
        [models.tensor("x", models.INT64, ["N", 2, "K"])],
        [models.tensor("y", models.INT64, ["N", 2, "K"])],
    )

    expected = [[[0, 0], [0, 2]], [[], []], [[0, 0, 0], [0, 1, 2]], [[0], [1]]]
    assert read_output(first) == expected and read_output(done(place, again, "pvc://data/first", "last")) == expected


def test_raw_files_of_different_lengths_are_items(place: Place) -> None:
    for i, item in enumerate(ITEMS):
        place.put(f"raw/{i:02}.raw", np.array(item, np.float32).tobytes())

    out = done(place, negated(), "pvc://data/raw", "out")

    assert read_output(out) == [[-value for value in item] for item in ITEMS]
    names = [name for chunk in sorted(out.glob("chunk-*")) for name in np.load(chunk)["item"].tolist()]
    assert names == [f"{i:02}.raw" for i in range(len(ITEMS))]


@pytest.mark.parametrize(("form", "place_of"), [("jsonl", "line 6"), ("npz", "item 5")])
def test_a_length_that_the_model_does_not_take_is_named_before_anything_runs(place: Place, form: str, place_of: str) -> None:
    ended = place.run(a_job(place, models.identity(shape=["N", 3]), place.put(f"in.{form}", data_of(form, ITEMS)), "out"))

    assert ended.said.reason is WorkerReason.INPUT_INVALID
    assert ended.said.message == f"{place_of} has shape [1] for input 'x', but the model wants [3]; reshape it"


@pytest.fixture(scope="module")
def free(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("free.onnx", negated()), batch_size=8)).wait_ready()


def test_callers_of_different_lengths_at_once_each_get_their_own(free: Worker) -> None:
    with callers.stub(free) as stub:
        sent = [np.full((i % 3 + 1, i % 5), i, np.float32) for i in range(100)]
        calls = [stub.ModelInfer.future(callers.tensor_request(array)) for array in sent]
        assert all(np.array_equal(callers.answer(call.result()), -array) for call, array in zip(calls, sent, strict=True))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([[1, 2], [3]], "lists of 1 and 2 values stand side by side"),
        ([[1, 2], 3], "a list stands beside a value"),
        ([1, 2, 3], "3 values do not fill shape [2, 2]"),
        ([[[1, 2]], [[3, 4], [5, 6]]], "lists of 1 and 2 values stand side by side"),
        ([1e39, 1, 2, 3], "a value does not fit FP32"),
    ],
)
def test_data_that_forms_no_tensor_is_refused_in_our_words(free: Worker, data: list[Any], why: str) -> None:
    entry = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": data}

    reply = post(free.port, INFER, json.dumps({"inputs": [entry]}).encode())

    assert reply.status == 400 and why in reply.error and "'x'" in reply.error


def test_texts_that_do_not_fill_their_shape_are_refused_in_our_words(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.identity(models.STRING, ["N", "T"])))).wait_ready()
    entry = {"name": "x", "datatype": "BYTES", "shape": [2, 2], "data": [["a", "b"], ["c"]]}

    reply = post(worker.port, INFER, json.dumps({"inputs": [entry]}).encode())

    assert reply.status == 400 and reply.error == "input 'x': 3 values do not fill shape [2, 2]"

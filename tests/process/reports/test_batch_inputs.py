"""Inputs of batches as people have them: files of Windows, of pandas and of numpy, and what another job has written."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from inference_protocol.messages import BatchTask, InputFormat
from inference_protocol.reasons import WorkerReason
from tests.outputs import chunk_file
from tests.process import models
from tests.process.harness import a_config, answers_in

if TYPE_CHECKING:
    from tests.process.harness import Ended, Place

MODELS = Path(__file__).parents[2] / "models"
# A chunk for each batch, so that a small job has several.
EACH = {"inference_worker.batch.directory:_COMMIT_SECONDS": 0.0, "inference_worker.batch.pipeline:_SEGMENT_BATCHES": 1}
TEXTS = [f"größe ✓ {i} " + "ab " * (i % 7) for i in range(40)]


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def run(
    place: Place,
    model: bytes,
    uri: str,
    out: str,
    *,
    form: InputFormat = "auto",
    allow: bool = False,
    patches: dict[str, Any] | None = None,
) -> Ended:
    """A job over an input, with a name of its own."""
    task = BatchTask(input_uri=uri, input_format=form, output_uri=f"pvc://data/{out}", allow_non_finite=allow)
    location = place.put(f"{out}.onnx", model)
    return place.run(a_config(location, task=task, batch_size=8, job=out, uid=out), patches={**EACH, **(patches or {})})


def done(place: Place, *args: Any, **changes: Any) -> Path:
    ended = run(place, *args, **changes)
    assert ended.said.outcome == "Succeeded", ended.said.message
    return place.claim / str(args[2])


def lines_in(directory: Path) -> list[dict[str, Any]]:
    chunks = json.loads((directory / "manifest.json").read_bytes())["chunks"]
    return [json.loads(line) for chunk in chunks for line in (directory / chunk["file"]).read_text().split("\n") if line]


def bare(name: str, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession((MODELS / f"{name}.onnx").read_bytes())
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


@pytest.mark.parametrize("form", ["npz", "jsonl"])
def test_one_jobs_output_is_the_next_ones_input(place: Place, form: str) -> None:
    """triton-inference-server/server#5726: strings, as numpy holds them, were no input; our own output holds them so."""
    data = npz(x=np.array(TEXTS)[:, None]) if form == "npz" else "\n".join(json.dumps({"x": [text]}) for text in TEXTS).encode()
    copy = models.identity(models.STRING, ["N", 1])
    first = done(place, copy, place.put(f"in.{form}", data), "first")
    second = done(place, copy, "pvc://data/first", "second")
    last = done(place, (MODELS / "tfidf-nolower.onnx").read_bytes(), "pvc://data/second", "last")

    truth = bare("tfidf-nolower", {"text": np.array(TEXTS, dtype=object)[:, None]})
    assert len(list(first.glob(f"chunk-*.{form}"))) > 2 and len(list(second.glob(f"chunk-*.{form}"))) > 2
    if form == "npz":
        assert answers_in(second)["y"].tolist() == [[text] for text in TEXTS]
        assert all(np.allclose(answers_in(last)[name], array) for name, array in truth.items())
    else:
        assert lines_in(second) == [{"y": [text]} for text in TEXTS]
        assert np.allclose([row["probabilities"] for row in lines_in(last)], truth["probabilities"])


@pytest.mark.parametrize("form", ["npz", "jsonl"])
def test_outputs_feed_the_inputs_of_their_names(place: Place, form: str) -> None:
    """Numbers and texts side by side, and one more output that the next model has no input for."""
    ages, colours = np.arange(20, dtype=np.float32)[:, None], np.array([["r", "g", "b"][i % 3] for i in range(20)])[:, None]
    pair = [models.tensor("a", models.FLOAT, ["N", 1]), models.tensor("c", models.STRING, ["N", 1])]
    named = [models.tensor("age", models.FLOAT, ["N", 1]), models.tensor("colour_of_car", models.STRING, ["N", 1])]
    nodes = [helper.make_node("Identity", [x], [y]) for x, y in (("a", "age"), ("c", "colour_of_car"), ("a", "more"))]
    prepare = models.model(nodes, pair, [*named, models.tensor("more", models.FLOAT, ["N", 1])])
    rows = [{"a": [float(age)], "c": [str(colour)]} for age, colour in zip(ages[:, 0], colours[:, 0], strict=True)]
    data = npz(a=ages, c=colours) if form == "npz" else "\n".join(map(json.dumps, rows)).encode()

    done(place, prepare, place.put(f"in.{form}", data), "first")
    last = done(place, (MODELS / "mixed.onnx").read_bytes(), "pvc://data/first", "last")

    truth = bare("mixed", {"age": ages, "colour_of_car": colours.astype(object)})
    found = answers_in(last)["label"].tolist() if form == "npz" else [row["label"] for row in lines_in(last)]
    assert found == truth["label"].tolist()


def test_labels_of_one_model_are_the_texts_of_the_next(place: Place) -> None:
    """Labels come as [N], and texts go in as [N, 1]."""
    x = np.eye(4, dtype=np.float32)[np.arange(20) % 4]
    done(place, models.named_label(), place.put("in.npz", npz(x=x)), "first")
    last = answers_in(done(place, (MODELS / "tfidf-nolower.onnx").read_bytes(), "pvc://data/first", "last"))

    labels = np.array([["zero", "one", "two", "drei ✓"][i % 4] for i in range(20)], dtype=object)[:, None]
    assert np.allclose(last["probabilities"], bare("tfidf-nolower", {"text": labels})["probabilities"])


def test_the_names_of_files_go_from_job_to_job(place: Place) -> None:
    for i in range(20):
        place.put(f"raw/{i:02}.raw", np.full(2, i, np.float32).tobytes())
    done(place, models.identity(), "pvc://data/raw", "first")
    last = answers_in(done(place, models.identity(), "pvc://data/first", "last"))

    assert last["item"].tolist() == [f"{i:02}.raw" for i in range(20)] and last["y"][:, 0].tolist() == list(range(20))


def test_a_job_that_has_not_ended_feeds_no_other(place: Place) -> None:
    done(place, models.identity(), place.put("in.npz", npz(x=np.ones((20, 2), np.float32))), "first")
    (place.claim / "first" / "manifest.json").unlink()

    ended = run(place, models.identity(), "pvc://data/first", "last")

    assert ended.said.reason is WorkerReason.INPUT_INVALID and "team/first" in ended.said.message


def test_a_job_does_not_empty_the_output_that_it_reads(place: Place) -> None:
    """A job that is created anew under its name starts anew in its output; its input may be a chunk there."""
    x = np.ones((20, 2), np.float32)
    first = done(place, models.identity(), place.put("in.npz", npz(x=x)), "first")

    ended = run(place, models.identity(), f"pvc://data/first/{chunk_file(first, 0).name}", "first")

    assert ended.said.reason is WorkerReason.OUTPUT_CONFLICT and len(answers_in(first)["y"]) == 20


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.csv"])
def test_a_text_of_windows_is_read(place: Place, name: str) -> None:
    """wbolster/jsonlines#68, infiniflow/ragflow#19179: a byte order mark cost the first record."""
    lines = ["x_0,x_1", "1,2", "3,4"] if "csv" in name else ["[1, 2]", '{"x": [3, 4]}']
    data = ("\ufeff" + "\r\n".join(lines) + "\r\n").encode()

    out = done(place, models.identity(), place.put(name, gzip.compress(data) if name.endswith(".gz") else data), "out")

    assert lines_in(out) == [{"y": [1, 2]}, {"y": [3, 4]}]


def test_utf_16_is_refused_with_the_way_to_mend_it(place: Place) -> None:
    """What Windows PowerShell writes by default."""
    ended = run(place, models.identity(), place.put("in.jsonl", "[1, 2]\n".encode("utf-16")), "out")

    assert ended.said.reason is WorkerReason.INPUT_INVALID and "save it as UTF-8" in ended.said.message


def test_a_table_of_pandas_feeds_a_model_of_scikit_learn(place: Place) -> None:
    """A column for each input, as scikit-learn's converter makes them."""
    table = "colour_of_car,age\nr,30\nb,4.5\n"

    out = done(place, (MODELS / "mixed.onnx").read_bytes(), place.put("in.csv", table.encode()), "out")

    truth = bare("mixed", {"age": np.array([[30], [4.5]], np.float32), "colour_of_car": np.array([["r"], ["b"]], object)})
    assert [row["label"] for row in lines_in(out)] == truth["label"].tolist()


@pytest.mark.parametrize("table", ["1.5,2\n3,4\n", ",a,b\n0,1.5,2\n"], ids=["no header", "the index"])
def test_a_table_that_would_lose_or_gain_a_value_is_refused(place: Place, table: str) -> None:
    """ersilia-os/zaira-chem#2: without a header the first item was missing from the answers."""
    ended = run(place, models.identity(), place.put("in.csv", table.encode()), "out")

    assert ended.said.reason is WorkerReason.INPUT_INVALID and ("header" in ended.said.message or "index" in ended.said.message)


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.npz"])
def test_a_small_file_does_not_take_all_memory(place: Place, name: str) -> None:
    """alphagov/backdrop#360, headroomlabs-ai/headroom#3284: some kilobytes that inflate to gigabytes."""
    limits = {
        "inference_worker.batch.formats.texts:INFLATED_LIMIT_BYTES": 1 << 20,
        "inference_worker.batch.formats.arrays:_INFLATED_LIMIT_BYTES": 1 << 20,
    }
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros((4 << 20, 2), np.float32))
    data = file.getvalue() if name == "in.npz" else gzip.compress(b" " * (8 << 20))

    ended = run(place, models.identity(), place.put(name, data), "out", patches=limits)

    assert ended.said.reason is WorkerReason.INPUT_INVALID and "inflates" in ended.said.message


def test_an_array_that_numpy_saved_without_a_name_feeds_the_only_input(place: Place) -> None:
    """`numpy.savez(file, a)` calls it arr_0."""
    out = done(place, models.identity(), place.put("in.npz", npz(arr_0=np.ones((3, 2), np.float32))), "out")

    assert answers_in(out)["y"].tolist() == [[1, 1]] * 3


def test_nan_survives_a_chain_of_lines_where_it_is_allowed(place: Place) -> None:
    """JSON has no NaN: the first job writes null, which the second takes for NaN only if it is told to."""
    done(place, models.square_root(), place.put("in.jsonl", b"[-1, 4]\n[9, 16]\n"), "first")
    refused = run(place, models.identity(), "pvc://data/first", "refused")
    last = done(place, models.identity(), "pvc://data/first", "last", allow=True)

    assert refused.said.reason is WorkerReason.INPUT_INVALID and "allowNonFinite" in refused.said.message
    assert lines_in(last) == [{"y": [None, 2]}, {"y": [3, 4]}]

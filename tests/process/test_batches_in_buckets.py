"""Batches whose inputs and outputs are in buckets: real workers against a real S3 server, killed, hung, and misled."""

from __future__ import annotations

import http.server
import io
import json
import signal
import urllib.request
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import numpy as np
import onnxruntime
import pytest

from inference_protocol.messages import BatchTask, Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import INPUT_STORAGE_FOLDER, OUTPUT_STORAGE_FOLDER
from tests.process import models
from tests.process.harness import CPU, Place, a_config, answers_in, committed, until
from tests.process.patched import LOOPBACK_ALLOWED
from tests.process.stores import KEY, SECRET, S3Server, line, s3_server
from tests.web import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from inference_protocol.messages import WorkerConfig
    from tests.process.harness import Ended, Worker

R = WorkerReason
NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})
ITEMS, WIDTH = 2000, 64
SLOW = models.slow(width=WIDTH, steps=300)
QUICK: dict[str, Any] = {
    LOOPBACK_ALLOWED: True,
    "inference_worker.batch.bucket:_COMMIT_SECONDS": 0.05,
    "inference_worker.stores.bucket:_FIRST_PAUSE_SECONDS": 0.01,
    "inference_worker.stores.bucket:_PATIENCE_SECONDS": 5.0,
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), written_to=True, open_to_all=True) as server:
        yield server


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    """A folder of this test's own."""
    return f"{abs(hash(request.node.name)):x}"


def put(s3: S3Server, key: str, data: bytes) -> str:
    """Write an object; returns its location."""
    request = urllib.request.Request(f"http://localhost:{s3.port}/models/{quote(key)}", data, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    return f"s3://models/{key}"


def npy(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def rows(seed: int = 11, items: int = ITEMS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((items, WIDTH)).astype(np.float32)


def keys_for(place: Place, port: int, **changes: str) -> dict[str, str]:
    """Write the Secrets of input and output; returns the variables by which a worker finds them."""
    given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": f"http://localhost:{port}"}
    for name in (INPUT_STORAGE_FOLDER, OUTPUT_STORAGE_FOLDER):
        (place.root / "identity" / name).mkdir(parents=True, exist_ok=True)
        for key, text in {**given, **changes}.items():
            (place.root / "identity" / name / key).write_text(text)
    return {"INFERENCE_IDENTITY_ROOT": str(place.root / "identity")}


def batch(place: Place, uri: str, output: str, model: bytes = SLOW, **changes: Any) -> WorkerConfig:
    task = BatchTask(
        input_uri=uri,
        output_uri=output,
        input_storage=Storage(secret="in", folder=INPUT_STORAGE_FOLDER),
        output_storage=Storage(secret="out", folder=OUTPUT_STORAGE_FOLDER),
        input_format=changes.pop("input_format", "auto"),
    )
    return a_config(place.put("m.onnx", model), task=task, **{"batch_size": 1, "fetch_from": ("localhost",), **changes})


def started(place: Place, s3: S3Server, config: WorkerConfig, *, port: int = 0, keys: Mapping[str, str] = NOTHING_ELSE) -> Worker:
    return place.start(config, patches=QUICK, variables=keys_for(place, port or s3.port, **keys))


def stored(s3: S3Server, folder: str) -> Path:
    return s3.folder / "models" / folder / "out"


def assert_whole(out: Path, x: np.ndarray) -> None:
    truth = onnxruntime.InferenceSession(SLOW, providers=[CPU]).run(None, {"x": x})[0]
    assert np.allclose(answers_in(out)["y"], truth, rtol=1e-3, atol=1e-4)


def beyond(worker: Worker, out: Path, count: int, attempt: int | None = None) -> bool:
    """Whether more than so many chunks are committed, or the worker is over."""
    return not worker.running or committed(out, attempt) > count


def test_a_batch_that_is_killed_goes_on_in_the_bucket(place: Place, s3: S3Server, folder: str) -> None:
    x, out = rows(), stored(s3, folder)
    config = batch(place, put(s3, f"{folder}/in.npy", npy(x)), f"s3://models/{folder}/out/")
    for attempt in (1, 2):
        worker = started(place, s3, msgspec.structs.replace(config, attempt=attempt))
        until(partial(beyond, worker, out, committed(out) + 1), "a commit")
        worker.kill()
        assert not (out / "manifest.json").exists()

    ended = started(place, s3, msgspec.structs.replace(config, attempt=3, batch_size=100)).ended()

    assert ended.said.outcome == "Succeeded" and ended.said.progress is not None and ended.said.progress.resumed > 0
    assert_whole(out, x)


def test_of_two_workers_that_believe_to_own_an_output_the_store_lets_one(place: Place, s3: S3Server, folder: str) -> None:
    """The first hung, was given up, and woke up again: it has read nothing of what happened since."""
    x, out = rows(), stored(s3, folder)
    config = batch(place, put(s3, f"{folder}/in.npy", npy(x)), f"s3://models/{folder}/out")
    first = started(place, s3, config)
    until(partial(beyond, first, out, 0), "a commit")
    first.process.send_signal(signal.SIGSTOP)
    second = started(place, s3, msgspec.structs.replace(config, attempt=2))
    until(partial(beyond, second, out, committed(out), attempt=2), "a commit of the second")
    first.process.send_signal(signal.SIGCONT)

    lost, won = first.ended(), second.ended()

    assert (lost.code, lost.said.reason) == (1, R.OUTPUT_CLAIMED)
    assert won.said.outcome == "Succeeded" and won.said.progress is not None and won.said.progress.resumed > 0
    assert_whole(out, x)


def test_two_workers_of_one_attempt_that_start_together_do_the_work_once(place: Place, s3: S3Server, folder: str) -> None:
    x = rows()
    config = batch(place, put(s3, f"{folder}/in.npy", npy(x)), f"s3://models/{folder}/out", batch_size=100)

    both = [started(place, s3, config) for _ in range(2)]
    said = [worker.ended().said for worker in both]

    assert sorted(each.reason or "" for each in said) == ["", R.OUTPUT_CLAIMED], said
    assert_whole(stored(s3, folder), x)


def test_an_input_that_changes_between_attempts_is_told(place: Place, s3: S3Server, folder: str) -> None:
    out = stored(s3, folder)
    config = batch(place, put(s3, f"{folder}/in.npy", npy(rows())), f"s3://models/{folder}/out")
    worker = started(place, s3, config)
    until(partial(beyond, worker, out, 0), "a commit")
    worker.kill()
    put(s3, f"{folder}/in.npy", npy(rows(seed=12)))

    ended = started(place, s3, msgspec.structs.replace(config, attempt=2)).ended()

    assert ended.said.reason is R.INPUT_CHANGED and not (out / "manifest.json").exists()


def test_an_input_that_is_replaced_while_it_is_fetched_is_not_mixed(place: Place, s3: S3Server, folder: str) -> None:
    """The connection breaks in the middle, and what would come next is of the other one."""
    x = rows(items=100_000)
    uri = put(s3, f"{folder}/in.npy", npy(x))
    with line(s3.port, cut_after=4 << 20, then=lambda: put(s3, f"{folder}/in.npy", npy(-x))) as wire:
        config = batch(place, uri, f"s3://models/{folder}/out", models.matmul())
        ended = started(place, s3, config, port=wire.port).ended()

    assert ended.said.reason is R.INPUT_UNREACHABLE and "was replaced" in ended.said.message


def test_json_lines_and_the_output_of_another_job_are_read_from_a_bucket(place: Place, s3: S3Server, folder: str) -> None:
    lines = "".join(json.dumps({"x": [float(i), 1.0]}) + "\n" for i in range(9)).encode()
    first = batch(place, put(s3, f"{folder}/in.jsonl", lines), f"s3://models/{folder}/out", models.identity(), batch_size=4)
    assert started(place, s3, first).ended().said.outcome == "Succeeded"

    again = batch(place, f"s3://models/{folder}/out", f"s3://models/{folder}/again", models.identity(), batch_size=4, job="next")
    ended = started(place, s3, again).ended()

    assert ended.said.outcome == "Succeeded" and ended.said.progress is not None and ended.said.progress.completed == 9


def test_raw_files_are_read_from_a_folder(place: Place, s3: S3Server, folder: str) -> None:
    for i in range(5):
        put(s3, f"{folder}/in/{i} &.bin", np.full(2, i, np.float32).tobytes())
    config = batch(place, f"s3://models/{folder}/in", f"s3://models/{folder}/out", models.identity(), input_format="files")

    assert started(place, s3, config).ended().said.outcome == "Succeeded"

    assert answers_in(stored(s3, folder))["item"].tolist() == [f"{i} &.bin" for i in range(5)]


def a_hub(files: dict[str, bytes]) -> AbstractContextManager[int]:
    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files.get(self.path)
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return serving(Hub)


def test_an_input_of_a_hub_is_fetched(place: Place, s3: S3Server, folder: str) -> None:
    with a_hub({"/org/rows/resolve/v1/x.npy": npy(np.ones((3, 2), np.float32))}) as port:
        config = batch(place, "hf://org/rows@v1/x.npy", f"s3://models/{folder}/out", models.identity())
        ended = started(place, s3, config, keys={"HF_ENDPOINT": f"http://localhost:{port}"}).ended()

    assert ended.said.outcome == "Succeeded", ended.said


WRONG: dict[str, tuple[str, dict[str, str], dict[str, Any], WorkerReason, str]] = {
    "no key": ("s3://models/none.npy", {}, {}, R.INPUT_NOT_FOUND, "neither an object nor a folder"),
    "no bucket": ("s3://none-such/none.npy", {}, {}, R.INPUT_NOT_FOUND, "none"),
    "half a pair": ("s3://models/x.npy", {"AWS_SECRET_ACCESS_KEY": ""}, {}, R.INPUT_ACCESS_DENIED, "AWS_SECRET_ACCESS_KEY"),
    "a host off the list": ("s3://models/x.npy", {}, {"fetch_from": ("other.example",)}, R.URI_FORBIDDEN, "is not allowed"),
    "the metadata service": (
        "s3://models/x.npy",
        {"AWS_ENDPOINT_URL": "http://169.254.169.254"},
        {"fetch_from": ()},
        R.URI_FORBIDDEN,
        "metadata service",
    ),
    "a registry": ("oci://localhost/x:1", {}, {}, R.URI_FORBIDDEN, "inputs aren't read from"),
    "the output": ("s3://models/out", {}, {}, R.OUTPUT_CONFLICT, "choose another output"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_an_input_is_said(place: Place, s3: S3Server, what: str) -> None:
    uri, keys, changes, reason, words = WRONG[what]
    put(s3, "out/0.bin", np.zeros(2, np.float32).tobytes())
    config = batch(place, uri, "s3://models/out", models.identity(), **changes)

    ended: Ended = started(place, s3, config, keys=keys).ended()

    assert ended.said.reason is reason and words in ended.said.message, ended.said.message
    assert SECRET not in ended.log

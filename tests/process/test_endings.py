"""How real workers end: the exit code says whether to try again, the report says why and what to do."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from inference_protocol.messages import BatchTask, WorkerConfig
from inference_protocol.reasons import PERMANENT, WorkerReason
from tests.process import models
from tests.process.harness import CPU, Ended, Place, a_config, answers_in
from tests.web import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

KUBELET_LIMIT_BYTES = 4096
MODEL = models.matmul()
DIGEST = f"sha256:{hashlib.sha256(MODEL).hexdigest()}"
R = WorkerReason


def host_address() -> str | None:
    """An address of this machine that a worker may fetch from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


class Files(BaseHTTPRequestHandler):
    """Statuses by path; /m.onnx is the model."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        moved = {"/moved": "/m.onnx", "/trap": "http://169.254.169.254/latest/meta-data/"}
        status = {"/m.onnx": 200, "/gone": 404, "/broken": 500}.get(self.path, 302)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", moved[self.path])
        body = MODEL if status == 200 else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def files_url() -> Iterator[str | None]:
    address = host_address()
    if address is None:
        yield None
        return
    with serving(Files, address) as port:
        yield f"http://{address}:{port}"


INPUT = BatchTask(input_uri="pvc://data/in.npy", output_uri="pvc://data/out")
LINES = BatchTask(input_data="[1, 2, 3, 4]\n[5, 6, 7]\n")
# name: (configuration, or a path on the file server), reason, a word of the message
FAILURES: dict[str, tuple[WorkerConfig | str, WorkerReason, str]] = {
    "missing": (a_config("pvc://data/no.onnx"), R.MODEL_NOT_FOUND, "check the claim"),
    "other digest": (a_config("pvc://data/m.onnx", digest="sha256:" + "0" * 64), R.MODEL_DIGEST_MISMATCH, DIGEST),
    "html": (a_config("pvc://data/html.onnx"), R.MODEL_FORMAT_UNSUPPORTED, "HTML"),
    "link out": (a_config("pvc://data/link.onnx"), R.URI_FORBIDDEN, "link out of its volume"),
    "climbing": (a_config("pvc://data/../secret"), R.URI_FORBIDDEN, "'..'"),
    "over the limit": (a_config("pvc://data/m.onnx", model_limit_bytes=10), R.MODEL_TOO_LARGE, "limit"),
    "loopback": (a_config("http://127.0.0.1:9/m.onnx"), R.URI_FORBIDDEN, "127.0.0.1"),
    "no device": (a_config("pvc://data/m.onnx", providers=("CUDAExecutionProvider",)), R.PROVIDER_UNAVAILABLE, "CUDA"),
    "no input": (
        a_config("pvc://data/m.onnx", task=BatchTask(input_uri="pvc://data/no.npy", output_uri="pvc://data/o")),
        R.INPUT_NOT_FOUND,
        "no.npy",
    ),
    "bad input": (a_config("pvc://data/m.onnx", task=LINES), R.INPUT_INVALID, "line 2"),
    "unwritable output": (
        a_config("pvc://data/m.onnx", task=BatchTask(input_uri="pvc://data/in.npy", output_uri="pvc://data/file")),
        R.OUTPUT_UNWRITABLE,
        "'file'",
    ),
    "more than a firm deadline allows": (
        a_config("pvc://data/m.onnx", task=BatchTask(input_uri="pvc://data/in.npy", items_limit=2)),
        R.TOO_MANY_ITEMS,
        "3 items",
    ),
    "long name": (a_config("pvc://data/" + "/".join(["n" * 200] * 18)), R.MODEL_NOT_FOUND, "nnn"),
    "gone over http": ("/gone", R.MODEL_NOT_FOUND, "404"),
    "broken over http": ("/broken", R.MODEL_UNREACHABLE, "500"),
    "redirect to the metadata service": ("/trap", R.URI_FORBIDDEN, "169.254.169.254"),
}


@pytest.fixture(scope="module")
def endings(shared_place: Place, files_url: str | None) -> dict[str, Ended]:
    """All failures at once: they spend their time starting up, and none minds the others."""
    place = shared_place
    place.put("m.onnx", MODEL)
    place.put("html.onnx", b"<html>404</html>")
    (place.root / "secret").write_bytes(MODEL)
    (place.claim / "link.onnx").symlink_to(place.root / "secret")
    place.put("file", b"")
    place.put_array("in.npy", np.ones((3, 4), np.float32))
    workers = {}
    for name, (config, _, _) in FAILURES.items():
        if isinstance(config, str):
            if files_url is None:
                continue
            config = a_config(files_url + config, digest=DIGEST)  # noqa: PLW2901
        workers[name] = place.start(config)
    return {name: worker.ended() for name, worker in workers.items()}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_has_its_reason_its_code_and_a_way_out(name: str, endings: dict[str, Ended]) -> None:
    if name not in endings:
        pytest.skip("this machine has no address besides loopback")
    _, reason, word = FAILURES[name]
    ended = endings[name]

    assert (ended.said.outcome, ended.said.reason) == ("Failed", reason)
    assert ended.code == (2 if reason in PERMANENT else 1)
    assert word in ended.said.message
    assert len(ended.report_bytes) < KUBELET_LIMIT_BYTES
    assert "Traceback" not in ended.log


def test_a_model_over_http_is_loaded_through_a_redirect(place: Place, files_url: str | None) -> None:
    if files_url is None:
        pytest.skip("this machine has no address besides loopback")

    ended = place.run(a_config(f"{files_url}/moved", digest=DIGEST, task=BatchTask(input_data="[1, 2, 3, 4]")))

    assert ended.code == 0 and ended.said.model is not None and ended.said.model.digest == DIGEST


def test_a_worker_that_may_fall_back_says_what_computes(place: Place) -> None:
    providers = ("TensorrtExecutionProvider", "CUDAExecutionProvider", CPU)
    config = a_config(place.put("m.onnx", MODEL), providers=providers, task=BatchTask(input_data="[1, 2, 3, 4]"))
    said = place.run(msgspec.structs.replace(config, provider_options={providers[0]: {"trt_fp16_enable": "True"}})).said

    assert said.model is not None and said.model.provider == CPU


def test_a_worker_that_lacks_its_device_is_never_ready(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", MODEL), providers=("CUDAExecutionProvider",)))

    seen = set()
    while worker.running:
        seen.add(worker.answers("/v2/health/ready"))

    assert seen <= {0, 503}
    assert worker.ended().code == 2


@pytest.mark.parametrize("text", ["{", "{}"])
def test_a_configuration_that_is_none_is_reported(place: Place, text: str) -> None:
    ended = place.start(text).ended()

    assert (ended.code, ended.said.reason) == (1, R.INTERNAL) and "INFERENCE_WORKER_CONFIG" in ended.said.message


def test_a_port_that_is_taken_is_reported(place: Place) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        ended = place.start(a_config(place.put("m.onnx", MODEL)), port=taken.getsockname()[1]).ended()

    assert ended.code == 1 and ended.said.outcome == "Failed" and "address already in use" in ended.said.message.lower()


def test_a_file_name_that_is_no_utf_8_does_not_cost_the_report(place: Place) -> None:
    (place.claim / "in").mkdir()
    Path(os.fsdecode(os.fsencode(place.claim / "in") + b"/\xff.raw")).write_bytes(b"short")
    task = BatchTask(input_uri="pvc://data/in", output_uri="pvc://data/out")

    ended = place.run(a_config(place.put("m.onnx", MODEL), task=task))

    assert (ended.code, ended.said.reason) == (2, R.INPUT_INVALID)


def test_a_finished_batch_reports_what_it_did(place: Place) -> None:
    x = np.random.default_rng(5).standard_normal((50, 4)).astype(np.float32)
    place.put_array("in.npy", x)

    ended = place.run(a_config(place.put("m.onnx", MODEL), batch_size=8, task=INPUT))

    said = ended.said
    assert (ended.code, said.outcome, said.reason, said.output) == (0, "Succeeded", None, None)
    assert said.progress is not None and (said.progress.total, said.progress.completed, said.progress.resumed) == (50, 50, 0)
    assert said.model is not None and (said.model.digest, said.model.provider, said.model.batch_size) == (DIGEST, CPU, 8)
    assert said.model.items_per_second is not None and said.model.memory_bytes > 1 << 20
    assert said.latency is not None and said.latency.count == 50 and 0 < said.latency.p50 <= said.latency.p95 <= said.latency.p99
    assert answers_in(place.claim / "out")["y"].shape == (50, 3)


def test_a_batch_that_fails_on_its_way_reports_how_far_it_came(place: Place) -> None:
    x = np.ones((40, 4), np.float32)
    x[30, 2] = np.nan
    place.put_array("in.npy", x)

    each = {"inference_worker.batch.directory:_COMMIT_SECONDS": 0.0, "inference_worker.batch.pipeline:_SEGMENT_BATCHES": 1}
    ended = place.run(a_config(place.put("m.onnx", MODEL), task=INPUT), patches=each)

    assert (ended.code, ended.said.reason) == (2, R.INPUT_INVALID) and "item 30 " in ended.said.message
    assert ended.said.progress is not None and (ended.said.progress.total, ended.said.progress.completed) == (40, 30)
    assert ended.said.model is not None and ended.said.model.digest == DIGEST


def test_a_batch_without_an_output_answers_in_its_report(place: Place) -> None:
    ended = place.run(a_config(place.put("m.onnx", models.label()), task=BatchTask(input_data="[0, 1, 0, 0]\n[0, 0, 0, 1]")))

    assert ended.code == 0 and ended.said.output is not None
    assert [json.loads(line) for line in ended.said.output.splitlines()] == [{"class": 1}, {"class": 3}]

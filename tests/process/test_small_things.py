"""A short body that says a great many small things takes neither a worker's memory nor its time."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from tests.process import models
from tests.process.harness import a_config
from tests.process.probing import Probes
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.harness import Place, Worker

EXHAUSTED = 8
# The body as it is inflated, and copies of it while it is looked at.
MOST_BYTES = 5 * BODY_LIMIT_BYTES


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("m.onnx", models.identity()), batch_size=4)).wait_ready()


def by_grpc(worker: Worker) -> int:
    body = gzip.compress(b"\x2a\x00" * (BODY_LIMIT_BYTES // 2), compresslevel=1)
    with Wire2(worker) as wire:
        return wire.call("ModelInfer", message(body, flag=1), {"grpc-encoding": "gzip"}).grpc_status


def by_http(worker: Worker) -> int:
    body = gzip.compress(b'{"inputs":[' + b"[]," * (BODY_LIMIT_BYTES // 3 - 9) + b"0]}", compresslevel=1)
    path = f"http://127.0.0.1:{worker.port}/v2/models/net/infer"
    request = urllib.request.Request(path, body, {"Content-Encoding": "gzip"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(("attack", "status"), [(by_grpc, EXHAUSTED), (by_http, 413)], ids=["grpc", "http"])
def test_a_bomb_of_small_things_is_refused(worker: Worker, attack: Callable[[Worker], int], status: int) -> None:
    before = peak_bytes(worker)
    with Probes(worker) as probes:
        answered = attack(worker)
    assert (answered, worker.running) == (status, True)
    assert peak_bytes(worker) - before < MOST_BYTES
    assert probes.statuses == {200} and probes.most_cpu_seconds < 1.0


def peak_bytes(worker: Worker) -> int:
    text = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmHWM"))

"""Memory: it does not grow with requests or reloads, and running out of it is remembered, not repeated (reports 25, 26 and 30)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from inference_protocol.reasons import WorkerReason
from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import a_config
from tests.process.scripted import Orders
from tests.process.wire import Wire, get, infer_json, post, request

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

MIB = 1 << 20
BATCH = 8
FITS = 2


def load(worker: Worker, count: int) -> None:
    """Good and failing requests in equal parts, over both protocols."""

    def over_http() -> None:
        with Wire(worker.port) as wire:
            for i in range(count // 4):
                assert wire.post(INFER, infer_json([[1, 2]] * (i % 5 + 1))).status == 200
                assert wire.post(INFER, infer_json([[1, 2, 3]])).status == 400

    def over_grpc() -> None:
        with callers.stub(worker) as stub:
            for i in range(count // 4):
                assert stub.ModelInfer(callers.rows_request([[1, 2]] * (i % 5 + 1))).outputs
                assert callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 2, 3]]))) == "INVALID_ARGUMENT"

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(over_http), pool.submit(over_grpc)]:
            future.result()


def test_memory_does_not_grow_with_good_or_failing_requests(place: Place) -> None:
    """triton-inference-server/server#7481, grpc/grpc#34843, #29501: memory grew with each failing request or call."""
    worker = place.start(a_config(place.put("m.onnx", models.identity()), batch_size=BATCH)).wait_ready()
    load(worker, 1500)
    before = callers.resident_bytes(worker)

    load(worker, 3000)

    assert callers.resident_bytes(worker) - before < 3 * MIB


def test_callers_who_come_and_go_leave_no_memory_behind(place: Place) -> None:
    """grpc/grpc#34843, #29501: connections that ended were kept."""
    worker = place.start(a_config(place.put("m.onnx", models.identity()), batch_size=BATCH)).wait_ready()

    def come_and_go(times: int) -> None:
        for _ in range(times):
            with Wire(worker.port) as wire:
                wire.send(request("POST", INFER, infer_json([[1, 2]])))
            with callers.stub(worker) as stub:
                stub.ModelInfer.future(callers.rows_request([[1, 2]])).cancel()

    come_and_go(150)
    before = callers.resident_bytes(worker)
    come_and_go(500)

    assert callers.resident_bytes(worker) - before < 4 * MIB


def test_a_batch_that_finds_no_memory_is_halved_and_the_ceiling_remembered(place: Place) -> None:
    """triton-inference-server/server#4023, #13, michaelfeil/infinity#544: it died, hung, or failed small batches from then on."""
    orders = Orders(place)
    config = a_config(place.put("m.onnx", models.identity()), batch_size=BATCH)
    worker = place.start(config, patches=orders.patches(rows_that_fit=FITS)).wait_ready()

    large = post(worker.port, INFER, infer_json([[float(i), 0.0] for i in range(BATCH)]))

    assert [v for v in large.json["outputs"][0]["data"] if v] == [float(i) for i in range(1, BATCH)]
    assert orders.runs == [8, 4, 2, 2, 2, 2]
    assert callers.metric(worker, "inference_memory_ceiling_rows") == FITS
    tried = len(orders.runs)
    for rows in (1, 2, 5, BATCH):
        assert post(worker.port, INFER, infer_json([[1.0, 2.0]] * rows)).status == 200
    assert max(orders.runs[tried:]) <= FITS
    assert callers.metric(worker, "inference_breaker_opened_total") == 0


def test_a_worker_that_finds_no_memory_for_a_single_row_ends_with_the_reason(place: Place) -> None:
    """triton-inference-server/server#4023: a server without memory stayed up and failed everything."""
    orders = Orders(place)
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches=orders.patches(rows_that_fit=0)).wait_ready()

    statuses = [post(worker.port, INFER, infer_json([[1, 2]])).status for _ in range(5)]

    assert set(statuses) <= {503}
    ended = worker.ended()
    assert (ended.said.outcome, ended.said.reason) == ("Failed", WorkerReason.OUT_OF_MEMORY)
    assert ended.code != 0


def test_fifty_reloads_lose_no_request_and_leave_no_session_behind(place: Place) -> None:
    """microsoft/onnxruntime#26831: sessions were not freed when a model was loaded anew."""
    width = 1024
    config = a_config(place.put("m.onnx", models.matmul(width=width, out=width)), batch_size=2, model_control="explicit")
    worker = place.start(config).wait_ready()
    x, stopping, codes = np.ones((1, width), np.float32), threading.Event(), []

    def call() -> None:
        with callers.stub(worker) as stub:
            while not stopping.is_set():
                codes.append(callers.code_of(lambda: stub.ModelInfer(callers.tensor_request(x))))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    resident = []
    with Wire(worker.port) as wire:
        for _ in range(60):
            assert wire.post("/v2/repository/models/net/load", b"").status == 200
            resident.append(callers.resident_bytes(worker))
    stopping.set()
    for thread in threads:
        thread.join()

    assert set(codes) == {"OK"} and len(codes) > 60
    # Each session holds 4 MiB of weights.
    assert np.median(resident[-10:]) - np.median(resident[5:15]) < 40 * MIB
    assert get(worker.port, "/v2/models/net/stats").json["model_stats"][0]["inference_count"] == len(codes)

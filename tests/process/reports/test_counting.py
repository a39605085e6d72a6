"""Counters that add up: every request once, by the answer that its caller got (report 24)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import a_config, until
from tests.process.scripted import Orders
from tests.process.wire import Wire, get, infer_json, post, request
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

CAP = 2
REQUESTS = "inference_requests_total"


@pytest.fixture
def orders(place: Place) -> Orders:
    return Orders(place)


@pytest.fixture
def worker(place: Place, orders: Orders) -> Worker:
    """x [N, 2] -> y, NaN where x is negative; a queue of CAP."""
    patches = {**orders.patches(), "inference_worker.batching.admission:QUEUE_LIMIT": CAP}
    return place.start(a_config(place.put("m.onnx", models.square_root()), batch_size=4), patches=patches).wait_ready()


def counts(worker: Worker) -> dict[str, int]:
    codes = ("200", "400", "429", "499", "503", "504")
    found = {code: int(callers.metric(worker, REQUESTS, code=code)) for code in codes}
    return {code: count for code, count in found.items() if count}


def test_requests_by_status_add_up_to_those_that_were_sent(worker: Worker, orders: Orders) -> None:
    """kserve/kserve#2979, BerriAI/litellm#10595, triton-inference-server/server#5296: counters per process, or wrong."""
    for _ in range(5):
        assert post(worker.port, INFER, infer_json([[1, 1]])).status == 200
    for body in (b"{", infer_json([[1, 1]], name="nobody"), infer_json([[1, 1, 1]])):
        assert post(worker.port, INFER, body).status == 400
    with callers.stub(worker) as stub:
        assert [callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 1]]))) for _ in range(4)] == ["OK"] * 4
        assert callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 1, 1]]))) == "INVALID_ARGUMENT"
    assert post(worker.port, INFER, infer_json([[1, 1]]), {"Inference-Timeout-Ms": "0"}).status == 504

    orders.give("hold")
    wires = [Wire(worker.port).send(request("POST", INFER, infer_json([[1, 1]])))]
    until(lambda: callers.running(worker) == 1, "a run")
    wires += [Wire(worker.port).send(request("POST", INFER, infer_json([[1, 1]]))) for _ in range(CAP)]
    until(lambda: callers.queued(worker) == CAP, "a full queue")
    assert post(worker.port, INFER, infer_json([[1, 1]])).status == 429
    wires.pop().close()
    until(lambda: callers.queued(worker) == CAP - 1, "one that left")
    assert post(worker.port, INFER, infer_json([[1, 1]]), {"Inference-Timeout-Ms": "50"}).status == 504
    orders.take_back("hold")
    assert [wire.read().status for wire in wires] == [200] * CAP

    assert counts(worker) == {"200": 11, "400": 4, "429": 1, "499": 1, "504": 2}
    told = {name: callers.metric(worker, f"inference_{name}_total") for name in ("shed", "cancelled", "expired", "late")}
    assert told == {"shed": 1, "cancelled": 1, "expired": 1, "late": 0}
    assert callers.metric(worker, "inference_latency_ms_count") == 11
    telemetry = get(worker.port, "/telemetry").json
    assert (telemetry["requestsTotal"], telemetry["failedTotal"]) == (19, 8)
    stats = get(worker.port, "/v2/models/net/stats").json["model_stats"][0]
    assert (stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]) == (11, 8)
    assert stats["inference_count"] == 11 and stats["execution_count"] == len(orders.runs)


def test_a_request_is_counted_as_a_success_or_as_a_failure_and_not_as_both(worker: Worker) -> None:
    """triton-inference-server/server#5296: the histogram's count is the counter of successes."""
    for _ in range(3):
        assert post(worker.port, INFER, infer_json([[-1, 1]])).status == 400

    stats = get(worker.port, "/v2/models/net/stats").json["model_stats"][0]["inference_stats"]
    assert stats["success"]["count"] + stats["fail"]["count"] == 3
    assert callers.metric(worker, "inference_latency_ms_count") == callers.metric(worker, REQUESTS, code="200")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_it_takes_to_read_a_request_is_part_of_its_latency(place: Place, protocol: str) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.square_root()), batch_size=20_000)).wait_ready()
    rows = [[1.0, 1.0]] * 20_000
    if protocol == "http":
        assert post(worker.port, INFER, infer_json(rows)).status == 200
    else:
        with callers.stub(worker) as stub:
            stub.ModelInfer(callers.rows_request(rows))

    whole, queue, compute = (callers.metric(worker, f"inference_{name}_ms_sum") for name in ("latency", "queue", "compute"))
    assert whole > queue + compute + (1 if protocol == "http" else 0.001)


def test_rows_of_a_run_that_failed_are_no_inferences(place: Place) -> None:
    """triton-inference-server/server#5296: inference_count and execution_count tell of the same runs."""
    worker = place.start(a_config(place.put("m.onnx", models.gather()))).wait_ready()
    for index in (1, 99, 99, 2):
        post(
            worker.port, INFER, json.dumps({"inputs": [{"name": "i", "datatype": "INT64", "shape": [1], "data": [index]}]}).encode()
        )

    stats = get(worker.port, "/v2/models/net/stats").json["model_stats"][0]
    assert (stats["execution_count"], stats["inference_count"]) == (2, 2)


def test_garbage_is_counted_over_grpc_as_it_is_over_http(worker: Worker) -> None:
    """BerriAI/litellm#10595: failures before the model were not counted."""
    assert post(worker.port, INFER, b"{").status == 400
    with Wire2(worker) as wire2:
        assert wire2.call("ModelInfer", message(b"\xff\xff\xff")).grpc_status == 3

    assert counts(worker) == {"400": 2}


def test_each_message_of_a_stream_is_counted_once(worker: Worker) -> None:
    """triton-inference-server/server#5296, for streams."""
    asked = [callers.rows_request([[1, 1]]), callers.rows_request([[1, 1, 1]]), callers.rows_request([[4, 4]])]
    with callers.stub(worker) as stub:
        answers = list(stub.ModelStreamInfer(iter(asked)))

    assert [bool(answer.error_message) for answer in answers] == [False, True, False]
    assert callers.answer(answers[2].infer_response, np.float32).tolist() == [[2, 2]]
    assert counts(worker) == {"200": 2, "400": 1}

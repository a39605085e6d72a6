"""What can't go on says so, and what can does: stuck and dead runs, faults of our own, and the breaker (reports 9 and 27 to 29)."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import a_config, until
from tests.process.scripted import IN_A_THREAD, Orders
from tests.process.wire import Wire, infer_json, post, request

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

BREAKER = "inference_breaker_state"
STUCK_SECONDS = 0.2
STUCK = {"inference_worker.batching.in_flight:STUCK_SECONDS": STUCK_SECONDS}


@pytest.fixture
def orders(place: Place) -> Orders:
    return Orders(place)


@pytest.fixture
def worker(place: Place, orders: Orders) -> Worker:
    return place.start(a_config(place.put("m.onnx", models.identity())), patches={**orders.patches(), **STUCK}).wait_ready()


def test_a_runner_that_dies_takes_health_with_it(worker: Worker, orders: Orders) -> None:
    """triton-inference-server/server#5381, #7230: the process that ran the model was dead, and health said 200."""
    orders.give("die")
    with Wire(worker.port) as wire:
        wire.send(request("POST", INFER, infer_json([[1, 1]])))

        until(lambda: worker.answers("/v2/health/live") == 503, "liveness to fail")
        assert worker.answers("/v2/health/ready") == 503


def test_the_callers_of_a_runner_that_dies_are_told(worker: Worker, orders: Orders) -> None:
    """triton-inference-server/server#5381: requests to a dead runner hung for ever."""
    orders.give("die")
    assert post(worker.port, INFER, infer_json([[1, 1]])).status in (500, 503)


def test_a_run_that_does_not_end_fails_liveness_and_recovers_when_it_does(worker: Worker, orders: Orders) -> None:
    """triton-inference-server/pytriton#88, server#3299: stuck after hours, and nothing restarted it."""
    orders.give("hold")
    with Wire(worker.port) as wire:
        wire.send(request("POST", INFER, infer_json([[1, 1]])))
        until(lambda: worker.answers("/v2/health/live") == 503, "liveness to fail")
        assert worker.answers("/v2/health/ready") == 503

        orders.take_back("hold")
        assert wire.read().status == 200
    assert worker.answers("/v2/health/live") == worker.answers("/v2/health/ready") == 200
    assert post(worker.port, INFER, infer_json([[1, 1]])).status == 200


def test_an_idle_worker_is_not_taken_for_a_stuck_one(worker: Worker) -> None:
    """triton-inference-server/pytriton#88, turned around."""
    post(worker.port, INFER, infer_json([[1, 1]]))
    time.sleep(1.5 * STUCK_SECONDS)

    assert worker.answers("/v2/health/live") == 200


def test_a_thousand_malformed_requests_leave_the_breaker_closed(place: Place) -> None:
    """sgl-project/sglang#25811: requests that were wrong opened the breaker for all others."""
    worker = place.start(a_config(place.put("m.onnx", models.gather()), batch_size=8)).wait_ready()

    def wrong(kind: int) -> set[int]:
        refused_by_the_model = {"inputs": [{"name": "i", "datatype": "INT64", "shape": [1], "data": [99]}]}
        body = (b"{", json.dumps(refused_by_the_model).encode(), infer_json([[1, 1]]), b"\0" * 100)[kind]
        with Wire(worker.port) as wire:
            return {wire.post(INFER, body).status for _ in range(250)}

    with ThreadPoolExecutor(4) as pool:
        assert set.union(*pool.map(wrong, range(4))) == {400}

    assert (callers.metric(worker, BREAKER), callers.metric(worker, "inference_breaker_opened_total")) == (0, 0)
    good = {"inputs": [{"name": "i", "datatype": "INT64", "shape": [1], "data": [3]}]}
    assert post(worker.port, INFER, json.dumps(good).encode()).status == 200


def test_the_breaker_opens_on_faults_of_the_model_and_closes_by_one_canary(worker: Worker, orders: Orders) -> None:
    """sgl-project/sglang#25811, ray-project/ray PR#65068: what the breaker is for, and how it ends."""
    orders.give("fail")
    assert [post(worker.port, INFER, infer_json([[1, 1]])).status for _ in range(5)] == [500] * 5

    refused = post(worker.port, INFER, infer_json([[1, 1]]))
    assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
    assert (callers.metric(worker, BREAKER), len(orders.runs)) == (2, 5)
    with callers.stub(worker) as stub:
        assert callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 1]]))) == "UNAVAILABLE"

    orders.take_back("fail")
    until(lambda: post(worker.port, INFER, infer_json([[1, 1]])).status == 200, "the canary")
    assert (callers.metric(worker, BREAKER), callers.metric(worker, "inference_breaker_opened_total")) == (0, 1)
    assert post(worker.port, INFER, infer_json([[1, 1]])).status == 200


def test_a_fault_in_one_run_is_told_to_its_callers_and_no_others(worker: Worker, orders: Orders) -> None:
    """ray-project/ray#66140: an exception beside the model ended the batcher while the app said RUNNING."""
    for _ in range(3):
        orders.give("fail")
        assert post(worker.port, INFER, infer_json([[1, 1]])).status == 500
        orders.take_back("fail")
        assert post(worker.port, INFER, infer_json([[1, 1]])).status == 200


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_load_that_breaks_in_a_way_nobody_thought_of_is_told_too(place: Place, orders: Orders, protocol: str) -> None:
    """ray-project/ray#66140, for reloads: an unforeseen exception must not leave a caller or a state hanging."""
    config = a_config(place.put("m.onnx", models.identity()), model_control="explicit")
    worker = place.start(config, patches=orders.patches()).wait_ready()
    orders.give("fail_load")

    if protocol == "http":
        assert post(worker.port, "/v2/repository/models/net/load", b"").status in (400, 500)
    else:
        from tritonclient.grpc import service_pb2 as pb

        with callers.stub(worker) as stub:
            load = pb.RepositoryModelLoadRequest(model_name="net")
            code = callers.code_of(lambda: stub.RepositoryModelLoad(load, timeout=callers.PATIENCE_SECONDS))
            assert code in ("INVALID_ARGUMENT", "INTERNAL")
    assert post(worker.port, "/v2/repository/index", b"").json[0]["state"] == "READY"


def test_an_answer_inline_and_an_answer_from_a_thread_are_alike(place: Place) -> None:
    """Runs too short for a thread happen on the event loop; nothing of this file may depend on which it was."""
    quick = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
    threaded = place.start(a_config("pvc://data/m.onnx"), patches=IN_A_THREAD).wait_ready()
    bodies = [post(w.port, INFER, infer_json([[1, os.getpid() % 7]], id="a")).body for w in (quick, threaded)]
    assert bodies[0] == bodies[1]

"""Limits that other servers had in name only: rows in a run, requests that wait and for how long, bytes of a message (7, 13, 22)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import QUICK_DRAIN, a_config, until
from tests.process.scripted import Orders
from tests.process.wire import Wire, get, infer_json, post, request
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

CAP = 8
STALL_SECONDS = 0.3
PATCHES = {
    "inference_worker.batching.admission:QUEUE_LIMIT": CAP,
    "inference_worker.serve.http:STALL_SECONDS": STALL_SECONDS,
    "inference_worker.serve.http2:STALL_SECONDS": STALL_SECONDS,
    "inference_worker.serve.connections:STALL_SECONDS": STALL_SECONDS,
    "inference_worker.serve.connections:_SWEEP_SECONDS": STALL_SECONDS,
    **QUICK_DRAIN,
}


@pytest.fixture
def orders(place: Place) -> Orders:
    return Orders(place)


@pytest.fixture
def worker(place: Place, orders: Orders) -> Worker:
    """Runs at most 4 rows at a time; a queue of CAP."""
    config = a_config(place.put("m.onnx", models.identity()), batch_size=4, drain_seconds=0.5)
    return place.start(config, patches={**orders.patches(), **PATCHES}).wait_ready()


def occupied(worker: Worker, orders: Orders) -> Wire:
    """A caller whose run holds the model until `hold` is taken back."""
    orders.give("hold")
    wire = Wire(worker.port).send(request("POST", INFER, infer_json([[0, 0]])))
    until(lambda: callers.running(worker) == 1, "a run")
    return wire


def test_no_run_has_more_rows_than_it_may_however_many_a_request_has(worker: Worker, orders: Orders) -> None:
    """bentoml/BentoML#3859, #3710: the batch limit counted requests, so that requests of several rows went beyond it."""

    def call(rows: int) -> bool:
        x = [[float(i), float(rows)] for i in range(rows)]
        reply = post(worker.port, INFER, infer_json(x))
        # The queue is short here, so some are told to come back.
        return reply.status == 429 or reply.json["outputs"][0]["data"] == [v for row in x for v in row]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, [1, 2, 3, 4, 5, 6, 9, 33] * 8))
    assert max(orders.runs) <= 4
    batches = get(worker.port, "/v2/models/net/stats").json["model_stats"][0]["batch_stats"]
    assert max(batch["batch_size"] for batch in batches) <= 4


def test_the_queue_takes_exactly_what_it_may(worker: Worker, orders: Orders) -> None:
    """triton-inference-server/server#5783, #6796: max_queue_size was not kept to exactly."""
    wires = [occupied(worker, orders)]
    for i in range(CAP):
        wires.append(Wire(worker.port).send(request("POST", INFER, infer_json([[i, i]]))))
        until(lambda: callers.queued(worker) == len(wires) - 1, "its place")

    refused = [post(worker.port, INFER, infer_json([[9, 9]])) for _ in range(3)]

    assert [reply.status for reply in refused] == [429] * 3
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    orders.take_back("hold")
    assert [wire.read().status for wire in wires] == [200] * (CAP + 1)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_whoever_waits_is_told_at_its_deadline_and_not_when_the_running_request_ends(
    worker: Worker, orders: Orders, protocol: str
) -> None:
    """triton-inference-server/server#7512: the queue's time-out only fired once the request that was running had ended."""
    holder = occupied(worker, orders)
    timeout = 0.15
    with callers.stub(worker) as stub, Wire(worker.port) as wire:
        stub.ServerLive(pb.ServerLiveRequest())
        for _ in range(7):
            if protocol == "http":
                assert wire.post(INFER, infer_json([[1, 1]]), {"Inference-Timeout-Ms": f"{timeout * 1e3}"}).status == 504
            else:
                asked = callers.rows_request([[1, 1]])
                asked.parameters["timeout"].int64_param = round(timeout * 1e6)
                assert callers.code_of(lambda asked=asked: stub.ModelInfer(asked)) == "DEADLINE_EXCEEDED"

    assert len(orders.runs) == 1, "the first run still holds the model"
    assert callers.metric(worker, "inference_expired_total") == 7
    orders.take_back("hold")
    assert holder.read().status == 200


def test_a_message_over_the_limit_is_refused_by_its_length_before_it_is_sent(worker: Worker) -> None:
    """SeldonIO/MLServer#290, kserve/modelmesh#275, triton-inference-server/server#1776, #4972: gRPC's 4 MiB, HTTP's own limit."""
    with Wire(worker.port) as wire:
        head = f"POST {INFER} HTTP/1.1\r\nHost: w\r\nContent-Length: {BODY_LIMIT_BYTES + 1}\r\n\r\n"
        assert wire.send(head.encode()).read().status == 413
    for length in (BODY_LIMIT_BYTES + 1, 0xFFFFFFFF):
        with Wire2(worker) as wire2:
            stream = wire2.open("ModelInfer")
            wire2.send(stream, message(b"", length=length))
            heard = wire2.wait(stream)
            assert (heard.grpc_status, wire2.ping()) == (8, True)


def test_both_protocols_take_large_messages_up_to_one_limit(place: Place) -> None:
    """SeldonIO/MLServer#290: messages of more than 4 MiB were refused by default."""
    wide = (BODY_LIMIT_BYTES - 4096) // 4
    worker = place.start(a_config(place.put("wide.onnx", models.identity(shape=["N", "M"])))).wait_ready()
    x = np.ones((1, wide), np.float32)
    entry = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    over_http = post(worker.port, INFER, head + x.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
    assert (over_http.status, len(over_http.body) > x.nbytes) == (200, True)

    with callers.stub(worker) as stub:
        assert len(stub.ModelInfer(callers.tensor_request(x)).raw_output_contents[0]) == x.nbytes


def test_a_body_that_does_not_come_is_given_up_over_http(worker: Worker) -> None:
    """The other half of triton-inference-server/server#4972: a body that is announced and never sent holds memory for ever."""
    with Wire(worker.port) as wire:
        wire.send(f"POST {INFER} HTTP/1.1\r\nHost: w\r\nContent-Length: 1000\r\n\r\n{{".encode())
        assert wire.read().status == 408 and wire.closed()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(message(b"0123456789", length=1000), id="half"),
    ],
)
def test_a_body_that_does_not_come_is_given_up_over_grpc(worker: Worker, sent: bytes) -> None:
    """The other half of triton-inference-server/server#4972, over gRPC."""
    with Wire2(worker) as wire2:
        stream = wire2.open("ModelInfer")
        if sent:
            wire2.send(stream, sent)
        heard = wire2.wait(stream)
        assert heard.ended or heard.reset is not None or wire2.goaway is not None

"""Callers who leave: nobody else notices, and nothing of theirs stays behind (reports 8 to 12)."""

from __future__ import annotations

import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from onnx import helper

from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import QUICK_DRAIN, a_config, until
from tests.process.scripted import Orders
from tests.process.wire import Wire, infer_json, post, request
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

# So long an end takes that is held back: longer than tests wait for one.
HELD_BACK_SECONDS = 600.0


@pytest.fixture
def orders(place: Place) -> Orders:
    return Orders(place)


@pytest.fixture
def worker(place: Place, orders: Orders) -> Worker:
    config = a_config(place.put("m.onnx", models.identity()), batch_size=8, drain_seconds=HELD_BACK_SECONDS)
    return place.start(config, patches={**orders.patches(), **QUICK_DRAIN}).wait_ready()


def counting() -> bytes:
    """x [N, 2], times [] -> y: adds one to x so many times."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["before", "one"], ["after"])],
        "body",
        [
            models.tensor("i", models.INT64, []),
            models.tensor("go", models.BOOL, []),
            models.tensor("before", models.FLOAT, ["N", 2]),
        ],
        [models.tensor("on", models.BOOL, []), models.tensor("after", models.FLOAT, ["N", 2])],
    )
    return models.model(
        [helper.make_node("Loop", ["times", "", "x"], ["y"], body=body)],
        [models.tensor("x", models.FLOAT, ["N", 2]), models.tensor("times", models.INT64, [])],
        [models.tensor("y", models.FLOAT, ["N", 2])],
        {"one": np.ones(1, np.float32)},
    )


def settled(worker: Worker) -> None:
    until(lambda: callers.queued(worker) + callers.running(worker) == 0, "an empty queue")


def test_after_a_third_of_the_callers_has_left_at_random_all_others_are_answered(place: Place) -> None:
    """ray-project/ray#50046, #42593, #41057: cancelled and timed-out callers left the batcher stuck for good."""
    data = models.slow(steps=120)
    worker = place.start(a_config(place.put("m.onnx", data), batch_size=8)).wait_ready()
    x = np.ones((1, 64), np.float32)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [1.0] * 64}]}).encode()

    def over_http(seed: int) -> list[int]:
        chance, statuses = random.Random(seed), []
        for _ in range(30):
            with Wire(worker.port) as wire:
                wire.send(request("POST", INFER, body))
                if chance.random() > 0.3:
                    statuses.append(wire.read().status)
        return statuses

    def over_grpc(seed: int) -> list[int]:
        chance, statuses = random.Random(seed), []
        with callers.stub(worker) as stub:
            for _ in range(30):
                call = stub.ModelInfer.future(callers.tensor_request(x))
                if chance.random() > 0.3:
                    statuses.append(200 if call.result().outputs else 0)
                else:
                    call.cancel()
        return statuses

    with ThreadPoolExecutor(16) as pool:
        found = [*pool.map(over_http, range(8)), *pool.map(over_grpc, range(8, 16))]

    assert {status for statuses in found for status in statuses} == {200}
    settled(worker)
    assert [post(worker.port, INFER, body).status for _ in range(20)] == [200] * 20


def test_a_grpc_deadline_of_one_member_leaves_the_others_of_its_batch_their_answers(worker: Worker, orders: Orders) -> None:
    """SeldonIO/MLServer#1652: a gRPC caller that had gone raised a KeyError in the loop that hands out answers."""
    with callers.stub(worker) as stub:
        orders.give("hold")
        first = stub.ModelInfer.future(callers.rows_request([[0, 0]]))
        until(lambda: callers.running(worker) == 1, "a run")
        members = [stub.ModelInfer.future(callers.rows_request([[i, i]])) for i in range(1, 6)]
        until(lambda: callers.queued(worker) == 5, "a batch that waits")
        orders.take_back("hold")
        assert callers.answer(first.result()).tolist() == [[0, 0]]
        assert [callers.answer(call.result()).tolist() for call in members] == [[[i, i]] for i in range(1, 6)]
        assert max(orders.runs) > 1

        # Now one of them is running out of time while its batch runs.
        orders.give("hold")
        first = stub.ModelInfer.future(callers.rows_request([[0, 0]]))
        until(lambda: callers.running(worker) == 1, "a run")
        members = [stub.ModelInfer.future(callers.rows_request([[i, i]])) for i in range(1, 4)]
        until(lambda: callers.queued(worker) == 3, "a batch that waits")
        hasty = stub.ModelInfer.future(callers.rows_request([[9, 9]]), timeout=0.3)
        with pytest.raises(grpc.RpcError) as late:
            hasty.result()
        orders.take_back("hold")
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert [callers.answer(call.result()).tolist() for call in members] == [[[i, i]] for i in range(1, 4)]


def test_a_deadline_that_passes_while_the_batch_runs_is_told_to_that_member_only(worker: Worker, orders: Orders) -> None:
    """SeldonIO/MLServer#1652, in the run itself."""
    orders.give("hold-1")
    orders.give("hold-2")
    with Wire(worker.port) as first, Wire(worker.port) as hasty, Wire(worker.port) as patient:
        first.send(request("POST", INFER, infer_json([[0, 0]])))
        until(lambda: callers.running(worker) == 1, "a run")
        hasty.send(request("POST", INFER, infer_json([[1, 1]]), {"Inference-Timeout-Ms": "3000"}))
        patient.send(request("POST", INFER, infer_json([[2, 2]])))
        until(lambda: callers.queued(worker) == 2, "a batch that waits")
        orders.take_back("hold-1")
        assert (first.read().status, hasty.read().status, orders.runs) == (200, 504, [1, 2])
        orders.take_back("hold-2")
        assert patient.read().json["outputs"][0]["data"] == [2.0, 2.0]
    assert callers.metric(worker, "inference_late_total") == 1
    assert callers.metric(worker, "inference_wasted_rows_total") == 1


@pytest.mark.parametrize("frontends", [0, 2])
def test_a_caller_that_ends_its_side_and_waits_is_answered_and_one_that_left_is_not_computed_for(
    place: Place, orders: Orders, frontends: int
) -> None:
    """`nc -N`, some proxies and load testers end their side with the request; RFC 9112, 9.6 has servers answer."""
    config = a_config(place.put("m.onnx", models.identity()), batch_size=1)
    variables = {FRONTENDS_VARIABLE: str(frontends)}
    worker = place.start(config, variables=variables, patches=orders.patches()).wait_ready()
    until(lambda: post(worker.port, INFER, infer_json([[0, 0]])).status == 200, "a port")
    orders.give("hold")
    with Wire(worker.port) as waiting, Wire(worker.port) as leaving:
        waiting.send(request("POST", INFER, infer_json([[1, 1]])))
        until(lambda: callers.running(worker) == 1, "a run")
        leaving.send(request("POST", INFER, infer_json([[2, 2]])))
        until(lambda: callers.queued(worker) == 1, "one that waits")
        waiting.socket.shutdown(socket.SHUT_WR)
        leaving.close()
        until(lambda: callers.queued(worker) == 0, "an empty queue")
        orders.take_back("hold")
        interim, answer = waiting.read(), waiting.read()
        assert (interim.status, answer.status, answer.json["outputs"][0]["data"]) == (100, 200, [1.0, 1.0])
        assert answer.headers["connection"] == "close" and waiting.socket.recv(1) == b""


def test_a_caller_who_left_early_does_not_hold_the_end(worker: Worker, orders: Orders) -> None:
    """mosecorg/mosec#262: a client that left early stayed counted, so that the drain waited for its time-out."""
    orders.give("hold")
    with Wire(worker.port) as wire, callers.stub(worker) as stub:
        wire.send(request("POST", INFER, infer_json([[1, 1]])))
        until(lambda: callers.running(worker) == 1, "a run")
        call = stub.ModelInfer.future(callers.rows_request([[1, 1]]))
        until(lambda: callers.queued(worker) == 1, "one that waits")
        call.cancel()
    settled(worker)

    ended = worker.stop().ended()

    assert (ended.code, ended.said.outcome) == (0, "Drained") and "every request" in ended.said.message


@pytest.mark.parametrize("sent", [b"", message(b"0123456789", length=1000)], ids=["nothing", "half"])
def test_half_a_grpc_request_does_not_hold_the_end(worker: Worker, sent: bytes) -> None:
    """mosecorg/mosec#262, for a caller that never finishes what it began."""
    with Wire2(worker) as wire2:
        stream = wire2.open("ModelInfer")
        wire2.send(stream, sent)
        assert wire2.ping()

        assert worker.stop().ended().code == 0


def test_a_stream_that_waits_for_nothing_does_not_hold_the_end(worker: Worker) -> None:
    """mosecorg/mosec#262, for a stream that its caller keeps open."""
    still_open = threading.Event()

    def messages() -> object:
        yield callers.rows_request([[1, 1]])
        still_open.wait(HELD_BACK_SECONDS)

    with callers.stub(worker) as stub:
        answers = stub.ModelStreamInfer(messages())
        assert not next(answers).error_message

        try:
            assert worker.stop().ended().code == 0
        finally:
            still_open.set()


@pytest.mark.parametrize("protocol", ["http", "grpc", "stream"])
def test_work_of_callers_who_left_is_dropped_from_the_queue(worker: Worker, orders: Orders, protocol: str) -> None:
    """triton-inference-server/server#3581, #4818, #6920: a disconnect did not cancel, the work was done all the same."""
    orders.give("hold")
    first = Wire(worker.port).send(request("POST", INFER, infer_json([[0, 0]])))
    until(lambda: callers.running(worker) == 1, "a run")
    with callers.stub(worker) as stub:
        wires = []
        if protocol == "http":
            wires = [Wire(worker.port).send(request("POST", INFER, infer_json([[i, i]]))) for i in range(5)]
        elif protocol == "grpc":
            calls = [stub.ModelInfer.future(callers.rows_request([[i, i]])) for i in range(5)]
        else:
            calls = [stub.ModelStreamInfer(iter([callers.rows_request([[i, i]]) for i in range(5)]))]
        until(lambda: callers.queued(worker) == 5, "five that wait")

        for wire in wires:
            wire.close()
        for call in () if wires else calls:
            call.cancel()

        until(lambda: callers.queued(worker) == 0, "an empty queue")
    assert callers.metric(worker, "inference_cancelled_total") == 5
    assert callers.metric(worker, "inference_requests_total", code="499") == 5
    orders.take_back("hold")
    assert first.read().status == 200
    assert orders.runs == [1]


def test_a_run_ends_when_its_only_caller_leaves(place: Place) -> None:
    """triton-inference-server/server PR#8982: nothing ended a run that nobody waited for any more."""
    worker = place.start(a_config(place.put("m.onnx", counting()))).wait_ready()
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]},
        # Minutes of work; only the runtime's flag can end it sooner.
        {"name": "times", "datatype": "INT64", "shape": [], "data": [1 << 40]},
    ]
    with Wire(worker.port) as wire:
        wire.send(request("POST", INFER, json.dumps({"inputs": inputs}).encode()))
        until(lambda: callers.running(worker) == 1, "a run")

    until(lambda: callers.running(worker) == 0, "the run's end")
    assert callers.metric(worker, "inference_runs_total") == 0
    assert callers.metric(worker, "inference_cancelled_total") == 1

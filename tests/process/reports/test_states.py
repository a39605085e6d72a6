"""What a worker says of itself is what it does: while it loads, serves, leaves, or never will (reports 14 to 18)."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import grpc
import numpy as np
import onnx
import pytest
from tritonclient.grpc import service_pb2 as pb

from inference_protocol.reasons import WorkerReason
from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import QUICK_DRAIN, a_config, until
from tests.process.probing import Probes
from tests.process.scripted import Orders
from tests.process.wire import Wire, infer_json, post, request
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

STUCK = {"inference_worker.batching.in_flight:STUCK_SECONDS": 0.2}
State = tuple[int, int, int, int]
LOADING, SERVING, UNLOADED = (200, 503, 503, 503), (200, 200, 200, 200), (200, 503, 503, 503)
DRAINING, STUCK_STATE = (200, 503, 503, 200), (503, 503, 503, 503)


@pytest.fixture
def orders(place: Place) -> Orders:
    return Orders(place)


def over_http(worker: Worker) -> State:
    """Live, ready, model ready, infer."""
    live, ready, model = map(worker.answers, ("/v2/health/live", "/v2/health/ready", "/v2/models/net/ready"))
    return live, ready, model, post(worker.port, INFER, infer_json([[1, 1]])).status


def over_grpc(worker: Worker) -> State:
    with callers.stub(worker) as stub:
        flags = (
            stub.ServerLive(pb.ServerLiveRequest()).live,
            stub.ServerReady(pb.ServerReadyRequest()).ready,
            stub.ModelReady(pb.ModelReadyRequest(name="net")).ready,
        )
        code = callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 1]])))
    live, ready, model = (200 if flag else 503 for flag in flags)
    return live, ready, model, {"OK": 200, "UNAVAILABLE": 503}.get(code, 0)


def test_probes_and_requests_agree_in_every_state_of_a_life(place: Place, orders: Orders) -> None:
    """triton-inference-server/server#7588, #5438, kserve/kserve#2775: ready lied both ways, and requests were taken meanwhile."""
    orders.give("hold_load")
    config = a_config(place.put("m.onnx", models.identity()), model_control="explicit", drain_seconds=30.0)
    patches = {**orders.patches(), "inference_worker.__main__:_LINGER_SECONDS": 1.5}
    worker = place.start(config, patches=patches).wait_answering()
    assert (over_http(worker), over_grpc(worker)) == (LOADING, LOADING)

    orders.take_back("hold_load")
    worker.wait_ready()
    assert (over_http(worker), over_grpc(worker)) == (SERVING, SERVING)

    assert post(worker.port, "/v2/repository/models/net/unload", b"").status == 200
    assert (over_http(worker), over_grpc(worker)) == (UNLOADED, UNLOADED)

    # A load under way leaves the model that there is where it is.
    assert post(worker.port, "/v2/repository/models/net/load", b"").status == 200
    orders.give("hold_load")
    with Wire(worker.port) as loading:
        loading.send(request("POST", "/v2/repository/models/net/load", b""))
        until(lambda: "LOADING" in str(post(worker.port, "/v2/repository/index", b"").json), "a load under way")
        assert (over_http(worker), over_grpc(worker)) == (SERVING, SERVING)
        orders.take_back("hold_load")
        assert loading.read().status == 200

    worker.stop()
    until(lambda: worker.answers("/v2/health/ready") == 503, "not ready")
    assert (over_http(worker), over_grpc(worker)) == (DRAINING, DRAINING)


def test_a_stuck_worker_takes_no_requests_either(place: Place, orders: Orders) -> None:
    """triton-inference-server/server#7588: requests were accepted by a server that could not answer them."""
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches={**orders.patches(), **STUCK}).wait_ready()
    orders.give("hold")
    with Wire(worker.port) as held:
        held.send(request("POST", INFER, infer_json([[0, 0]])))
        until(lambda: worker.answers("/v2/health/live") == 503, "liveness to fail")
        assert worker.answers("/v2/health/ready") == 503 and worker.answers("/v2/models/net/ready") == 503

        assert post(worker.port, INFER, infer_json([[1, 1]])).status == 503


def test_during_a_stop_no_grpc_caller_meets_an_error(place: Place) -> None:
    """triton-inference-server/server#6230: "unknown model" during shutdown; kserve/kserve#4115, #3882: the signal was swallowed."""
    worker = place.start(a_config(place.put("m.onnx", models.slow()), batch_size=4), patches=QUICK_DRAIN).wait_ready()
    x, stopping = np.ones((1, 64), np.float32), threading.Event()
    codes: list[str] = []

    def call() -> None:
        with callers.stub(worker) as stub:
            while not stopping.is_set():
                codes.append(callers.code_of(lambda: stub.ModelInfer(callers.tensor_request(x))))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(codes) > 50, "load")
    worker.stop()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready")
    before = len(codes)
    until(lambda: len(codes) > before + 50, "calls during the stop")
    stopping.set()
    for thread in threads:
        thread.join()

    assert set(codes) == {"OK"}
    assert worker.ended().code == 0


def test_waiting_grpc_callers_are_answered_when_the_worker_is_told_to_stop(place: Place, orders: Orders) -> None:
    """triton-inference-server/server#6230, for those who wait already."""
    config = a_config(place.put("m.onnx", models.identity()), batch_size=4, drain_seconds=30.0)
    worker = place.start(config, patches={**orders.patches(), **QUICK_DRAIN}).wait_ready()
    orders.give("hold")
    with callers.stub(worker) as stub:
        calls = [stub.ModelInfer.future(callers.rows_request([[i, i]])) for i in range(20)]
        until(lambda: callers.queued(worker) + callers.running(worker) == 20, "twenty that wait")
        worker.stop()
        until(lambda: worker.answers("/v2/health/live") == 0, "no more connections")
        orders.take_back("hold")
        assert [callers.answer(call.result()).tolist() for call in calls] == [[[i, i]] for i in range(20)]
    assert worker.ended().code == 0


def test_those_who_still_wait_when_the_drain_is_over_are_told_unavailable(place: Place, orders: Orders) -> None:
    """triton-inference-server/server#6230: the end of a drain is told in words, not with a closed connection."""
    config = a_config(place.put("m.onnx", models.identity()), drain_seconds=0.2)
    worker = place.start(config, patches={**orders.patches(), **QUICK_DRAIN}).wait_ready()
    orders.give("hold")
    with callers.stub(worker) as stub:
        calls = [stub.ModelInfer.future(callers.rows_request([[i, i]])) for i in range(4)]
        until(lambda: callers.queued(worker) == 3, "three that wait")
        worker.stop()
        told = [call.exception() for call in calls]
    assert {error.code() for error in told} == {grpc.StatusCode.UNAVAILABLE}
    # The one whose run does not end learns it from the closed connection.
    assert sum("going away" in error.details() for error in told) == 3


def test_a_worker_that_is_told_to_stop_after_an_unload_says_what_happened(place: Place) -> None:
    """kserve/kserve#4115: what is said at the end has to be what was."""
    config = a_config(place.put("m.onnx", models.identity()), model_control="explicit")
    worker = place.start(config, patches=QUICK_DRAIN).wait_ready()
    assert post(worker.port, "/v2/repository/models/net/unload", b"").status == 200

    assert "before the model was loaded" not in worker.stop().ended().said.message


REASONS = {"page": WorkerReason.MODEL_FORMAT_UNSUPPORTED, "weights elsewhere": WorkerReason.MODEL_DATA_MISSING}


def faulty_models() -> dict[str, bytes]:
    good = models.matmul()
    proto = onnx.load_model_from_string(models.matmul(width=600, out=600))
    onnx.external_data_helper.convert_model_to_external_data(proto, location="weights.bin", size_threshold=0)
    for tensor in proto.graph.initializer:
        tensor.ClearField("raw_data")
    return {
        "empty": b"",
        "cut off": good[: len(good) // 2],
        "random": np.random.default_rng(0).bytes(4096),
        "lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "page": b"<!DOCTYPE html><html></html>",
        "weights elsewhere": proto.SerializeToString(),
    }


def test_a_faulty_model_ends_the_worker_with_a_reason_and_is_never_ready(place: Place) -> None:
    """triton-inference-server/server PR#7192, #2943, fil_backend#36; SeldonIO/MLServer#2056: it hung, died silently, or was ready."""
    for name, data in faulty_models().items():
        worker = place.start(a_config(place.put(f"{name}.onnx", data)))
        seen: set[int] = set()

        def over(worker: Worker = worker, seen: set[int] = seen) -> bool:
            seen |= {worker.answers("/v2/health/ready"), worker.answers("/v2/models/net/ready")}
            return not worker.running

        until(over, "its end")
        ended = worker.ended()
        assert (ended.code, ended.said.reason, seen <= {0, 503}) == (2, REASONS.get(name, WorkerReason.MODEL_CORRUPT), True), name
        assert ended.said.message


def test_the_first_request_after_ready_is_as_good_as_any(place: Place) -> None:
    """SeldonIO/MLServer#1134: the first request was told "not ready"; kserve/kserve#1915: ready only after the first request."""
    worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
    with callers.stub(worker) as stub:
        assert callers.answer(stub.ModelInfer(callers.rows_request([[1, 2]]))).tolist() == [[1, 2]]
    assert callers.metric(worker, "inference_runs_total") == 1


def test_probes_do_not_queue_behind_traffic(place: Place, orders: Orders) -> None:
    """kserve/kserve#1915: a probe that waits for its turn fails when it matters."""
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches=orders.patches()).wait_ready()
    orders.give("hold")
    wires = [Wire(worker.port).send(request("POST", INFER, infer_json([[i, i]]))) for i in range(100)]
    until(lambda: callers.queued(worker) == 99, "a queue")

    with callers.stub(worker) as stub:
        assert worker.answers("/v2/health/ready") == 200
        assert stub.ServerReady(pb.ServerReadyRequest()).ready

    orders.take_back("hold")
    assert {wire.read().status for wire in wires} == {200}


@pytest.mark.parametrize("form", ["texts over http", "texts over grpc", "numbers behind a header", "an answer in small frames"])
def test_probes_are_answered_while_a_large_request_is_taken_apart(shared_place: Place, form: str) -> None:
    """kserve/kserve#1915: the kubelet gives a probe one second; whatever keeps the event loop for longer ends the pod."""
    kind = models.STRING if form.startswith("texts") else models.FLOAT
    worker = shared_place.start(a_config(shared_place.put(f"{kind}.onnx", models.identity(kind, ["N", "M"])))).wait_ready()
    count = 4 << 20

    def texts_over_http() -> None:
        raw = bytes(4 * count)
        entry = {"name": "x", "datatype": "BYTES", "shape": [1, count - 1], "parameters": {"binary_data_size": len(raw)}}
        head = json.dumps({"inputs": [entry]}).encode()
        post(worker.port, INFER, head + raw, {"Inference-Header-Content-Length": str(len(head))})

    def texts_over_grpc() -> None:
        asked = callers.tensor_request(np.zeros((1, count - 1), np.float32), "BYTES")
        asked.raw_input_contents[0] = bytes(4 * count)
        with callers.stub(worker) as stub:
            callers.code_of(lambda: stub.ModelInfer(asked))

    def numbers_behind_a_header() -> None:
        body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, %d], "data": [%s0]}]}' % (count, b"0," * count)
        post(worker.port, INFER, body, {"Inference-Header-Content-Length": str(len(body))})

    def an_answer_in_small_frames() -> None:
        with Wire2(worker) as wire2:
            asked = callers.tensor_request(np.zeros((1, 2 * count), np.float32)).SerializeToString()
            assert wire2.call("ModelInfer", message(asked), step=1 << 20).grpc_status == 0

    work = {
        f.__name__.replace("_", " "): f
        for f in (texts_over_http, texts_over_grpc, numbers_behind_a_header, an_answer_in_small_frames)
    }
    with Probes(worker) as probes:
        work[form]()
    assert probes.statuses == {200} and probes.most_cpu_seconds < 1.0

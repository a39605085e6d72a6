"""Answers that other servers mixed up: every caller gets its own rows, its own outputs, and its own fault (reports 1 to 6)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import a_config, until
from tests.process.scripted import Orders
from tests.process.wire import Wire, get, infer_json, post, request

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

BATCH = 16


@pytest.fixture(scope="module")
def echo(shared_place: Place) -> Worker:
    """x [N, 2] -> same, negated."""
    config = a_config(shared_place.put("two.onnx", models.two_outputs()), batch_size=BATCH)
    return shared_place.start(config, patches={"inference_worker.warmup:_INLINE_SECONDS": 0.0}).wait_ready()


def test_answers_of_batches_whose_size_varies_equal_those_of_the_bare_runtime(place: Place) -> None:
    """triton-inference-server/server#2136: after batches of 10, 2 and 10 rows only 2 rows of the last answer were right."""
    data = models.slow(steps=8)
    session = onnxruntime.InferenceSession(data)
    worker = place.start(a_config(place.put("m.onnx", data), batch_size=BATCH)).wait_ready()
    random = np.random.default_rng(1)
    with callers.stub(worker) as stub:
        for rows in (10, 2, 10, 1, 16, 3, 40, 16, 1, 10):
            x = random.standard_normal((rows, 64)).astype(np.float32)

            y = callers.answer(stub.ModelInfer(callers.tensor_request(x)))

            assert np.allclose(y, session.run(None, {"x": x})[0], atol=1e-4)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_each_of_sixty_four_callers_gets_its_own_rows(echo: Worker, protocol: str) -> None:
    """SeldonIO/MLServer#1306, #903, #1911: one caller got the rows of all, the others none."""

    def over_http(number: int) -> list[list[float]]:
        found = []
        with Wire(echo.port) as wire:
            for turn in range(6):
                rows = [[float(number), float(turn * 10 + i)] for i in range(number % 3 + 1)]
                reply = wire.post(INFER, infer_json(rows, id=f"{number}-{turn}", outputs=[{"name": "same"}])).json
                if (reply["id"], reply["outputs"][0]["data"]) != (f"{number}-{turn}", [v for row in rows for v in row]):
                    found.append(reply)
        return found

    def over_grpc(number: int) -> list[list[float]]:
        found = []
        with callers.stub(echo) as stub:
            for turn in range(6):
                rows = [[float(number), float(turn * 10 + i)] for i in range(number % 3 + 1)]
                response = stub.ModelInfer(callers.rows_request(rows, id=f"{number}-{turn}", outputs=("same",)))
                if response.id != f"{number}-{turn}" or callers.answer(response).tolist() != rows:
                    found.append(response)
        return found

    call = over_http if protocol == "http" else over_grpc
    with ThreadPoolExecutor(64) as pool:
        assert [wrong for found in pool.map(call, range(64)) for wrong in found] == []


def test_callers_in_one_window_each_get_the_outputs_that_they_asked_for(place: Place) -> None:
    """SeldonIO/MLServer#514, #312: the outputs that the first request asked for were what all others got."""
    orders = Orders(place)
    config = a_config(place.put("m.onnx", models.two_outputs()), batch_size=BATCH)
    worker = place.start(config, patches=orders.patches()).wait_ready()
    wishes = [["same"], ["negated"], ["same", "negated"], ["negated", "same"], []] * 6
    orders.give("hold")
    wires = [Wire(worker.port) for _ in wishes]
    for i, (wire, names) in enumerate(zip(wires, wishes, strict=True)):
        wire.send(request("POST", INFER, infer_json([[float(i), 1.0]], outputs=[{"name": name} for name in names])))
    until(lambda: callers.queued(worker) + callers.running(worker) == len(wishes), "all in one window")
    orders.take_back("hold")

    for i, (wire, names) in enumerate(zip(wires, wishes, strict=True)):
        answers = {out["name"]: out["data"] for out in wire.read().json["outputs"]}
        assert answers == {name: [i, 1.0] if name == "same" else [-i, -1.0] for name in names or ["same", "negated"]}
    assert len(orders.runs) < len(wishes)


TEXTS = [["", "plain"], ["a\0b", "größe ✓"], ["x" * 70_000, " "], ["b'q'", '\n\r\t\\"']]


@pytest.fixture(scope="module")
def strings(shared_place: Place) -> Worker:
    config = a_config(shared_place.put("text.onnx", models.identity(models.STRING)), batch_size=BATCH)
    return shared_place.start(config).wait_ready()


def framed(values: list[bytes]) -> bytes:
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


@pytest.mark.parametrize("form", ["nested", "flat", "binary", "grpc raw", "grpc typed"])
def test_texts_come_back_as_they_went(strings: Worker, form: str) -> None:
    """SeldonIO/MLServer#1718; triton-inference-server/server#4405, #7391, #3524: shapes and lengths of BYTES tensors were wrong."""
    flat = [text for row in TEXTS for text in row]
    raw = framed([text.encode() for text in flat])
    if form.startswith("grpc"):
        message = callers.tensor_request(np.empty(0), "BYTES")
        message.inputs[0].shape[:] = [4, 2]
        if form == "grpc raw":
            message.raw_input_contents[0] = raw
        else:
            del message.raw_input_contents[:]
            message.inputs[0].contents.bytes_contents.extend(text.encode() for text in flat)
        with callers.stub(strings) as stub:
            response = stub.ModelInfer(message)
        assert list(response.outputs[0].shape) == [4, 2]
        if form == "grpc raw":
            assert response.raw_output_contents[0] == raw
        else:
            assert [value.decode() for value in response.outputs[0].contents.bytes_contents] == flat
        return
    entry = {"name": "x", "datatype": "BYTES", "shape": [4, 2]}
    if form == "binary":
        document = {"inputs": [{**entry, "parameters": {"binary_data_size": len(raw)}}], "parameters": {"binary_data_output": True}}
        head = json.dumps(document).encode()
        reply = post(strings.port, INFER, head + raw, {"Inference-Header-Content-Length": str(len(head))})
        size = int(reply.headers["inference-header-content-length"])
        assert reply.body[size:] == raw and json.loads(reply.body[:size])["outputs"][0]["shape"] == [4, 2]
        return
    reply = post(strings.port, INFER, json.dumps({"inputs": [{**entry, "data": TEXTS if form == "nested" else flat}]}).encode())
    assert (reply.json["outputs"][0]["data"], reply.json["outputs"][0]["shape"]) == (flat, [4, 2])


@pytest.mark.parametrize(
    "raw",
    [
        framed([b"a", b"b"])[:-1],
        framed([b"a"]),
        framed([b"a", b"b", b"c"]),
        framed([b"a"]) + b"\xff\xff\xff\xff",
        framed([b"a"]) + b"\xff\xff\xff\x7fb",
        framed([b"a"]) + b"\1\0",
        framed([b"a", b"\xff\xfe"]),
        b"",
    ],
    ids=["cut off", "too few", "too many", "overflow", "beyond", "half a length", "no UTF-8", "nothing"],
)
def test_garbled_texts_are_refused_and_the_next_request_is_answered(strings: Worker, raw: bytes) -> None:
    """triton-inference-server/server#4405, #7391: garbled framing of BYTES read beyond the request or failed all after it."""
    head = json.dumps(
        {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 2], "parameters": {"binary_data_size": len(raw)}}]}
    ).encode()
    message = callers.tensor_request(np.zeros((1, 2)), "BYTES")
    message.raw_input_contents[0] = raw

    assert post(strings.port, INFER, head + raw, {"Inference-Header-Content-Length": str(len(head))}).status == 400
    with callers.stub(strings) as stub:
        assert callers.code_of(lambda: stub.ModelInfer(message)) == "INVALID_ARGUMENT"
        message.raw_input_contents[0] = framed([b"fine", b"again"])
        assert stub.ModelInfer(message).raw_output_contents[0] == framed([b"fine", b"again"])


def test_a_text_in_the_model_that_is_no_utf_8_is_the_models_fault_and_not_the_callers(place: Place) -> None:
    """SeldonIO/MLServer#1718 turned around: bytes that are no text may come out of a model as well as go in."""
    texts: list[Any] = [b"\xff\xfe", b"one"]
    label = helper.make_tensor("names", models.STRING, [2], texts)
    nodes = [helper.make_node("Gather", ["names", "i"], ["text"])]
    graph = helper.make_graph(
        nodes, "g", [models.tensor("i", models.INT64, ["N"])], [models.tensor("text", models.STRING, ["N"])], [label]
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    worker = place.start(a_config(place.put("m.onnx", data))).wait_ready()

    def ask(index: int) -> int:
        entry = {"name": "i", "datatype": "INT64", "shape": [1], "data": [index]}
        return post(worker.port, INFER, json.dumps({"inputs": [entry]}).encode()).status

    assert (ask(0), ask(1)) == (500, 200)


def test_a_model_that_loses_the_batch_dimension_is_not_batched_and_says_why(place: Place) -> None:
    """triton-inference-server/server#5334: an output without the batch dimension made the batcher hand out wrong rows."""
    worker = place.start(a_config(place.put("m.onnx", models.column_sums()), batch_size=BATCH)).wait_ready()
    config = get(worker.port, "/v2/models/net/config").json

    assert config["max_batch_size"] == 0 and "dynamic_batching" not in config
    assert "'sums'" in config["parameters"]["not_batched_because"]["string_value"]

    def call(number: int) -> bool:
        rows = [[float(number), 1.0]] * 3
        return post(worker.port, INFER, infer_json(rows)).json["outputs"][0]["data"] == [3.0 * number, 3.0]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(64)))


def test_one_bad_item_is_refused_alone(place: Place) -> None:
    """Lightning-AI/LitServe#340: one bad request failed the whole batch."""
    orders = Orders(place)
    config = a_config(place.put("m.onnx", models.gather()), batch_size=BATCH)
    worker = place.start(config, patches=orders.patches()).wait_ready()
    orders.give("hold")
    indices = [3, 99, 7, 1, 2, -50, 5, 4]
    wires = [Wire(worker.port) for _ in indices]
    for wire, index in zip(wires, indices, strict=True):
        body = json.dumps({"inputs": [{"name": "i", "datatype": "INT64", "shape": [1], "data": [index]}]}).encode()
        wire.send(request("POST", INFER, body))
    until(lambda: callers.queued(worker) + callers.running(worker) == len(indices), "all in one window")
    orders.take_back("hold")

    replies = [wire.read() for wire in wires]

    assert [reply.status for reply in replies] == [200, 400, 200, 200, 200, 400, 200, 200]
    assert [r.json["outputs"][0]["data"] for r in replies if r.status == 200] == [[3.0], [7.0], [1.0], [2.0], [5.0], [4.0]]
    assert max(orders.runs) > 1
    assert callers.metric(worker, "inference_breaker_opened_total") == 0

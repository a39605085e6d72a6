"""A real worker that serves, asked by Triton's own client and by callers who misbehave."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from onnx import helper
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from inference_protocol.messages import LIVE_PATH, STARTED_PATH
from inference_worker.datatypes import HALVES, NUMPY, is_real
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from tests.process import models
from tests.process.harness import Worker, a_config, until
from tests.process.wire import PATIENCE_SECONDS, Wire, get, infer_json, post, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place

INFER = "/v2/models/net/infer"
# BF16 has a model of its own: no runtime call takes it beside texts.
KINDS = {name: dtype for name, dtype in NUMPY.items() if name != "BF16"}
NUMBERS = [name for name in NUMPY if name != "BYTES"]


def identities(names: list[str]) -> bytes:
    """in_T [N, 3] -> out_T, unchanged, for each datatype T."""
    kinds = [(name, models.BY_DATATYPE[name]) for name in names]
    return models.model(
        [helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]) for name, _ in kinds],
        [models.tensor(f"in_{name}", kind, ["N", 3]) for name, kind in kinds],
        [models.tensor(f"out_{name}", kind, ["N", 3]) for name, kind in kinds],
    )


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    """x [N, 2] -> same, negated."""
    return shared_place.start(a_config(shared_place.put("two.onnx", models.two_outputs()), batch_size=4096)).wait_ready()


def test_a_startup_probe_that_is_asked_before_the_worker_has_begun_is_answered_once_and_well(shared_place: Place) -> None:
    """Each refusal on the way would be an event `Unhealthy`, though nothing is wrong."""
    started = shared_place.start(a_config(shared_place.put("started.onnx", models.two_outputs())))
    # The kernel takes the connection from the moment on that the port is open: long before Python has imported the runtime.
    until(lambda: not started.running or listens(started.health_port), "an open port")

    assert get(started.health_port, STARTED_PATH).status == 200
    assert get(started.port, "/v2/health/ready").status == 200


def test_a_connection_to_the_health_port_is_kept_for_the_next_poll(worker: Worker) -> None:
    """The operator polls several times a second: a connection for each would cost both sides three times as much."""
    with socket.create_connection(("127.0.0.1", worker.health_port), timeout=PATIENCE_SECONDS) as poll:
        for _ in range(3):
            poll.sendall(f"GET {LIVE_PATH} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
            assert poll.recv(4096).startswith(b"HTTP/1.1 200 ")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def all_types(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("all.onnx", identities(list(KINDS))))).wait_ready()


@pytest.fixture(scope="module")
def half_type(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("half.onnx", identities(["BF16"])))).wait_ready()


@contextmanager
def talking(worker: Worker) -> Iterator[triton.InferenceServerClient]:
    made = triton.InferenceServerClient(f"127.0.0.1:{worker.port}", network_timeout=60.0)
    yield made
    made.close()


@pytest.fixture
def client(all_types: Worker) -> Iterator[triton.InferenceServerClient]:
    with talking(all_types) as made:
        yield made


def samples(datatype: str) -> np.ndarray:
    dtype = NUMPY[datatype]
    if datatype == "BYTES":
        return np.array([["", "a\0b", "größe ✓"], ["x" * 1000, "b'q'", " "]], dtype=object)
    if datatype == "BOOL":
        return np.array([[True, False, True], [False, False, True]])
    limits = ml_dtypes.finfo(dtype) if is_real(np.zeros(1, dtype)) else np.iinfo(dtype)
    return np.array([[limits.min, limits.max, 1], [0, 5, 3]], dtype=dtype)


def ask(client: triton.InferenceServerClient, datatype: str, *, binary_in: bool, binary_out: bool) -> np.ndarray:
    inputs = []
    for name, dtype in KINDS.items() if datatype in KINDS else [(datatype, NUMPY[datatype])]:
        data = samples(name) if name == datatype else np.full((2, 3), "" if name == "BYTES" else 0, dtype)
        tensor = triton.InferInput(f"in_{name}", list(data.shape), name)
        tensor.set_data_from_numpy(data, binary_data=binary_in or name in HALVES or name != datatype)
        inputs.append(tensor)
    wanted = triton.InferRequestedOutput(f"out_{datatype}", binary_data=binary_out)
    result = client.infer("net", inputs, outputs=[wanted], request_id="r-1")
    assert result.get_response()["id"] == "r-1" and len(result.get_response()["outputs"]) == 1
    return result.as_numpy(f"out_{datatype}")


@pytest.mark.parametrize("binary_out", [True, False], ids=["binary out", "json out"])
@pytest.mark.parametrize("binary_in", [True, False], ids=["binary in", "json in"])
@pytest.mark.parametrize("datatype", NUMBERS)
def test_tritons_client_gets_back_what_it_sent(
    all_types: Worker, half_type: Worker, *, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    with talking(all_types if datatype in KINDS else half_type) as client:
        if datatype in HALVES and not binary_out:
            with pytest.raises(InferenceServerException, match="binary"):
                ask(client, datatype, binary_in=True, binary_out=False)
            return

        back = ask(client, datatype, binary_in=binary_in, binary_out=binary_out)

    assert np_to_triton_dtype(back.dtype) == datatype
    assert np.array_equal(back, samples(datatype))


@pytest.mark.parametrize("binary_out", [True, False], ids=["binary out", "json out"])
@pytest.mark.parametrize("binary_in", [True, False], ids=["binary in", "json in"])
def test_tritons_client_gets_back_the_texts_it_sent(
    client: triton.InferenceServerClient, *, binary_in: bool, binary_out: bool
) -> None:
    back = ask(client, "BYTES", binary_in=binary_in, binary_out=binary_out)

    assert [v.decode() if isinstance(v, bytes) else v for v in back.ravel()] == samples("BYTES").ravel().tolist()


def test_tritons_client_understands_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert (
        client.is_server_live() and client.is_server_ready() and client.is_model_ready("net") and client.is_model_ready("net", "1")
    )
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("net")
    assert {i["name"]: (i["datatype"], i["shape"]) for i in metadata["inputs"]} == {f"in_{n}": (n, [-1, 3]) for n in KINDS}


def test_tritons_client_reads_our_errors(client: triton.InferenceServerClient) -> None:
    tensor = triton.InferInput("nobody", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, np.float32))

    with pytest.raises(InferenceServerException, match="unknown input 'nobody'"):
        client.infer("net", [tensor])


def test_sixty_four_callers_at_once_each_get_their_own_answers(worker: Worker) -> None:
    def call(number: int) -> list[str]:
        faults = []
        with Wire(worker.port) as wire:
            for turn in range(8):
                rows = [[float(number), float(turn)]] * (turn % 3 + 1)
                wanted = [{"name": ["same", "negated"][(number + turn) % 2]}]
                reply = wire.post(INFER, infer_json(rows, id=f"{number}-{turn}", outputs=wanted)).json
                sign = -1 if wanted[0]["name"] == "negated" else 1
                if (reply["id"], [o["name"] for o in reply["outputs"]]) != (f"{number}-{turn}", [wanted[0]["name"]]) or reply[
                    "outputs"
                ][0]["data"] != [sign * v for row in rows for v in row]:
                    faults.append(f"{number}-{turn} got {reply}")
        return faults

    with ThreadPoolExecutor(64) as pool:
        assert [fault for faults in pool.map(call, range(64)) for fault in faults] == []


def test_a_pipeline_is_answered_in_order(worker: Worker) -> None:
    bodies = [infer_json([[i, i]], id=str(i)) for i in range(50)]

    with Wire(worker.port) as wire:
        wire.send(b"".join(request("POST", INFER, body) for body in bodies))
        assert [wire.read().json["id"] for _ in bodies] == [str(i) for i in range(50)]


def test_a_large_tensor_comes_back_whole(worker: Worker) -> None:
    rows = np.random.default_rng(2).standard_normal((1 << 20, 2)).astype(np.float32)
    entry = {"name": "x", "datatype": "FP32", "shape": list(rows.shape), "parameters": {"binary_data_size": rows.nbytes}}
    head = json.dumps({"inputs": [entry], "outputs": [{"name": "negated", "parameters": {"binary_data": True}}]}).encode()

    reply = post(worker.port, INFER, head + rows.tobytes(), {"Inference-Header-Content-Length": str(len(head))})

    assert reply.status == 200
    size = int(reply.headers["inference-header-content-length"])
    assert np.array_equal(np.frombuffer(reply.body[size:], np.float32).reshape(rows.shape), -rows)


def test_a_body_over_the_limit_is_refused_by_its_announcement(worker: Worker) -> None:
    with Wire(worker.port) as wire:
        reply = wire.send(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n" % INFER.encode()).read()

        assert reply.status == 413 and wire.closed()
    assert worker.answers("/v2/health/ready") == 200


def test_a_caller_that_sends_all_of_a_refused_body_hears_why(worker: Worker) -> None:
    """Programs and proxies send before they read: a reset in the middle looks like a worker that is gone."""
    body = bytes(BODY_LIMIT_BYTES + (1 << 20))
    for _ in range(5):
        with Wire(worker.port) as wire:
            reply = wire.send(request("POST", INFER, body)).read()
            assert reply.status == 413 and "bytes" in reply.error


def test_callers_who_leave_in_the_middle_leave_nothing_behind(worker: Worker) -> None:
    body = request("POST", INFER, infer_json([[1, 2]] * 1000))
    for cut in (1, 20, len(body) // 2, len(body) - 1, len(body)):
        for reset in (False, True):
            with Wire(worker.port) as wire:
                wire.send(body[:cut])
                if reset:
                    # Closing with a linger of zero resets the connection instead of ending it.
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    until(lambda: get(worker.port, "/telemetry").json.get("queued", 0) == 0, "an empty queue")
    assert post(worker.port, INFER, infer_json([[1, 2]])).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": [{"name": ["x"], "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], "parameters": "p"}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}], "outputs": [{"name": {}}]}',
    ],
    ids=["name", "parameters", "output name"],
)
def test_a_malformed_request_is_answered_at_once(worker: Worker, body: bytes) -> None:
    with Wire(worker.port, patience=0.7) as wire:
        assert wire.post(INFER, body).status == 400


def by_status(worker: Worker) -> dict[str, float]:
    text = get(worker.port, "/metrics").body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {s.labels["code"]: s.value for s in families["inference_requests"].samples if s.name == "inference_requests_total"}


def test_counters_equal_the_requests_that_were_sent(shared_place: Place) -> None:
    worker = shared_place.start(a_config(shared_place.put("count.onnx", models.identity()))).wait_ready()
    sent: list[Any] = [infer_json([[1, 2]])] * 5 + [b"{"] * 4

    statuses = [post(worker.port, INFER, body).status for body in sent]
    get(worker.port, "/v2/nothing")

    assert statuses == [200] * 5 + [400] * 4
    assert {code: value for code, value in by_status(worker).items() if value} == {"200": 5, "400": 4}
    telemetry = get(worker.port, "/telemetry").json
    assert (telemetry["ready"], telemetry["requestsTotal"], telemetry["failedTotal"]) == (True, 9, 4)
    assert telemetry["model"]["provider"] == "CPUExecutionProvider"

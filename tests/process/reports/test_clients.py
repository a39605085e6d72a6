"""What clients ask for beside tensors, where other servers crash or answer wrong: health, reflection, classes, shared memory."""

from __future__ import annotations

import contextlib
import os
import queue
import uuid
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from inference_worker.serve.grpc_health import SERVICE as HEALTH
from inference_worker.serve.grpc_reflection import REFLECTIONS
from tests.process import models
from tests.process.callers import running
from tests.process.harness import a_config, until
from tests.process.scripted import Orders
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place, Worker

PATIENCE = 60.0
SERVING = b"\x08\x01"
BOTH = pytest.mark.parametrize("kind", [over_http, over_grpc], ids=["http", "grpc"])


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    """x [N, M] -> y, unchanged."""
    data = models.identity(shape=["N", "M"])
    return shared_place.start(a_config(shared_place.put("free.onnx", data), batch_size=8, shared_memory=True)).wait_ready()


@contextlib.contextmanager
def talking(worker: Worker, kind: Any) -> Iterator[Any]:
    client = kind.InferenceServerClient(f"127.0.0.1:{worker.port if kind is over_http else worker.grpc_port}")
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def memory(size: int) -> Iterator[tuple[str, Any]]:
    """A file in shared memory: its key, and its handle."""
    key = f"/test_{uuid.uuid4()}"
    handle = shm.create_shared_memory_region(key, key, size)
    try:
        yield key, handle
    finally:
        shm.destroy_shared_memory_region(handle)


def tensor(kind: Any, x: np.ndarray) -> Any:
    made = kind.InferInput("x", list(x.shape), "FP32")
    made.set_data_from_numpy(x)
    return made


def test_kubernetes_own_probe_finds_a_ready_worker(worker: Worker) -> None:
    """triton-inference-server/server PR #5267, vllm-project/vllm PR #38016: no grpc.health.v1, so probes only saw the port."""
    with Wire2(worker) as wire2:
        assert wire2.call(f"/{HEALTH}/Check", message(b"")).messages == [SERVING]


def test_tools_learn_what_there_is_to_call(worker: Worker) -> None:
    """triton-inference-server/server#8429, tensorflow/serving#2148: no reflection, so tools needed the files."""
    for reflection in REFLECTIONS:
        with Wire2(worker) as wire2:
            (told,) = wire2.call(reflection.path, message(b"\x3a\x01*")).messages
        assert b"inference.GRPCInferenceService" in told


@BOTH
def test_each_row_of_a_batch_has_classes_of_its_own(worker: Worker, kind: Any) -> None:
    """triton-inference-server/server#5420: with several images in one request all had the classes of one."""
    x = np.array([[0, 3, 1], [9, 2, 4], [1, 1, 5]], np.float32)
    with talking(worker, kind) as client:
        found = client.infer("net", [tensor(kind, x)], outputs=[kind.InferRequestedOutput("y", class_count=1)]).as_numpy("y")
    assert found.tolist() == [[b"3.000000:1"], [b"9.000000:0"], [b"5.000000:2"]]


@BOTH
def test_more_classes_than_there_are_give_all_of_them(worker: Worker, kind: Any) -> None:
    """triton-inference-server/server PR #1984: the shape had as many as were asked for."""
    with talking(worker, kind) as client:
        x = np.array([[0, 3, 1]], np.float32)
        found = client.infer("net", [tensor(kind, x)], outputs=[kind.InferRequestedOutput("y", class_count=100)]).as_numpy("y")
    assert found.tolist() == [[b"3.000000:1", b"1.000000:2", b"0.000000:0"]]


@BOTH
def test_the_offset_of_a_region_counts_where_it_ends(worker: Worker, kind: Any) -> None:
    """triton-inference-server/server PR #8335: the check left the region's own offset out."""
    with talking(worker, kind) as client, memory(4096) as (key, handle):
        shm.set_shared_memory_region(handle, [np.array([7, 8], np.float32)], offset=4088)
        with pytest.raises(InferenceServerException, match="4097"):
            client.register_system_shared_memory("beyond", key, 9, offset=4088)
        client.register_system_shared_memory("end", key, 8, offset=4088)
        sent = kind.InferInput("x", [1, 2], "FP32")
        sent.set_shared_memory("end", 8)
        assert client.infer("net", [sent]).as_numpy("y").tolist() == [[7, 8]]
        for size, offset in ((8, 1), (9, 0), (8, 2**40 - 8)):
            sent.set_shared_memory("end", size, offset=offset)
            with pytest.raises(InferenceServerException):
                client.infer("net", [sent])
        client.unregister_system_shared_memory("end")


def test_a_region_that_goes_while_it_is_used_ends_no_worker(place: Place) -> None:
    """triton-inference-server/server#3207: unregistered before the answer was there, it crashed the server."""
    orders = Orders(place)
    config = a_config(place.put("m.onnx", models.identity()), shared_memory=True)
    worker = place.start(config, patches=orders.patches()).wait_ready()
    x = np.array([[1, 2]], np.float32)
    with talking(worker, over_grpc) as client, memory(4096) as (key, handle):
        shm.set_shared_memory_region(handle, [x])
        client.register_system_shared_memory("region", key, 4096)
        sent, got = over_grpc.InferInput("x", [1, 2], "FP32"), over_grpc.InferRequestedOutput("y")
        sent.set_shared_memory("region", 8)
        got.set_shared_memory("region", 8, offset=8)
        done: queue.Queue[Any] = queue.Queue()
        orders.give("hold")
        client.async_infer("net", [sent], lambda result, error: done.put(error), outputs=[got])
        until(lambda: running(worker) == 1, "the run")
        client.unregister_system_shared_memory()
        os.truncate(f"/dev/shm{key}", 0)
        orders.take_back("hold")
        assert "not registered" in str(done.get(timeout=PATIENCE))
        assert client.infer("net", [tensor(over_grpc, x)]).as_numpy("y").tolist() == [[1, 2]]


def test_a_stream_says_which_of_its_requests_failed(worker: Worker) -> None:
    """triton-inference-server/server PR #3088: the error named no request, so its caller could not tell which of many failed."""
    tensor_of = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    whole = np.ones(2, np.float32).tobytes()
    requests = [
        pb.ModelInferRequest(model_name=name, model_version=version, id=identity, inputs=[tensor_of], raw_input_contents=[raw])
        for identity, name, version, raw in (
            ("good", "net", "", whole),
            ("short", "net", "1", whole[1:]),
            ("foreign", "other", "", whole),
            ("old", "net", "7", whole),
        )
    ]
    with grpc.insecure_channel(f"127.0.0.1:{worker.grpc_port}") as channel:
        told = list(GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(requests), timeout=PATIENCE))

    assert [bool(one.error_message) for one in told] == [False, True, True, True]
    assert [one.infer_response.id for one in told] == ["good", "short", "foreign", "old"]
    assert [one.infer_response.model_name for one in told] == ["net", "net", "other", "net"]
    assert [one.infer_response.model_version for one in told[1:]] == ["1", "", "7"]

"""What the simple examples of Triton's client do, done over the models that they are written for: `simple` and `simple_string`.

Each test is named after the example whose calls it makes (triton-inference-server/client, src/python/examples). Two checks of theirs
can't hold here and are left out: that the server is called "triton", and that a load may bring its own configuration.
"""

from __future__ import annotations

import contextlib
import os
import queue
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.grpc.aio as over_grpc_aio
import tritonclient.http as over_http
import tritonclient.http.aio as over_http_aio
import tritonclient.utils.shared_memory as shm
from onnx import TensorProto, helper
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, triton_to_np_dtype

from tests.process import callers, models
from tests.process.harness import a_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place, Worker

PATIENCE = 60.0
FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
SECOND = np.ones((1, 16), np.int32)
NAMES = ("INPUT0", "INPUT1")
OUTPUTS = ("OUTPUT0", "OUTPUT1")


def simple(kind: int = TensorProto.INT32) -> bytes:
    """INPUT0, INPUT1 [N, 16] -> OUTPUT0, their sum, and OUTPUT1, their difference."""
    return models.model(
        [helper.make_node("Add", NAMES, ["OUTPUT0"]), helper.make_node("Sub", NAMES, ["OUTPUT1"])],
        [models.tensor(name, kind, ["N", 16]) for name in NAMES],
        [models.tensor(name, kind, ["N", 16]) for name in OUTPUTS],
    )


def simple_string() -> bytes:
    """The same with the numbers as texts."""
    nodes = [helper.make_node("Cast", [name], [f"{name}_n"], to=TensorProto.INT32) for name in NAMES]
    numbers = [f"{name}_n" for name in NAMES]
    nodes += [helper.make_node("Add", numbers, ["sum"]), helper.make_node("Sub", numbers, ["difference"])]
    nodes += [
        helper.make_node("Cast", [kind], [name], to=TensorProto.STRING)
        for kind, name in zip(("sum", "difference"), OUTPUTS, strict=True)
    ]
    return models.model(
        nodes,
        [models.tensor(name, models.STRING, ["N", 16]) for name in NAMES],
        [models.tensor(name, models.STRING, ["N", 16]) for name in OUTPUTS],
    )


def started(place: Place, name: str, data: bytes, **config: Any) -> Worker:
    uri = place.put(f"{name}.onnx", data)
    model = msgspec.structs.replace(a_config(uri).model, name=name)
    return place.start(a_config(uri, model=model, batch_size=8, model_control="explicit", **config)).wait_ready()


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    return started(shared_place, "simple", simple(), shared_memory=True)


@pytest.fixture(scope="module")
def texts(shared_place: Place) -> Worker:
    return started(shared_place, "simple_string", simple_string(), shared_memory=True)


@pytest.fixture(scope="module")
def closed(shared_place: Place) -> Worker:
    """Its job allows no shared memory."""
    return started(shared_place, "simple", simple())


def address(worker: Worker, kind: Any) -> str:
    return f"127.0.0.1:{worker.port if kind in (over_http, over_http_aio) else worker.grpc_port}"


@contextlib.contextmanager
def talking(worker: Worker, kind: Any) -> Iterator[Any]:
    client = kind.InferenceServerClient(address(worker, kind))
    try:
        yield client
    finally:
        client.close()


def given(kind: Any, *, datatype: str = "INT32", binary: bool = True) -> list[Any]:
    made = []
    for name, data in zip(NAMES, (FIRST, SECOND), strict=True):
        array = np.array([str(value).encode() for value in data.ravel()], object).reshape(1, 16) if datatype == "BYTES" else data
        made.append(kind.InferInput(name, [1, 16], datatype))
        made[-1].set_data_from_numpy(array, **({"binary_data": binary} if kind is over_http else {}))
    return made


def wanted(kind: Any, *, binary: bool = True) -> list[Any]:
    how = {"binary_data": binary} if kind is over_http else {}
    return [kind.InferRequestedOutput(name, **how) for name in OUTPUTS]


def check(result: Any) -> None:
    assert np.array_equal(result.as_numpy("OUTPUT0"), FIRST + SECOND)
    assert np.array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)


BOTH = pytest.mark.parametrize("kind", [over_http, over_grpc], ids=["http", "grpc"])


@BOTH
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_simple_infer_client(worker: Worker, kind: Any, compression: str | None) -> None:
    how: dict[str, Any] = {}
    if compression is not None:
        asked = {"request_compression_algorithm": compression, "response_compression_algorithm": compression}
        how = asked if kind is over_http else {"compression_algorithm": compression}
    headers = {"test": "1", "dummy": "2"}
    with talking(worker, kind) as client:
        check(client.infer("simple", given(kind), outputs=wanted(kind), headers=headers, **how))
        check(client.infer("simple", given(kind), request_id="1", **how))
        statistics = client.get_inference_statistics("simple", headers=headers)
        listed = statistics["model_stats"] if kind is over_http else statistics.model_stats
        assert len(listed) == 1
        with pytest.raises(InferenceServerException, match="Request for unknown model"):
            client.infer("wrong_model_name", given(kind))


def test_simple_http_infer_client_with_json_and_binary_tensors_side_by_side(worker: Worker) -> None:
    with talking(worker, over_http) as client:
        inputs = [given(over_http, binary=True)[0], given(over_http, binary=False)[1]]
        outputs = [wanted(over_http, binary=False)[0], wanted(over_http, binary=True)[1]]
        check(client.infer("simple", inputs, outputs=outputs, query_params={"test_1": 1, "test_2": 2}))


@BOTH
def test_simple_async_infer_client(worker: Worker, kind: Any) -> None:
    with talking(worker, kind) as client:
        if kind is over_http:
            for call in [client.async_infer("simple", given(kind), outputs=wanted(kind)) for _ in range(8)]:
                check(call.get_result())
            return
        done: queue.Queue[Any] = queue.Queue()
        for _ in range(8):
            client.async_infer("simple", given(kind), lambda result, error: done.put((result, error)), outputs=wanted(kind))
        for _ in range(8):
            result, error = done.get(timeout=PATIENCE)
            assert error is None
            check(result)


@pytest.mark.parametrize("kind", [over_http_aio, over_grpc_aio], ids=["http", "grpc"])
async def test_simple_aio_infer_client(worker: Worker, kind: Any) -> None:
    plain = over_http if kind is over_http_aio else over_grpc
    async with kind.InferenceServerClient(address(worker, kind)) as client:
        check(await client.infer("simple", given(plain), outputs=wanted(plain)))
        assert await client.is_server_ready() and await client.is_model_ready("simple")


@BOTH
def test_simple_string_infer_client(texts: Worker, kind: Any) -> None:
    for binary in (True, False) if kind is over_http else (True,):
        with talking(texts, kind) as client:
            result = client.infer("simple_string", given(kind, datatype="BYTES", binary=binary), outputs=wanted(kind))
        for name, right in zip(OUTPUTS, (FIRST + SECOND, FIRST - SECOND), strict=True):
            assert [int(value) for value in result.as_numpy(name).ravel()] == right.ravel().tolist()


@BOTH
def test_simple_health_metadata(worker: Worker, kind: Any) -> None:
    how: dict[str, Any] = {"query_params": {"test_1": 1}} if kind is over_http else {"headers": {"test": "1", "dummy": "2"}}
    with talking(worker, kind) as client:
        assert client.is_server_live(**how) and client.is_server_ready() and client.is_model_ready("simple")
        metadata, model = client.get_server_metadata(), client.get_model_metadata("simple", **how)
        config = client.get_model_config("simple")
        if kind is over_http:
            assert metadata["name"] and model["name"] == config["name"] == "simple"
        else:
            assert metadata.name and model.name == config.config.name == "simple"
        with pytest.raises(InferenceServerException, match="Request for unknown model"):
            client.get_model_metadata("wrong_model_name")


@BOTH
def test_simple_model_control(place: Place, kind: Any) -> None:
    worker = started(place, "simple", simple())
    with talking(worker, kind) as client:
        client.load_model("simple")
        assert client.is_model_ready("simple")
        with pytest.raises(InferenceServerException, match="failed to load"):
            client.load_model("simple", config='"parameters": {"config": {{"max_batch_size": "16"}}}')
        client.unload_model("simple")
        assert not client.is_model_ready("simple")
        with pytest.raises(InferenceServerException, match="failed to load"):
            client.load_model("wrong_model_name")
        client.load_model("simple")
        check(client.infer("simple", given(kind)))


@BOTH
def test_reuse_infer_objects_client(worker: Worker, kind: Any) -> None:
    """Inputs go by shared memory, then by the request again, with the same objects."""
    with talking(worker, kind) as client, regions(client) as region:
        inputs, outputs = given(kind), wanted(kind)
        check(client.infer("simple", inputs, outputs=outputs))
        for number, data in enumerate((FIRST, SECOND)):
            shm.set_shared_memory_region(region.handle, [data], offset=64 * number)
            inputs[number].set_shared_memory(region.name, 64, offset=64 * number)
        check(client.infer("simple", inputs, outputs=outputs))
        outputs[0].set_shared_memory(region.name, 64, offset=128)
        result = client.infer("simple", inputs, outputs=outputs)
        assert np.array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)
        assert np.array_equal(shm.get_contents_as_numpy(region.handle, np.int32, [1, 16], offset=128), FIRST + SECOND)
        outputs[0].unset_shared_memory()
        for number, data in enumerate((FIRST, SECOND)):
            inputs[number].set_data_from_numpy(data)
        check(client.infer("simple", inputs, outputs=outputs))


class Region:
    def __init__(self, size: int) -> None:
        self.name, self.key, self.size = f"region {uuid.uuid4()}", f"/test_{uuid.uuid4()}", size
        self.handle = shm.create_shared_memory_region(self.name, self.key, size)


@contextlib.contextmanager
def regions(client: Any, size: int = 4096) -> Iterator[Region]:
    """A region of shared memory that is registered, and goes whatever happens."""
    region = Region(size)
    try:
        client.register_system_shared_memory(region.name, region.key, size)
        yield region
    finally:
        with contextlib.suppress(InferenceServerException):
            client.unregister_system_shared_memory(region.name)
        shm.destroy_shared_memory_region(region.handle)


def answered(result: Any, name: str) -> tuple[str, list[int]]:
    output = result.get_output(name)
    return (output["datatype"], output["shape"]) if isinstance(output, dict) else (output.datatype, list(output.shape))


@BOTH
def test_simple_shm_client(worker: Worker, kind: Any) -> None:
    with talking(worker, kind) as client:
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory()
        with regions(client, 128) as sent, regions(client, 128) as got:
            shm.set_shared_memory_region(sent.handle, [FIRST])
            shm.set_shared_memory_region(sent.handle, [SECOND], offset=64)
            inputs = [kind.InferInput(name, [1, 16], "INT32") for name in NAMES]
            outputs = [kind.InferRequestedOutput(name) for name in OUTPUTS]
            for number in (0, 1):
                inputs[number].set_shared_memory(sent.name, 64, offset=64 * number)
                outputs[number].set_shared_memory(got.name, 64, offset=64 * number)
            result = client.infer("simple", inputs, outputs=outputs)
            for number, right in enumerate((FIRST + SECOND, FIRST - SECOND)):
                datatype, shape = answered(result, OUTPUTS[number])
                found = shm.get_contents_as_numpy(got.handle, triton_to_np_dtype(datatype), shape, offset=64 * number)
                assert np.array_equal(found, right)
            status = client.get_system_shared_memory_status()
            listed = {one["name"] for one in status} if kind is over_http else set(status.regions)
            assert listed == {sent.name, got.name}
            client.unregister_system_shared_memory()
            status = client.get_system_shared_memory_status()
            assert not (status if kind is over_http else status.regions)
            with pytest.raises(InferenceServerException, match="not registered"):
                client.infer("simple", inputs, outputs=outputs)


@BOTH
def test_simple_shm_string_client(texts: Worker, kind: Any) -> None:
    packed = [serialize_byte_tensor(np.array([str(v).encode() for v in data.ravel()], object)) for data in (FIRST, SECOND)]
    with talking(texts, kind) as client, regions(client) as sent, regions(client) as got:
        inputs, outputs, offset = [], [], 0
        for number, data in enumerate(packed):
            size = len(data.item())
            shm.set_shared_memory_region(sent.handle, [data], offset=offset)
            inputs.append(kind.InferInput(NAMES[number], [1, 16], "BYTES"))
            inputs[-1].set_shared_memory(sent.name, size, offset=offset)
            outputs.append(kind.InferRequestedOutput(OUTPUTS[number]))
            outputs[-1].set_shared_memory(got.name, 512, offset=512 * number)
            offset += size
        result = client.infer("simple_string", inputs, outputs=outputs)
        for number, right in enumerate((FIRST + SECOND, FIRST - SECOND)):
            _, shape = answered(result, OUTPUTS[number])
            found = shm.get_contents_as_numpy(got.handle, triton_to_np_dtype("BYTES"), shape, offset=512 * number)
            assert [int(value) for value in found.ravel()] == right.ravel().tolist()


@BOTH
def test_megabytes_in_shared_memory_come_back_beside_the_event_loop(shared_place: Place, kind: Any) -> None:
    worker = started(shared_place, "wide", models.identity(shape=["N", "M"]), shared_memory=True)
    x = np.random.default_rng(3).standard_normal((2, 1 << 20)).astype(np.float32)
    with talking(worker, kind) as client, regions(client, 2 * x.nbytes) as region:
        shm.set_shared_memory_region(region.handle, [x])
        (tensor, output) = kind.InferInput("x", list(x.shape), "FP32"), kind.InferRequestedOutput("y")
        tensor.set_shared_memory(region.name, x.nbytes)
        output.set_shared_memory(region.name, x.nbytes, offset=x.nbytes)
        for _ in range(5):
            client.infer("wide", [tensor], outputs=[output])
        assert np.array_equal(shm.get_contents_as_numpy(region.handle, np.float32, x.shape, offset=x.nbytes), x)
        tensor.set_shared_memory(region.name, x.nbytes - 4)
        with pytest.raises(InferenceServerException, match="no FP32 tensor"):
            client.infer("wide", [tensor])


@BOTH
def test_what_does_not_fit_shared_memory_is_refused_and_the_worker_lives(worker: Worker, kind: Any) -> None:
    with talking(worker, kind) as client, regions(client, 4096) as region:
        for name, key, size, offset in [
            ("a", region.key, 4097, 0),
            ("a", region.key, 1, 4096),
            ("a", "../etc/passwd", 1, 0),
            ("a", "/../etc/passwd", 1, 0),
            ("a", "nobody", 1, 0),
            ("a", "", 1, 0),
            (region.name, region.key, 1, 0),
        ]:
            with pytest.raises(InferenceServerException):
                client.register_system_shared_memory(name, key, size, offset=offset)
        inputs = given(kind)
        for size, offset in ((64, 4090), (4097, 0), (63, 0), (0, 0), (2**40, 0)):
            inputs[0].set_shared_memory(region.name, size, offset=offset)
            with pytest.raises(InferenceServerException):
                client.infer("simple", inputs)
        outputs = wanted(kind)
        outputs[0].set_shared_memory(region.name, 63)
        with pytest.raises(InferenceServerException, match="64 bytes"):
            client.infer("simple", given(kind), outputs=outputs)
        with pytest.raises(InferenceServerException, match="CUDA"):
            client.register_cuda_shared_memory("cuda", b"aGFuZGxl", 0, 64)
        with pytest.raises(InferenceServerException, match="not registered"):
            client.get_system_shared_memory_status("nobody")
        check(client.infer("simple", given(kind)))


@BOTH
def test_a_file_that_shrinks_under_a_worker_does_not_end_it(worker: Worker, kind: Any) -> None:
    """A mapped file that becomes shorter ends the process that reads it with SIGBUS."""
    with talking(worker, kind) as client, regions(client, 1 << 16) as region:
        inputs = given(kind)
        inputs[0].set_shared_memory(region.name, 64, offset=1 << 15)
        client.infer("simple", inputs)
        os.truncate(f"/dev/shm{region.key}", 100)
        with pytest.raises(InferenceServerException, match="100 now"):
            client.infer("simple", inputs)
        check(client.infer("simple", given(kind)))


@BOTH
def test_without_the_jobs_leave_no_file_is_opened(closed: Worker, kind: Any) -> None:
    region = Region(128)
    try:
        with talking(closed, kind) as client:
            client.unregister_system_shared_memory()
            with pytest.raises(InferenceServerException, match=r"serve\.sharedMemory"):
                client.register_system_shared_memory(region.name, region.key, 128)
            inputs = given(kind)
            inputs[0].set_shared_memory(region.name, 64)
            with pytest.raises(InferenceServerException, match=r"serve\.sharedMemory"):
                client.infer("simple", inputs)
            metadata = client.get_server_metadata()
            extensions = metadata["extensions"] if kind is over_http else metadata.extensions
            assert "system_shared_memory" not in extensions and "classification" in extensions
            check(client.infer("simple", given(kind)))
    finally:
        shm.destroy_shared_memory_region(region.handle)


@BOTH
def test_the_best_classes_of_each_row_come_as_texts(worker: Worker, kind: Any) -> None:
    """As image_client asks for them."""
    output = kind.InferRequestedOutput("OUTPUT0", class_count=3)
    with talking(worker, kind) as client:
        result = client.infer("simple", given(kind), outputs=[output])
        assert result.as_numpy("OUTPUT0").tolist() == [[b"16:15", b"15:14", b"14:13"]]
        check(client.infer("simple", given(kind)))


def test_simple_grpc_keepalive_and_custom_args_clients(worker: Worker) -> None:
    options = over_grpc.KeepAliveOptions(
        keepalive_time_ms=2**31 - 1, keepalive_timeout_ms=20000, keepalive_permit_without_calls=False
    )
    for how in ({"keepalive_options": options}, {"channel_args": [("grpc.max_send_message_length", 1 << 20)]}):
        with over_grpc.InferenceServerClient(address(worker, over_grpc), **how) as client:
            check(client.infer("simple", given(over_grpc), outputs=wanted(over_grpc)))


def test_one_stub_by_hand(worker: Worker) -> None:
    """grpc_client: the same calls by the generated stub."""
    with callers.stub(worker) as stub:
        request = pb.ModelInferRequest(model_name="simple", raw_input_contents=[FIRST.tobytes(), SECOND.tobytes()])
        for name in NAMES:
            request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        assert np.array_equal(callers.answer(stub.ModelInfer(request), np.int32), FIRST + SECOND)

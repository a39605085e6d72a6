"""Triton's own gRPC clients, blocking and asynchronous, against a real worker: everything of the protocol that they can ask for."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from onnx import TensorProto, helper
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from inference_protocol.reasons import WorkerReason
from inference_worker.datatypes import NUMPY
from tests.process import callers, models
from tests.process.harness import a_config
from tests.process.scripted import Orders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from tests.process.harness import Place, Worker

BF16 = {"BF16": TensorProto.BFLOAT16}
# ONNX Runtime's Python face takes texts and BF16 by two roads that do not meet.
KINDS = {name: kind for name, kind in models.BY_DATATYPE.items() if name != "BF16"}
FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
PATIENCE = 60.0


def every_datatype(kinds: Mapping[str, int] = KINDS) -> bytes:
    """in_T [N, M] -> out_T, unchanged, for each datatype T."""
    return models.model(
        [helper.make_node("Identity", [f"in_{name}"], [f"out_{name}"]) for name in kinds],
        [models.tensor(f"in_{name}", kind, ["N", "M"]) for name, kind in kinds.items()],
        [models.tensor(f"out_{name}", kind, ["N", "M"]) for name, kind in kinds.items()],
    )


@pytest.fixture(scope="module")
def all_types(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("all.onnx", every_datatype()))).wait_ready()


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    """x [N, 2] -> same, negated; may be loaded and unloaded."""
    config = a_config(shared_place.put("two.onnx", models.two_outputs()), batch_size=8, model_control="explicit")
    return shared_place.start(config).wait_ready()


@pytest.fixture(scope="module")
def wide(shared_place: Place) -> Worker:
    """x [N, M] -> y, unchanged."""
    config = a_config(shared_place.put("wide.onnx", models.identity(shape=["N", "M"])), batch_size=8)
    return shared_place.start(config).wait_ready()


@pytest.fixture
def client(worker: Worker) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as made:
        yield made


@pytest.fixture
async def aio(worker: Worker) -> AsyncIterator[triton_aio.InferenceServerClient]:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as made:
        yield made


def tensor(array: Any, datatype: str = "FP32", *, name: str = "x") -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def rows(*values: float) -> list[triton.InferInput]:
    return [tensor(np.array([[v, v + 1] for v in values], np.float32))]


def samples(datatype: str, shape: tuple[int, int] = (2, 3)) -> np.ndarray:
    if datatype == "BYTES":
        texts = [b"", b"a\0b", "größe ✓".encode(), b"x" * 1000, b"b'q'", b" "]
        return np.array(texts, dtype=object)[: shape[0] * shape[1]].reshape(shape)
    return np.arange(shape[0] * shape[1]).reshape(shape).astype(NUMPY[datatype])


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("datatype", KINDS)
def test_every_datatype_comes_back_as_it_went(all_types: Worker, datatype: str, shape: tuple[int, int]) -> None:
    inputs = [tensor(samples(name, shape), name, name=f"in_{name}") for name in KINDS]
    with triton.InferenceServerClient(f"127.0.0.1:{all_types.grpc_port}") as client:
        result = client.infer("net", inputs, outputs=[triton.InferRequestedOutput(f"out_{datatype}")])

    assert [out.name for out in result.get_response().outputs] == [f"out_{datatype}"]
    assert np.array_equal(result.as_numpy(f"out_{datatype}"), samples(datatype, shape))


def typed_request(shape: list[int], values: dict[str, list[Any]]) -> pb.ModelInferRequest:
    asked = pb.ModelInferRequest(model_name="net")
    for datatype, field in FIELDS.items():
        entry = asked.inputs.add(name=f"in_{datatype}", datatype=datatype, shape=shape)
        getattr(entry.contents, field).extend(values[datatype])
    return asked


def test_typed_contents_come_back_typed(shared_place: Place) -> None:
    data = every_datatype({name: KINDS[name] for name in FIELDS})
    worker = shared_place.start(a_config(shared_place.put("typed.onnx", data))).wait_ready()
    values: dict[str, list[Any]] = {name: [100, 1] for name in FIELDS}
    values |= {"BYTES": [b"", "größe".encode()], "BOOL": [True, False], "UINT64": [2**64 - 1, 0], "INT8": [-128, 127]}
    with callers.stub(worker) as stub:
        for shape, sent in (([1, 2], values), ([0, 2], {name: [] for name in FIELDS})):
            response = stub.ModelInfer(typed_request(shape, sent))
            back = {out.datatype: list(getattr(out.contents, FIELDS[out.datatype])) for out in response.outputs}
            assert back == sent and not response.raw_output_contents
        for wrong in ({"INT8": [128, 0]}, {"UINT16": [65536, 0]}, {"INT32": [1]}, {"BYTES": [b"\xff", b""]}):
            assert callers.code_of(lambda wrong=wrong: stub.ModelInfer(typed_request([1, 2], values | wrong))) == "INVALID_ARGUMENT"
        foreign = typed_request([1, 2], values)
        foreign.inputs[0].contents.fp64_contents.append(1)
        assert callers.code_of(lambda: stub.ModelInfer(foreign)) == "INVALID_ARGUMENT"


def test_a_model_that_takes_nothing_answers_in_the_form_that_the_client_reads(place: Place) -> None:
    """No tensor shows whether raw or typed contents are wanted, and Triton's client reads no typed numbers."""
    constant = place.start(a_config(place.put("constant.onnx", models.constant()))).wait_ready()

    with triton.InferenceServerClient(f"127.0.0.1:{constant.grpc_port}") as client:
        answer = client.infer("net", []).as_numpy("y")

    assert answer.tolist() == [1.0]


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("net") and client.is_model_ready("net", "1")
    server = client.get_server_metadata(as_json=True)
    assert server["name"] and server["version"] and "statistics" in server["extensions"]
    metadata = client.get_model_metadata("net", "1", as_json=True)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "2"]}]
    assert [out["name"] for out in metadata["outputs"]] == ["same", "negated"] and metadata["versions"] == ["1"]


def test_a_model_that_does_not_batch_describes_itself_too(place: Place) -> None:
    """Its documents say why, for which not every message has a field."""
    single = place.start(a_config(place.put("fixed.onnx", models.matmul(rows=2)))).wait_ready()

    with triton.InferenceServerClient(f"127.0.0.1:{single.grpc_port}") as client:
        metadata = client.get_model_metadata("net", as_json=True)
        config = client.get_model_config("net").config

    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["2", "4"]}]
    assert metadata["outputs"] == [{"name": "y", "datatype": "FP32", "shape": ["2", "3"]}]
    assert "2 rows" in config.parameters["not_batched_because"].string_value


def test_configuration_and_statistics(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("net").config
    assert (config.name, config.max_batch_size, [list(entry.dims) for entry in config.input]) == ("net", 8, [[2]])
    assert (config.platform, config.backend, list(config.version_policy.specific.versions)) == (
        "onnxruntime_onnx",
        "onnxruntime",
        [1],
    )
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching" and not config.model_transaction_policy.decoupled
    (group,) = config.instance_group
    assert (group.kind, group.count > 0, list(group.gpus)) == (group.KIND_CPU, True, [])
    before = client.get_inference_statistics("net").model_stats[0]
    client.infer("net", rows(1, 2, 3))
    after = client.get_inference_statistics().model_stats[0]
    assert after.inference_count - before.inference_count == 3
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1


def test_the_repository_is_listed_unloaded_and_loaded(client: triton.InferenceServerClient) -> None:
    assert [(m.name, m.version, m.state) for m in client.get_model_repository_index().models] == [("net", "1", "READY")]

    client.unload_model("net")
    assert not client.is_model_ready("net")
    (listed,) = client.get_model_repository_index().models
    assert (listed.state, listed.reason) == ("UNAVAILABLE", "unloaded")
    with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
        client.infer("net", rows(1))

    client.load_model("net")
    assert client.is_model_ready("net") and client.infer("net", rows(1)).as_numpy("same").tolist() == [[1, 2]]


def test_a_load_with_a_configuration_or_files_of_its_own_is_refused(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="INVALID_ARGUMENT"):
        client.load_model("net", config='{"max_batch_size": 1}')
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        client.load_model("nobody")


def test_an_inference_carries_its_id_its_version_and_the_outputs_asked_for(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("negated")]
    result = client.infer("net", rows(1, 5), model_version="1", outputs=wanted, request_id="größe-1")
    response = result.get_response()
    assert (response.model_name, response.model_version, response.id) == ("net", "1", "größe-1")
    assert [out.name for out in response.outputs] == ["negated"]
    assert result.as_numpy("negated").tolist() == [[-1, -2], [-5, -6]] and result.as_numpy("same") is None


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_a_compressed_call_is_answered(client: triton.InferenceServerClient, algorithm: str) -> None:
    assert client.infer("net", rows(*range(500)), compression_algorithm=algorithm).as_numpy("same").shape == (500, 2)


def test_another_configuration_is_refused_in_words(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=r"'config' is not supported.*batchSize") as caught:
        client.load_model("net", config='{"max_batch_size": 4}')

    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT" and client.is_model_ready("net")


def test_parameters_that_mean_nothing_to_us_are_passed_over(client: triton.InferenceServerClient) -> None:
    result = client.infer("net", rows(1), priority=1, timeout=20_000_000, parameters={"mine": "a", "flag": True, "count": 3})
    assert result.as_numpy("same").tolist() == [[1, 2]]


def test_twenty_megabytes_go_and_come(wide: Worker) -> None:
    x = np.random.default_rng(4).standard_normal((5, 1 << 20)).astype(np.float32)
    with triton.InferenceServerClient(f"127.0.0.1:{wide.grpc_port}") as client:
        assert np.array_equal(client.infer("net", [tensor(x)]).as_numpy("y"), x)


def test_asynchronous_calls_each_get_their_own_answer(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[Any] = queue.Queue()
    for i in range(50):
        client.async_infer("net", rows(i), callback=lambda result, error, i=i: done.put((i, error, result)))
    for _ in range(50):
        i, error, result = done.get(timeout=PATIENCE)
        assert error is None and result.as_numpy("same").tolist() == [[i, i + 1]]


def test_an_asynchronous_call_can_be_cancelled(place: Place) -> None:
    orders = Orders(place)
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches=orders.patches()).wait_ready()
    orders.give("hold")
    done: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        call = client.async_infer("net", rows(1), callback=lambda result, error: done.put(error))
        call.cancel()
        assert "CANCELLED" in str(done.get(timeout=PATIENCE).status())
        with pytest.raises(InferenceServerException, match=r"DEADLINE_EXCEEDED|Deadline"):
            client.infer("net", rows(1), client_timeout=0.2)
        with pytest.raises(InferenceServerException, match=r"DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED"):
            client.infer("net", rows(1), timeout=200_000)


def test_a_request_without_inputs_is_answered_in_the_form_that_clients_read(place: Place) -> None:
    """The answer came in typed contents, as if those had been sent, and Triton's client found no tensor in it."""
    worker = place.start(a_config(place.put("constant.onnx", models.constant()))).wait_ready()
    with triton.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        result = client.infer("net", [])

    assert result.as_numpy("y") is not None and result.get_response().raw_output_contents


def test_a_shape_built_from_the_configuration_is_taken(place: Place) -> None:
    """For an input [N] the dims are [1], of which clients build [rows, 1]: that was refused, and no `reshape` said why."""
    worker = place.start(a_config(place.put("flat.onnx", models.identity(shape=["N"])), batch_size=8)).wait_ready()
    with triton.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        config = client.get_model_config("net").config
        result = client.infer("net", [tensor(np.array([[1], [2]], np.float32))])

    for entry in (*config.input, *config.output):
        assert (list(entry.dims), entry.HasField("reshape"), list(entry.reshape.shape)) == ([1], True, [])
    assert result.as_numpy("y").tolist() == [1, 2]


def test_a_stream_answers_in_order_and_goes_on_after_a_fault(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: done.put((result, error)))
    for i in range(20):
        client.async_stream_infer("net", rows(i) if i != 7 else [tensor(np.zeros((1, 3), np.float32))], request_id=str(i))
    answers = [done.get(timeout=PATIENCE) for _ in range(20)]
    client.stop_stream()

    assert [str(error) for _, error in answers if error] and answers[7][1] is not None
    assert [r.get_response().id for r, _ in answers if r] == [str(i) for i in range(20) if i != 7]


def test_a_stream_that_asks_for_it_is_told_which_answer_is_the_last(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: done.put((result, error)))
    client.async_stream_infer("net", rows(1), enable_empty_final_response=True)
    result, _ = done.get(timeout=PATIENCE)
    client.stop_stream()

    assert result.get_response().parameters["triton_final_response"].bool_param


async def test_the_asyncio_client_is_served(aio: triton_aio.InferenceServerClient) -> None:
    assert await aio.is_server_live() and await aio.is_server_ready() and await aio.is_model_ready("net")
    assert (await aio.get_model_metadata("net")).name == "net" and (await aio.get_model_config("net")).config.name == "net"
    assert (await aio.get_inference_statistics("net")).model_stats[0].name == "net"
    assert [m.name for m in (await aio.get_model_repository_index()).models] == ["net"]
    result = await aio.infer("net", rows(3), request_id="a")
    assert result.as_numpy("negated").tolist() == [[-3, -4]] and result.get_response().id == "a"


async def test_the_asyncio_client_streams(aio: triton_aio.InferenceServerClient) -> None:
    async def asked() -> AsyncIterator[dict[str, Any]]:
        for i in range(30):
            yield {"model_name": "net", "inputs": rows(i), "request_id": str(i)}

    answers = [(result, error) async for result, error in aio.stream_infer(asked())]
    assert [result.get_response().id for result, _ in answers] == [str(i) for i in range(30)]
    assert not any(error for _, error in answers)


def test_an_output_in_shared_memory_is_refused(client: triton.InferenceServerClient) -> None:
    output = triton.InferRequestedOutput("same")
    output.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match=r"INVALID_ARGUMENT|UNIMPLEMENTED"):
        client.infer("net", rows(1), outputs=[output])


def test_an_input_in_shared_memory_is_refused(client: triton.InferenceServerClient) -> None:
    shared = triton.InferInput("x", [1, 2], "FP32")
    shared.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="INVALID_ARGUMENT"):
        client.infer("net", [shared])


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)], ids=str)
def test_bf16_comes_back_as_it_went(shared_place: Place, shape: tuple[int, int]) -> None:
    kinds = {**BF16, "FP16": models.HALF, "FP32": models.FLOAT}
    worker = shared_place.start(a_config(shared_place.put("bf16.onnx", every_datatype(kinds)))).wait_ready()
    with triton.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        result = client.infer("net", [tensor(samples(name, shape), name, name=f"in_{name}") for name in kinds])
    assert all(np.array_equal(result.as_numpy(f"out_{name}"), samples(name, shape)) for name in kinds)


def test_a_model_with_bf16_and_texts_is_refused_before_it_is_ready(place: Place) -> None:
    kinds = {**BF16, "BYTES": models.STRING}

    ended = place.run(a_config(place.put("m.onnx", every_datatype(kinds))))

    assert ended.said.reason == WorkerReason.MODEL_TYPE_UNSUPPORTED
    assert "BF16" in ended.said.message


def test_bytes_are_framed_as_the_client_frames_them(all_types: Worker) -> None:
    values = samples("BYTES")
    inputs = [tensor(samples(name), name, name=f"in_{name}") for name in KINDS]
    with triton.InferenceServerClient(f"127.0.0.1:{all_types.grpc_port}") as client:
        response = client.infer("net", inputs, outputs=[triton.InferRequestedOutput("out_BYTES")]).get_response()
    assert response.raw_output_contents[0] == serialize_byte_tensor(values).item()

"""Triton's own HTTP clients, blocking and asynchronous, against a real worker, and one table of errors for both protocols."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from tests.process import callers, models
from tests.process.callers import INFER
from tests.process.harness import a_config, until
from tests.process.scripted import Orders
from tests.process.test_conformance_grpc import KINDS, every_datatype, samples
from tests.process.wire import Wire, infer_json, post, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.process.harness import Place, Worker

CAP = 4


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
    made = triton.InferenceServerClient(f"127.0.0.1:{worker.port}", concurrency=4, network_timeout=60.0)
    yield made
    made.close()


@pytest.fixture
async def aio(worker: Worker) -> AsyncIterator[triton_aio.InferenceServerClient]:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{worker.port}") as made:
        yield made


def tensor(array: Any, datatype: str = "FP32", *, name: str = "x", binary: bool = True) -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def rows(*values: float) -> list[triton.InferInput]:
    return [tensor(np.array([[v, v + 1] for v in values], np.float32))]


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("datatype", KINDS)
def test_every_datatype_comes_back_as_it_went(all_types: Worker, datatype: str, shape: tuple[int, int], *, binary: bool) -> None:
    binary = binary or datatype in ("FP16", "BF16")
    inputs = [tensor(samples(name, shape), name, name=f"in_{name}", binary=binary or name != datatype) for name in KINDS]
    client = triton.InferenceServerClient(f"127.0.0.1:{all_types.port}")
    result = client.infer("net", inputs, outputs=[triton.InferRequestedOutput(f"out_{datatype}", binary_data=binary)])
    client.close()

    back = result.as_numpy(f"out_{datatype}")
    if datatype == "BYTES":
        back = np.array([v if isinstance(v, bytes) else v.encode() for v in back.ravel()], dtype=object).reshape(back.shape)
    assert np.array_equal(back, samples(datatype, shape)) and back.shape == shape


def test_configuration_statistics_and_repository(client: triton.InferenceServerClient) -> None:
    assert client.get_model_config("net", "1")["max_batch_size"] == 8
    assert client.get_inference_statistics("net", "1")["model_stats"][0]["name"] == "net"
    assert client.get_inference_statistics()["model_stats"][0]["version"] == "1"
    assert client.get_model_repository_index() == [{"name": "net", "version": "1", "state": "READY", "reason": ""}]

    client.unload_model("net")
    assert not client.is_model_ready("net") and not client.is_server_ready() and client.is_server_live()
    with pytest.raises(InferenceServerException, match="not loaded: unloaded"):
        client.infer("net", rows(1))
    client.load_model("net")
    assert client.is_model_ready("net", "1") and client.infer("net", rows(1)).as_numpy("same").tolist() == [[1, 2]]
    with pytest.raises(InferenceServerException, match="not supported"):
        client.load_model("net", config='{"max_batch_size": 1}')


def test_an_inference_carries_its_id_its_version_and_the_outputs_asked_for(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("negated", binary_data=False)]
    result = client.infer("net", rows(1), model_version="1", outputs=wanted, request_id="größe", priority=1, timeout=20_000_000)
    response = result.get_response()
    assert (response["id"], response["model_version"], [out["name"] for out in response["outputs"]]) == ("größe", "1", ["negated"])


def test_asynchronous_calls_each_get_their_own_answer(client: triton.InferenceServerClient) -> None:
    calls = [client.async_infer("net", rows(i)) for i in range(40)]
    assert [call.get_result().as_numpy("same").tolist() for call in calls] == [[[i, i + 1]] for i in range(40)]


def test_twenty_megabytes_go_and_come(wide: Worker) -> None:
    x = np.random.default_rng(4).standard_normal((5, 1 << 20)).astype(np.float32)
    client = triton.InferenceServerClient(f"127.0.0.1:{wide.port}")
    assert np.array_equal(client.infer("net", [tensor(x)]).as_numpy("y"), x)
    client.close()


async def test_the_asyncio_client_is_served(aio: triton_aio.InferenceServerClient) -> None:
    assert await aio.is_server_live() and await aio.is_server_ready() and await aio.is_model_ready("net")
    assert (await aio.get_model_metadata("net"))["name"] == (await aio.get_model_config("net"))["name"] == "net"
    result = await aio.infer("net", rows(3), request_id="a")
    assert result.as_numpy("negated").tolist() == [[-3, -4]] and result.get_response()["id"] == "a"


ERRORS: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown input": ({"name": "nobody"}, 400, "INVALID_ARGUMENT"),
    "unknown output": ({"outputs": ("nobody",)}, 400, "INVALID_ARGUMENT"),
    "wrong datatype": ({"datatype": "INT32"}, 400, "INVALID_ARGUMENT"),
    "wrong shape": ({"shape": [1, 3]}, 400, "INVALID_ARGUMENT"),
    "negative shape": ({"shape": [-1, 2]}, 400, "INVALID_ARGUMENT"),
    "unknown model": ({"model": "nobody"}, 404, "NOT_FOUND"),
    "unknown version": ({"version": "9"}, 404, "NOT_FOUND"),
    "no time at all": ({"timeout": 1}, 504, "DEADLINE_EXCEEDED"),
    "a priority below none": ({"priority": -1}, 400, "INVALID_ARGUMENT"),
}


def over_http(worker: Worker, wrong: dict[str, Any]) -> int:
    entry = {"name": wrong.get("name", "x"), "datatype": wrong.get("datatype", "FP32"), "shape": wrong.get("shape", [1, 2])}
    document: dict[str, Any] = {"inputs": [{**entry, "data": [1, 2]}], "outputs": [{"name": n} for n in wrong.get("outputs", ())]}
    document["parameters"] = {name: wrong[name] for name in ("timeout", "priority") if name in wrong}
    path = f"/v2/models/{wrong.get('model', 'net')}" + (f"/versions/{wrong['version']}" if "version" in wrong else "")
    return post(worker.port, f"{path}/infer", json.dumps(document).encode()).status


def over_grpc(worker: Worker, wrong: dict[str, Any]) -> str:
    asked = callers.rows_request([[1, 2]], name=wrong.get("name", "x"), outputs=wrong.get("outputs", ()))
    asked.model_name, asked.model_version = wrong.get("model", "net"), wrong.get("version", "")
    asked.inputs[0].datatype = wrong.get("datatype", "FP32")
    asked.inputs[0].shape[:] = wrong.get("shape", [1, 2])
    for name in ("timeout", "priority"):
        if name in wrong:
            asked.parameters[name].int64_param = wrong[name]
    with callers.stub(worker) as stub:
        return callers.code_of(lambda: stub.ModelInfer(asked))


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_its_status_in_both_protocols(worker: Worker, name: str) -> None:
    wrong, status, code = ERRORS[name]
    assert (over_http(worker, wrong), over_grpc(worker, wrong)) == (status, code)


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("ModelMetadata", pb.ModelMetadataRequest(name="nobody")),
        ("ModelConfig", pb.ModelConfigRequest(name="net", version="9")),
        ("ModelReady", pb.ModelReadyRequest(name="nobody")),
        ("ModelStatistics", pb.ModelStatisticsRequest(name="nobody")),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="nobody")),
    ],
)
def test_what_is_not_there_is_not_found(worker: Worker, method: str, asked: Any) -> None:
    with callers.stub(worker) as stub:
        assert callers.code_of(lambda: getattr(stub, method)(asked)) == "NOT_FOUND"


@pytest.mark.parametrize("method", ["SystemSharedMemoryStatus", "TraceSetting", "LogSettings"])
def test_what_we_do_not_have_is_unimplemented(worker: Worker, method: str) -> None:
    with callers.stub(worker) as stub:
        assert callers.code_of(lambda: getattr(stub, method)(getattr(pb, f"{method}Request")())) == "UNIMPLEMENTED"


def test_models_are_not_loaded_by_callers_unless_the_job_says_so(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
    assert post(worker.port, "/v2/repository/models/net/unload", b"").status == 403
    with callers.stub(worker) as stub:
        asked = pb.RepositoryModelUnloadRequest(model_name="net")
        assert callers.code_of(lambda: stub.RepositoryModelUnload(asked)) == "PERMISSION_DENIED"


def test_a_refusal_for_lack_of_room_or_time_says_when_to_ask_again(place: Place) -> None:
    orders = Orders(place)
    patches = {**orders.patches(), "inference_worker.batching.admission:QUEUE_LIMIT": CAP}
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches=patches).wait_ready()
    orders.give("hold")
    wires = [Wire(worker.port).send(request("POST", INFER, infer_json([[1, 1]]))) for _ in range(CAP + 1)]
    until(lambda: callers.queued(worker) == CAP, "a full queue")

    reply = post(worker.port, INFER, infer_json([[1, 1]]))
    assert reply.status == 429 and int(reply.headers["retry-after"]) >= 1
    with callers.stub(worker) as stub:
        call = stub.ModelInfer.future(callers.rows_request([[1, 1]]))
        assert call.exception().code().name == "RESOURCE_EXHAUSTED"
        trailers = dict(call.trailing_metadata())
        assert int(trailers["grpc-retry-pushback-ms"]) >= 1 and int(trailers["retry-after"]) >= 1
    orders.take_back("hold")
    assert {wire.read().status for wire in wires} == {200}


def test_a_large_message_is_refused_without_a_hint_to_ask_again(worker: Worker) -> None:
    with callers.stub(worker) as stub:
        call = stub.ModelInfer.future(callers.tensor_request(np.zeros((9 << 20, 2), np.float32)))
        assert call.exception().code().name == "RESOURCE_EXHAUSTED"
        assert "retry-after" not in dict(call.trailing_metadata())

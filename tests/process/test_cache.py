"""A real worker with a cache: over HTTP and gRPC, whole, compressed, in shared memory, by frontends, and after another load."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image
from tritonclient.grpc import service_pb2 as pb

from inference_protocol.messages import AnswerCache, FrameReuse
from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from tests.process import models
from tests.process.callers import answer, metric, rows_request, stub, tensor_request
from tests.process.harness import Worker, a_config, until
from tests.process.wire import Wire, get, infer_json, post

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.harness import Place

INFER = "/v2/models/net/infer"
ROWS = [[1.0, 2.0]]
SIDE = 64
CACHE = AnswerCache(frames=FrameReuse())
PICTURE = np.asarray(
    Image.open(Path(__file__).parents[2] / "docs" / "pictures" / "lane-detection-001.png").convert("RGB").resize((SIDE, SIDE))
)
NAME = "inference-cache"


def mean_of_a_picture() -> bytes:
    """UINT8 [N, 64, 64, 3] to the mean of each picture."""
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["f"], ["y"], axes=[1, 2, 3], keepdims=0),
    ]
    return models.model(
        nodes, [models.tensor("x", TensorProto.UINT8, ["N", SIDE, SIDE, 3])], [models.tensor("y", TensorProto.FLOAT, ["N"])]
    )


def drawing_lots() -> bytes:
    """What is asked, with noise."""
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    return models.model(nodes, [models.tensor("x", TensorProto.FLOAT, ["N", 2])], [models.tensor("y", TensorProto.FLOAT, ["N", 2])])


@pytest.fixture(scope="module", params=["0", "2"], ids=["one process", "frontends"])
def worker(shared_place: Place, request: pytest.FixtureRequest) -> Iterator[Worker]:
    config = a_config(shared_place.put("picture.onnx", mean_of_a_picture()), cache=CACHE, batch_size=4)
    made = shared_place.start(config, variables={FRONTENDS_VARIABLE: request.param}).wait_ready()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def plain(shared_place: Place) -> Worker:
    config = a_config(shared_place.put("id.onnx", models.identity(shape=["N", 2])), cache=CACHE, shared_memory=True)
    return shared_place.start(config).wait_ready()


def with_noise(seed: int, deviation: float = 1.0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, deviation, PICTURE.shape)
    return np.clip(np.rint(PICTURE + noise), 0, 255).astype(np.uint8)[None]


def body_of(frame: np.ndarray, **parameters: Any) -> tuple[bytes, dict[str, str]]:
    entry = {"name": "x", "datatype": "UINT8", "shape": list(frame.shape), "parameters": {"binary_data_size": frame.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": parameters}).encode()
    return head + frame.tobytes(), {"Inference-Header-Content-Length": str(len(head))}


def mark(response: pb.ModelInferResponse) -> str:
    return str(response.parameters[NAME].string_param) if NAME in response.parameters else ""


def test_both_protocols_and_all_forms_share_their_answers(plain: Worker) -> None:
    body = infer_json([[5, 6]])
    with stub(plain) as service:
        first = service.ModelInfer(rows_request([[5, 6]]))
        again = service.ModelInfer(rows_request([[5, 6]], id="mine"))
        (streamed,) = service.ModelStreamInfer(iter([rows_request([[5, 6]])]))
        typed = pb.ModelInferRequest(model_name="net")
        typed.inputs.add(name="x", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([5, 6])
        by_type = service.ModelInfer(typed)
    reply = post(plain.port, INFER, body)
    packed = post(plain.port, INFER, gzip.compress(body), {"Content-Encoding": "gzip"})

    assert mark(first) == "" and mark(again) == "hit" and again.id == "mine"
    assert mark(streamed.infer_response) == "hit" and streamed.infer_response.parameters["triton_final_response"].bool_param
    assert mark(by_type) == "hit" and list(by_type.outputs[0].contents.fp32_contents) == [5, 6]
    assert answer(again).tolist() == answer(first).tolist() == [[5, 6]]
    assert reply.headers[NAME] == packed.headers[NAME] == "hit"
    assert reply.json["outputs"][0]["data"] == [5, 6]


def test_compressed_answers_are_marked_too(plain: Worker) -> None:
    body = infer_json([[float(number), 0.0] for number in range(2000)])

    replies = [post(plain.port, INFER, body, {"Accept-Encoding": "gzip"}) for _ in range(2)]

    assert [reply.headers.get(NAME, "") for reply in replies] == ["", "hit"]
    assert [reply.headers["content-encoding"] for reply in replies] == ["gzip", "gzip"]
    assert gzip.decompress(replies[0].body) == gzip.decompress(replies[1].body)


def test_inputs_and_outputs_in_shared_memory_go_by_their_bytes(plain: Worker) -> None:
    region = Path(f"/dev/shm/inference-cache-{plain.port}")
    array = np.array([[7, 8]], np.float32)
    region.write_bytes(array.tobytes() + bytes(8))
    region.chmod(0o666)
    here = {"shared_memory_region": "both", "shared_memory_byte_size": 8}
    body = json.dumps(
        {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": here}],
            "outputs": [{"name": "y", "parameters": {**here, "shared_memory_offset": 8}}],
        }
    ).encode()
    try:
        registered = json.dumps({"key": f"/{region.name}", "offset": 0, "byte_size": 16}).encode()
        assert post(plain.port, "/v2/systemsharedmemory/region/both/register", registered).status == 200
        marks, written = [], []
        for values in (array, array, array + 1):
            region.write_bytes(values.tobytes() + bytes(8))
            marks.append(post(plain.port, INFER, body).headers.get(NAME, ""))
            written.append(np.frombuffer(region.read_bytes()[8:], np.float32).tolist())
    finally:
        region.unlink()

    assert marks == ["", "hit", ""]
    assert written == [[7, 8], [7, 8], [8, 9]]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_tenant_never_gets_another_tenants_answer(plain: Worker, protocol: str) -> None:
    rows: list[list[float]] = [[11, 12]] if protocol == "http" else [[13, 14]]

    def ask(tenant: str) -> str:
        told = [("inference-tenant", tenant)] if tenant else []
        if protocol == "http":
            return post(plain.port, INFER, infer_json(rows), dict(told)).headers.get(NAME, "")
        with stub(plain) as service:
            return mark(service.ModelInfer(rows_request(rows), metadata=told))

    assert [ask(tenant) for tenant in ("a;weight=1", "b;weight=1", "a;weight=2", "b", "")] == ["", "", "hit", "hit", ""]


def test_a_still_scene_over_both_protocols_is_computed_once(worker: Worker) -> None:
    begun = metric(worker, "inference_runs_total")
    post(worker.port, INFER, *body_of(with_noise(0), stream_id=worker.port))
    # A frame is kept once its caller is answered.
    until(lambda: metric(worker, "inference_cache_entries", kind="frames") == 1, "the first frame")
    marks = []
    with stub(worker) as service, Wire(worker.port) as wire:
        request = tensor_request(with_noise(1), "UINT8")
        request.parameters["stream_id"].int64_param = worker.port
        marks.append(mark(service.ModelInfer(request)))
        by_metadata = tensor_request(with_noise(2), "UINT8")
        marks.append(mark(service.ModelInfer(by_metadata, metadata=[("inference-stream-id", str(worker.port))])))
        for seed in (3, 4):
            body, headers = body_of(with_noise(seed))
            marks.append(wire.post(INFER, body, {**headers, "Inference-Stream-Id": str(worker.port)}).headers.get(NAME, ""))
    moved = post(worker.port, INFER, *body_of(np.roll(with_noise(5), 20, axis=2), stream_id=worker.port))

    assert all(each.startswith("reuse; similarity=0.9") for each in marks), marks
    assert NAME not in moved.headers
    assert metric(worker, "inference_runs_total") - begun == 2
    assert metric(worker, "inference_cache_requests_total", result="reuse") == 4
    assert metric(worker, "inference_cache_bytes", kind="frames") > 4 * PICTURE.size
    assert metric(worker, "inference_cache_saved_seconds_total") > 0
    (told,) = get(worker.port, "/v2/models/net/stats").json["model_stats"]
    assert (told["inference_stats"]["cache_hit"]["count"], told["inference_stats"]["cache_miss"]["count"]) == (4, 2)


def test_a_reload_of_another_file_answers_by_that_file(place: Place) -> None:
    uri = place.put("m.onnx", models.identity(shape=["N", 2]))
    worker = place.start(a_config(uri, cache=CACHE, model_control="explicit")).wait_ready()
    assert [post(worker.port, INFER, infer_json(ROWS)).headers.get(NAME, "") for _ in range(2)] == ["", "hit"]

    place.put("m.onnx", models.square_root())
    assert post(worker.port, "/v2/repository/models/net/load", b"").status == 200
    replies = [post(worker.port, INFER, infer_json(ROWS)) for _ in range(2)]

    assert [reply.headers.get(NAME, "") for reply in replies] == ["", "hit"]
    assert replies[0].json["outputs"][0]["data"] == replies[1].json["outputs"][0]["data"] != [1, 2]


def test_a_model_that_draws_lots_is_never_answered_from_memory(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", drawing_lots()), cache=CACHE)).wait_ready()

    replies = [post(worker.port, INFER, infer_json(ROWS)) for _ in range(2)]

    assert replies[0].body != replies[1].body and NAME not in replies[1].headers
    assert "differs" in get(worker.port, "/v2/models/net").json["parameters"]["not_cached_because"]
    assert metric(worker, "inference_cache_requests_total", result="past") == 2


def test_without_a_cache_nothing_of_it_is_imported_and_no_series_is_there(place: Place) -> None:
    names = "{name for name in sys.modules if 'inference_worker.cache' in name}"
    program = f"import atexit, sys, runpy; atexit.register(lambda: print('imported', {names}, file=sys.stderr, flush=True))"
    # As `python -m inference_worker`, which ends without a word to atexit.
    program += "; import os; real = os._exit; os._exit = lambda code: (atexit._run_exitfuncs(), real(code))"
    program += "; runpy.run_module('inference_worker', run_name='__main__')"
    worker = place.start(
        a_config(place.put("m.onnx", models.identity(shape=["N", 2]))), command=[sys.executable, "-c", program]
    ).wait_ready()

    replies = [post(worker.port, INFER, infer_json(ROWS, parameters={"stream_id": "a"})) for _ in range(2)]
    text = get(worker.port, "/metrics").body

    assert [NAME in reply.headers for reply in replies] == [False, False]
    assert b"inference_cache" not in text
    worker.stop()
    assert "imported set()" in worker.ended().log


def test_a_bad_name_of_a_stream_is_told_over_both_protocols(plain: Worker) -> None:
    reply = post(plain.port, INFER, infer_json(ROWS, parameters={"stream_id": [1]}))
    request = rows_request(ROWS)
    request.parameters["stream_id"].bool_param = True
    with stub(plain) as service, pytest.raises(grpc.RpcError) as told:
        service.ModelInfer(request)

    assert reply.status == 400 and "stream_id" in reply.error
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT

"""The worker's HTTP face in one process: what it answers in each state, whom it answers, and what it counts."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inference_protocol.messages import BatchTask, ModelFacts
from inference_protocol.sketch import LatencySketch
from inference_worker import metrics
from inference_worker import runner as runner_module
from inference_worker.__main__ import _run_task
from inference_worker.life import Life, Loaded
from inference_worker.onnx_engine import OnnxEngine
from inference_worker.runner import Runner
from inference_worker.serve.http import Request, Response
from inference_worker.serve.routes import Routes
from tests.worker import models
from tests.worker.harness import a_config
from tests.worker.wire import infer_json

if TYPE_CHECKING:
    from pathlib import Path

    from inference_worker.engine import Engine

INFER = "/v2/models/net/infer"
FACTS = ModelFacts("sha256:aa", "CPUExecutionProvider", 0.1, 0.1, 1, 1)


def a_life(data: bytes | None = None, *, engine: Engine | None = None, job: str = "job") -> Life:
    life = Life(a_config("pvc://data/m.onnx", job=job))
    engine = engine or (OnnxEngine(data, providers=("CPUExecutionProvider",), threads=1) if data else None)
    if engine is not None:
        life.loaded = Loaded(engine, Runner(engine), FACTS)
    return life


async def ask(routes: Routes, path: str, body: bytes = b"", *, method: str = "GET", **headers: str) -> Response:
    return await routes.handle(Request(method, path, headers, body, True))


async def infer(routes: Routes, body: bytes, **headers: str) -> Response:
    return await ask(routes, INFER, body, method="POST", **headers)


class Scripted:
    """An engine that waits for `go`, then answers, or fails as it is told."""

    platform = provider = "scripted"
    rows = None

    def __init__(self, fault: BaseException | None = None) -> None:
        real = OnnxEngine(models.identity(), providers=("CPUExecutionProvider",), threads=1)
        self.inputs, self.outputs = real.inputs, real.outputs
        self.fault = fault
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.runs = 0

    def run(self, feeds: Any, wanted: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
        self.runs += 1
        self.begun.release()
        assert self.go.wait(20)
        if self.fault is not None:
            raise self.fault
        return {"y": feeds["x"]}


STATES = {"loading": (503, 503, 503), "ready": (200, 200, 200), "draining": (503, 200, 200)}


@pytest.mark.parametrize("state", STATES)
async def test_each_state_answers_probes_and_requests_truly(state: str) -> None:
    life = a_life(None if state == "loading" else models.identity())
    life.draining = state == "draining"
    routes = Routes(life)
    ready, metadata, inferred = STATES[state]

    assert (await ask(routes, "/v2/health/live")).status == 200
    for path in ("/v2/health/ready", "/v2/models/net/ready", "/v2/models/net/versions/1/ready"):
        assert (await ask(routes, path)).status == ready
    assert (await ask(routes, "/v2/models/net")).status == metadata
    assert (await infer(routes, infer_json([[1, 2]]))).status == inferred
    assert json.loads((await ask(routes, "/telemetry")).body)["ready"] is (state == "ready")
    assert (
        f'inference_ready{{job="job",model="net",namespace="team",version="1"}} {float(state == "ready")}'
        in (await ask(routes, "/metrics")).body.decode()
    )


async def test_a_request_before_the_model_is_loaded_is_told_to_come_back() -> None:
    reply = await infer(Routes(a_life()), infer_json([[1, 2]]))

    assert "loading" in json.loads(reply.body)["error"] and ("Retry-After", "1") in reply.headers


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v2/",
        "/v2/models",
        "/v2/models/other",
        "/v2/models/other/infer",
        "/v2/models/net/versions/2/infer",
        "/V2",
        "//v2",
        "/x" * 3000,
    ],
)
async def test_unknown_paths_are_404_with_the_models_name(path: str) -> None:
    for method in ("GET", "POST"):
        reply = await ask(Routes(a_life(models.identity())), path, method=method)
        assert reply.status == 404 and "net" in json.loads(reply.body)["error"] and len(reply.body) < 500


@pytest.mark.parametrize(
    ("path", "method"),
    [(INFER, "GET"), (INFER, "PUT"), (INFER, "HEAD"), ("/v2", "POST"), ("/metrics", "DELETE"), ("/v2/health/ready", "POST")],
)
async def test_other_methods_are_405(path: str, method: str) -> None:
    assert (await ask(Routes(a_life(models.identity())), path, method=method)).status == 405


async def test_metadata_is_the_models_signature() -> None:
    document = json.loads((await ask(Routes(a_life(models.label())), "/v2/models/net/versions/1")).body)

    assert (document["name"], document["versions"]) == ("net", ["1"])
    assert document["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert document["outputs"] == [{"name": "class", "datatype": "INT64", "shape": [-1]}]


async def test_the_server_says_that_it_takes_binary_tensors() -> None:
    assert "binary_tensor_data" in json.loads((await ask(Routes(a_life()), "/v2")).body)["extensions"]


async def test_sixty_four_callers_at_once_each_get_their_own_answer() -> None:
    routes = Routes(a_life(models.two_outputs()))

    async def one(number: int) -> None:
        rows = [[number, i] for i in range(number % 5 + 1)]
        wanted = [["same"], ["negated"], ["negated", "same"], []][number % 4]
        document = json.loads(
            (await infer(routes, infer_json(rows, id=f"caller-{number}", outputs=[{"name": n} for n in wanted]))).body
        )
        sign = {"same": 1, "negated": -1}
        assert document["id"] == f"caller-{number}"
        assert [o["name"] for o in document["outputs"]] == (wanted or ["same", "negated"])
        for output in document["outputs"]:
            assert output["data"] == [sign[output["name"]] * v for row in rows for v in row]

    await asyncio.gather(*map(one, range(64)))


async def test_one_bad_request_among_many_fails_alone() -> None:
    routes = Routes(a_life(models.gather()))
    bodies = [infer_json([[i]], name="i", datatype="INT64").replace(b"[1, 1]", b"[1]") for i in (0, 1, 99, 3, 4)]

    replies = await asyncio.gather(*(infer(routes, body) for body in bodies))

    assert [reply.status.value // 100 for reply in replies] == [2, 2, 4, 2, 2]
    assert json.loads(replies[3].body)["outputs"][0]["data"] == [3.0]


async def test_answers_that_are_not_finite_are_a_400_that_names_the_binary_form() -> None:
    routes = Routes(a_life(models.square_root()))

    reply = await infer(routes, infer_json([[-1, 4]]))
    binary = await infer(routes, infer_json([[-1, 4]], parameters={"binary_data_output": True}))

    assert reply.status == 400 and "binary" in json.loads(reply.body)["error"]
    size = int(dict(binary.headers)["Inference-Header-Content-Length"])
    assert np.array_equal(np.frombuffer(binary.body[size:], np.float32), [np.nan, 2], equal_nan=True)
    assert (await infer(routes, infer_json([[9, 4]]))).status == 200


@pytest.mark.parametrize("name", ["grand_total", "column_sums", "identity"])
async def test_scalar_and_rowless_outputs_and_empty_tensors_are_served(name: str) -> None:
    routes = Routes(a_life(getattr(models, name)()))
    empty = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [0, 2], "data": []}]}).encode()

    assert (await infer(routes, infer_json([[1, 2], [3, 4]]))).status == 200
    assert (await infer(routes, empty)).status == 200


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (ValueError("no"), 400),
        (MemoryError("no room"), 503),
        (RuntimeError("broken"), 500),
        *((fault, 500) for fault in (KeyError("k"), TypeError("t"), OSError("o"))),
    ],
)
async def test_whatever_goes_wrong_in_the_model_is_an_answer_and_counted(fault: Exception, status: int) -> None:
    engine = Scripted(fault)
    engine.go.set()
    routes = Routes(a_life(engine=engine))

    reply = await infer(routes, infer_json([[1, 2]]))

    assert reply.status == status and json.loads(reply.body)["error"]
    assert (routes.requests, routes.failed) == (1, 1)
    engine.fault = None
    assert (await infer(routes, infer_json([[1, 2]]))).status == 200


async def test_a_full_queue_refuses_the_next_and_the_waiting_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "QUEUE_LIMIT", 3)
    engine = Scripted()
    routes = Routes(a_life(engine=engine))
    waiting = [asyncio.create_task(infer(routes, infer_json([[i, i]], id=str(i)))) for i in range(3)]
    await asyncio.to_thread(engine.begun.acquire)

    refused = await infer(routes, infer_json([[9, 9]]))

    assert refused.status is HTTPStatus.TOO_MANY_REQUESTS and ("Retry-After", "1") in refused.headers
    assert (await ask(routes, "/v2/health/ready")).status == 200
    engine.go.set()
    assert [json.loads((await task).body)["id"] for task in waiting] == ["0", "1", "2"]


async def test_callers_that_leave_free_their_places_and_their_work_is_not_done() -> None:
    engine = Scripted()
    life = a_life(engine=engine)
    assert life.loaded is not None
    routes = Routes(life)
    tasks = [asyncio.create_task(infer(routes, infer_json([[i, i]]))) for i in range(10)]
    await asyncio.to_thread(engine.begun.acquire)

    for task in tasks[:7]:
        task.cancel()
    await asyncio.gather(*tasks[:7], return_exceptions=True)
    assert life.loaded.runner.waiting == 3

    engine.go.set()
    assert [(await task).status for task in tasks[7:]] == [200] * 3
    assert engine.runs == 1 + 3
    async with asyncio.timeout(5):
        while life.loaded.runner.waiting:
            await asyncio.sleep(0)


async def test_a_drain_does_not_wait_for_callers_that_left() -> None:
    engine = Scripted()
    life = a_life(engine=engine)
    assert life.loaded is not None
    task = asyncio.create_task(infer(Routes(life), infer_json([[1, 1]])))
    await asyncio.to_thread(engine.begun.acquire)

    task.cancel()

    async with asyncio.timeout(5):
        while life.loaded.runner.waiting:
            await asyncio.sleep(0)
    engine.go.set()


def counted(job: str) -> dict[str, float]:
    """Samples by name and status, as Prometheus would read them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.REGISTRY).decode()):
        for sample in family.samples:
            if sample.labels.get("job") == job:
                name = sample.name + sample.labels.get("code", "")
                found[name] = found.get(name, 0) + sample.value
    return found


async def test_counters_equal_the_requests_by_status() -> None:
    routes = Routes(a_life(models.identity(), job="counting"))
    for _ in range(7):
        await infer(routes, infer_json([[1, 2]]))
    for body in (b"", b"{", infer_json([[1, 2, 3]])):
        await infer(routes, body)
    await ask(routes, "/v2/health/ready")
    await ask(routes, INFER)

    found = counted("counting")

    assert (found["inference_requests_total200"], found["inference_requests_total400"]) == (7, 3)
    assert found["inference_latency_ms_count"] == found["inference_queue_ms_count"] == found["inference_compute_ms_count"] == 7
    telemetry = json.loads((await ask(routes, "/telemetry")).body)
    assert (telemetry["requestsTotal"], telemetry["failedTotal"]) == (10, 3)
    assert sum(telemetry["sketch"].values()) == 7


async def test_the_sketch_of_the_telemetry_gives_back_the_latency() -> None:
    life = a_life(models.identity())
    assert life.loaded is not None
    life.loaded.runner.sketch.record(0.25, weight=100)

    telemetry = json.loads((await ask(Routes(life), "/telemetry")).body)

    sketch = LatencySketch({int(k): v for k, v in telemetry["sketch"].items()})
    assert sketch.quantile(0.95) == pytest.approx(0.25, rel=0.011)


async def test_a_thousand_malformed_requests_hurt_nobody() -> None:
    routes = Routes(a_life(models.identity()))

    statuses = {(await infer(routes, body)).status.value for body in [b"{", b"[]", infer_json([["x", "y"]])] * 333}  # type: ignore[list-item]

    assert statuses == {400}
    assert (await infer(routes, infer_json([[1, 2]]))).status == 200
    assert (await ask(routes, "/v2/health/ready")).status == 200


async def test_a_compressed_body_is_read_or_refused_by_name() -> None:
    body = gzip.compress(infer_json([[1, 2]]))

    reply = await infer(Routes(a_life(models.identity())), body, **{"content-encoding": "gzip"})

    assert reply.status == 200 or (reply.status == 415 and "gzip" in json.loads(reply.body)["error"])


async def test_committed_items_of_a_batch_are_counted(volume: Path, root: Path) -> None:
    life = a_life(models.identity(), job="items")
    life.config = msgspec.structs.replace(life.config, task=BatchTask(input_data="[1, 2]\n[3, 4]", output_uri="pvc://data/out"))

    await _run_task(life, asyncio.Event(), root)

    assert counted("items")["inference_batch_items_total"] == 2


async def test_a_batch_worker_that_is_told_to_stop_is_no_longer_ready(volume: Path, root: Path) -> None:
    engine = Scripted()
    life = a_life(engine=engine)
    task = BatchTask(input_data="[1, 2]\n[3, 4]", output_uri="pvc://data/out")
    life.config = msgspec.structs.replace(life.config, task=task)
    stop = asyncio.Event()
    working = asyncio.create_task(_run_task(life, stop, root))
    await asyncio.to_thread(engine.begun.acquire)
    assert life.ready

    stop.set()
    for _ in range(20):
        await asyncio.sleep(0)
    ready = life.ready
    engine.go.set()
    report = await working

    assert (report.outcome, report.progress and report.progress.completed) == ("Drained", 1)
    assert not ready

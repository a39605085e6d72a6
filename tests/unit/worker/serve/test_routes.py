"""The worker's HTTP face in one process: what it answers in each state, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from inference_protocol.messages import BatchTask, DeviceReading
from inference_protocol.sketch import LatencySketch
from inference_worker import metrics, worker_state
from inference_worker.__main__ import _run_task
from inference_worker.batching.profile import LatencyProfile
from inference_worker.device_meter import DeviceMeter
from inference_worker.tracing import Tracer
from inference_worker.warmup import Warm
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.scripted_engines import ROWS, Scripted
from tests.unit.worker.states import INFER, a_worker_state, an_unloaded_worker_state, ask, infer, real, routes_of

if TYPE_CHECKING:
    from pathlib import Path

STATES = {"loading": (503, 503, 503), "ready": (200, 200, 200), "draining": (503, 200, 200)}


@pytest.mark.parametrize("state", STATES)
async def test_each_state_answers_probes_and_requests_truly(state: str) -> None:
    worker = an_unloaded_worker_state() if state == "loading" else await a_worker_state(models.identity())
    if state == "draining":
        worker.drain()
    routes = routes_of(worker)
    ready, metadata, inferred = STATES[state]

    assert (await ask(routes, "/v2/health/live")).status == 200
    for path in ("/v2/health/ready", "/v2/models/net/ready", "/v2/models/net/versions/1/ready"):
        assert (await ask(routes, path)).status == ready
    for path in ("/v2/models/net", "/v2/models/net/config", "/v2/models/net/stats"):
        assert (await ask(routes, path)).status == metadata
    assert (await infer(routes, infer_json([[1, 2]]))).status == inferred
    assert json.loads((await ask(routes, "/telemetry")).body)["ready"] is (state == "ready")
    assert (
        f'inference_ready{{inference_job="job",model="net",namespace="team",version="1"}} {float(state == "ready")}'
        in (await ask(routes, "/metrics")).body.decode()
    )


async def test_a_stuck_model_is_neither_live_nor_ready_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    state = await a_worker_state(models.identity())
    assert state.model is not None
    monkeypatch.setattr(type(state.model.batcher), "stuck", "a run has not ended")
    routes = routes_of(state)

    live = await ask(routes, "/v2/health/live")

    assert live.status == 503 and "has not ended" in json.loads(live.body)["error"]
    assert json.loads(live.body)["live"] is False
    assert (await ask(routes, "/v2/health/ready")).status == (await ask(routes, "/v2/models/net/ready")).status == 503


@pytest.mark.parametrize("state", STATES)
async def test_health_is_answered_in_the_protocols_documents(state: str) -> None:
    """KServe's client reads JSON from every answer: with an empty body a ready server was a JSONDecodeError."""
    worker = an_unloaded_worker_state() if state == "loading" else await a_worker_state(models.identity())
    if state == "draining":
        worker.drain()
    routes, ready = routes_of(worker), state == "ready"

    assert json.loads((await ask(routes, "/v2/health/live")).body) == {"live": True}
    assert json.loads((await ask(routes, "/v2/health/ready")).body) == {"ready": ready}
    for path in ("/v2/models/net/ready", "/v2/models/net/versions/1/ready"):
        assert json.loads((await ask(routes, path)).body) == {"name": "net", "ready": ready}


@pytest.mark.parametrize(("path", "method"), [("/infer", "POST"), ("", "GET"), ("/ready", "GET"), ("/config", "GET")])
async def test_a_version_that_there_is_not_is_named_with_the_one_that_is(path: str, method: str) -> None:
    """The answer named the whole path, as if the model's name were wrong."""
    routes = routes_of(await a_worker_state(models.identity()))

    reply = await ask(routes, f"/v2/models/net/versions/2{path}", method=method)
    elsewhere = await ask(routes, f"/v2/models/net/versions/1/nothing{path}", method=method)

    assert (reply.status, json.loads(reply.body)["error"]) == (404, "net has no version '2'; this worker serves 1")
    assert elsewhere.status == 404 and "nothing at" in json.loads(elsewhere.body)["error"]


async def test_a_request_before_the_model_is_loaded_is_told_to_come_back() -> None:
    reply = await infer(routes_of(an_unloaded_worker_state()), infer_json([[1, 2]]))

    assert "loading" in json.loads(reply.body)["error"] and ("Retry-After", "1") in reply.headers


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v2//",
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
        reply = await ask(routes_of(await a_worker_state(models.identity())), path, method=method)
        assert reply.status == 404 and "net" in json.loads(reply.body)["error"] and len(reply.body) < 500


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (INFER, "GET"),
        (INFER, "PUT"),
        (INFER, "HEAD"),
        ("/v2", "POST"),
        ("/metrics", "DELETE"),
        ("/v2/health/ready", "POST"),
        ("/v2/repository/index", "GET"),
        ("/v2/repository/models/net/load", "GET"),
    ],
)
async def test_other_methods_are_405(path: str, method: str) -> None:
    assert (await ask(routes_of(await a_worker_state(models.identity())), path, method=method)).status == 405


async def test_metadata_is_the_models_signature() -> None:
    document = json.loads((await ask(routes_of(await a_worker_state(models.label())), "/v2/models/net/versions/1")).body)

    assert (document["name"], document["versions"], document["platform"]) == ("net", ["1"], "onnx_onnxv1")
    assert document["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert document["outputs"] == [{"name": "class", "datatype": "INT64", "shape": [-1]}]


async def test_the_configuration_says_whether_requests_are_batched_and_why_not() -> None:
    batched = json.loads((await ask(routes_of(await a_worker_state(models.label(), batch_size=8)), "/v2/models/net/config")).body)
    alone = json.loads(
        (await ask(routes_of(await a_worker_state(models.grand_total(), batch_size=8)), "/v2/models/net/config")).body
    )

    assert (batched["max_batch_size"], batched["input"][0]["dims"], "dynamic_batching" in batched) == (8, [4], True)
    assert (alone["max_batch_size"], alone["input"][0]["dims"], "dynamic_batching" in alone) == (0, [-1, 2], False)
    assert "'total'" in alone["parameters"]["not_batched_because"]["string_value"]


async def test_the_inputs_that_must_be_equal_to_share_a_run_are_named() -> None:
    """An input without rows stands among the others in Triton's vocabulary, which has no word for it."""
    routes = routes_of(await a_worker_state(models.scaled(), batch_size=8))
    one_by_one = routes_of(await a_worker_state(models.scaled(), batch_size=1))

    config = json.loads((await ask(routes, "/v2/models/net/config")).body)

    assert config["parameters"] == {"shared_inputs": {"string_value": "factor"}}
    assert json.loads((await ask(routes, "/v2/models/net")).body)["parameters"] == {"shared_inputs": "factor"}
    assert "parameters" not in json.loads((await ask(one_by_one, "/v2/models/net")).body)


async def test_the_configuration_has_every_field_that_tritons_has_of_a_tensor() -> None:
    """A client of Triton's reads `optional` of each input, and raised KeyError: fields at their default were left out."""
    config = json.loads((await ask(routes_of(await a_worker_state(models.label(), batch_size=8)), "/v2/models/net/config")).body)

    common = {"is_shape_tensor": False, "is_non_linear_format_io": False}
    x = {
        "name": "x",
        "data_type": "TYPE_FP32",
        "dims": [4],
        "format": "FORMAT_NONE",
        "allow_ragged_batch": False,
        "optional": False,
    }
    assert config["input"] == [{**x, **common}]
    label = {"name": "class", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}, "label_filename": ""}
    assert config["output"] == [{**label, **common}]
    assert config["parameters"] == {}


async def test_the_configuration_has_every_field_of_a_model_that_tritons_clients_read() -> None:
    """perf_analyzer asks whether a model is decoupled and of which version; others index the fields that Triton always writes."""
    config = json.loads((await ask(routes_of(await a_worker_state(models.label(), batch_size=8)), "/v2/models/net/config")).body)

    assert (config["platform"], config["backend"]) == ("onnxruntime_onnx", "onnxruntime")
    assert config["version_policy"] == {"specific": {"versions": [1]}}
    assert config["model_transaction_policy"] == {"decoupled": False}
    (group,) = config["instance_group"]
    assert (group["name"], group["kind"], group["gpus"], group["passive"]) == ("CPUExecutionProvider", "KIND_CPU", [], False)
    assert config["dynamic_batching"]["preferred_batch_size"] == []
    assert config["dynamic_batching"]["default_queue_policy"]["timeout_action"] == "REJECT"
    empty = ("batch_input", "batch_output", "default_model_filename", "cc_model_filenames", "metric_tags", "model_warmup")
    assert not any(config[name] for name in empty)


async def test_a_version_that_is_no_number_is_the_latest_of_one() -> None:
    state = await a_worker_state(models.label())
    assert state.model is not None
    state.model.version = "v3"

    assert json.loads((await ask(routes_of(state), "/v2/models/net/config")).body)["version_policy"] == {
        "latest": {"num_versions": 1}
    }


async def test_a_shape_built_from_the_configuration_is_taken() -> None:
    """For an input [N] the dims are [1], of which clients build [rows, 1]: that was a 400, and no `reshape` said why."""
    routes = routes_of(await a_worker_state(models.identity(shape=["N"]), batch_size=8))
    config = json.loads((await ask(routes, "/v2/models/net/config")).body)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, *config["input"][0]["dims"]], "data": [[1], [2]]}]}

    assert config["max_batch_size"] == 8
    assert [(each["dims"], each["reshape"]) for each in (*config["input"], *config["output"])] == [([1], {"shape": []})] * 2
    (answer,) = json.loads((await infer(routes, json.dumps(body).encode())).body)["outputs"]
    assert answer["data"] == [1, 2]
    for shape in ([2, 1, 1], [1, 2], [2, 2], [[1]], []):
        body["inputs"][0]["shape"] = shape
        assert (await infer(routes, json.dumps(body).encode())).status == 400


@pytest.mark.parametrize("name", ["label", "column_sums", "grand_total", "matmul"])
@pytest.mark.parametrize("batch_size", [1, 8])
async def test_answers_have_the_shape_of_the_metadata_and_of_the_bare_runtime(name: str, batch_size: int) -> None:
    """Triton makes [N, 1] of an output [N] where it batches; who compares answers with the runtime's would be surprised."""
    data = getattr(models, name)()
    routes = routes_of(await a_worker_state(data, batch_size=batch_size))
    width = 2 if name in ("column_sums", "grand_total") else 4
    x = np.ones((3, width), np.float32)

    told = json.loads((await ask(routes, "/v2/models/net")).body)["outputs"]
    (answer,) = json.loads((await infer(routes, infer_json(x.tolist()))).body)["outputs"]
    (bare,) = real(data).run({"x": x}).values()

    assert tuple(answer["shape"]) == bare.shape
    assert len(told[0]["shape"]) == bare.ndim
    assert all(size in (-1, one) for size, one in zip(told[0]["shape"], bare.shape, strict=True))


async def test_metadata_and_telemetry_say_why_requests_are_not_batched() -> None:
    state = await a_worker_state(models.grand_total(), batch_size=8)

    document = json.loads((await ask(routes_of(state), "/v2/models/net")).body)

    assert "'total'" in document["parameters"]["not_batched_because"]
    assert "parameters" not in json.loads((await ask(routes_of(await a_worker_state(models.label())), "/v2/models/net")).body)


async def test_the_server_says_that_it_takes_binary_tensors() -> None:
    assert "binary_tensor_data" in json.loads((await ask(routes_of(an_unloaded_worker_state()), "/v2")).body)["extensions"]


def counted(job: str) -> dict[str, float]:
    """Samples by name and status, as Prometheus would read them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.REGISTRY).decode()):
        for sample in family.samples:
            if sample.labels.get("inference_job") == job:
                name = sample.name + sample.labels.get("code", "")
                found[name] = found.get(name, 0) + sample.value
    return found


async def test_counters_equal_the_requests_by_status() -> None:
    routes = routes_of(await a_worker_state(models.identity(), job="counting"))
    for _ in range(7):
        await infer(routes, infer_json([[1, 2]]))
    for body in (b"", b"{", infer_json([[1, 2, 3]])):
        await infer(routes, body)
    await ask(routes, "/v2/health/ready")
    await ask(routes, INFER)

    found = counted("counting")

    assert (found["inference_requests_total200"], found["inference_requests_total400"]) == (7, 3)
    assert found["inference_latency_seconds_count"] == found["inference_latency_ms_count"] == 7
    assert found["inference_queue_seconds_count"] == found["inference_compute_seconds_count"] == 7
    assert found["inference_batch_rows_count"] == found["inference_batch_rows_sum"] == 7
    assert found["inference_rows_total"] == found["inference_runs_total"] == 7
    telemetry = json.loads((await ask(routes, "/telemetry")).body)
    assert (telemetry["requestsTotal"], telemetry["failedTotal"]) == (10, 3)
    assert sum(telemetry["sketch"].values()) == 7


async def test_statistics_count_runs_by_their_rows() -> None:
    routes = routes_of(await a_worker_state(models.identity(), batch_size=8))
    for rows in (1, 1, 3):
        await infer(routes, infer_json([[1, 2]] * rows))
    await infer(routes, b"{")

    (stats,) = json.loads((await ask(routes, "/v2/models/net/stats")).body)["model_stats"]

    assert (stats["inference_count"], stats["execution_count"]) == (5, 3)
    assert {b["batch_size"]: b["compute_infer"]["count"] for b in stats["batch_stats"]} == {1: 2, 3: 1}
    assert (stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]) == (3, 1)
    assert stats["inference_stats"]["success"]["ns"] > 0


async def test_a_reload_does_not_set_the_counters_back() -> None:
    state = await a_worker_state(models.identity(), job="reloading")
    routes = routes_of(state)
    await infer(routes, infer_json([[1, 2]]))
    await state.repository.load("net")
    await infer(routes, infer_json([[1, 2]]))

    found = counted("reloading")

    assert (found["inference_requests_total200"], found["inference_runs_total"]) == (2, 2)


async def test_the_sketch_of_the_telemetry_gives_back_the_latency() -> None:
    state = await a_worker_state(models.identity())
    state.metrics["net"].sketch.record(0.25, weight=100)

    telemetry = json.loads((await ask(routes_of(state), "/telemetry")).body)

    sketch = LatencySketch({int(k): v for k, v in telemetry["sketch"].items()})
    assert sketch.quantile(0.95) == pytest.approx(0.25, rel=0.011)


async def test_committed_items_of_a_batch_are_counted(volume: Path, root: Path) -> None:
    task = BatchTask(input_data="[1, 2]\n[3, 4]", output_uri="pvc://data/out")
    state = await a_worker_state(models.identity(), job="items", task=task, root=root)

    await _run_task(state, asyncio.Event(), Tracer({}))

    assert counted("items")["inference_batch_items_total"] == 2


async def test_a_batch_worker_that_is_told_to_stop_is_no_longer_ready(volume: Path, root: Path) -> None:
    engine = Scripted(held=True)
    task = BatchTask(input_data="[1, 2]\n[3, 4]", output_uri="pvc://data/out")
    warm = Warm(ROWS, LatencyProfile({}), None, inline=False, threads=1)
    state = await a_worker_state(engine, warm, task=task, root=root)
    stop = asyncio.Event()
    working = asyncio.create_task(_run_task(state, stop, Tracer({})))
    await engine.begun()
    assert state.ready

    stop.set()
    async with asyncio.timeout(20):
        while state.ready:
            await asyncio.sleep(0)
    engine.let()
    report = await working

    assert (report.outcome, report.progress and report.progress.completed) == ("Drained", 1)


async def test_what_was_computed_is_told_and_outlives_an_unload() -> None:
    state = await a_worker_state(models.identity(), job="busy")
    routes = routes_of(state)
    await infer(routes, infer_json([[1, 2]]))
    before = state.telemetry()
    await state.repository.unload("net")
    after = state.telemetry()

    assert before.busy_seconds > 0
    assert (after.busy_seconds, after.requests_total) == (before.busy_seconds, before.requests_total)


async def test_telemetry_and_metrics_tell_of_the_device_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        worker_state, "meter_for", lambda _: DeviceMeter(lambda: lambda: DeviceReading("GPU-7", energy_joules=12.5))
    )
    state = await a_worker_state(models.identity(), job="on-device")
    routes = routes_of(state)
    async with asyncio.timeout(5):
        while state.device is None:
            await asyncio.sleep(0.001)

    told = json.loads((await ask(routes, "/telemetry")).body)["device"]
    series = (await ask(routes, "/metrics")).body.decode()

    assert (told["uuid"], told["energyJoules"]) == ("GPU-7", 12.5)
    assert 'inference_device_energy_joules_total{uuid="GPU-7"} 12.5' in series

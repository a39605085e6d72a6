"""The batch in three forms: a Job's pod is the operator's own, and targets stand only over what was measured."""

import msgspec

from bench.local.jobs import Manifest, batch_job, inference_job, warm_model
from bench.local.run import judge
from inference_operator.accelerators import AcceleratorClass
from inference_operator.state.parse import parse_job, parse_model
from inference_protocol.messages import CONFIG_VARIABLE, WorkerConfig

DIGEST = "sha256:" + "b" * 64
VERSION = {"name": "1", "uri": "pvc://data/digits/model.onnx", "digest": DIGEST}
MODEL: Manifest = {
    "apiVersion": "inference.myorg/v1",
    "kind": "InferenceModel",
    "metadata": {"name": "digits", "namespace": "bench"},
    "spec": {"versions": [VERSION]},
}
META = {"uid": "u", "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
CPU = AcceleratorClass(execution_providers=("CPUExecutionProvider",), requests={"cpu": "100m"}, limits={"memory": "512Mi"})
ROWS = '{"pixels": [0]}\n{"pixels": [1]}'


def test_the_jobs_worker_is_told_what_an_inference_jobs_worker_is_told() -> None:
    job = batch_job("a", "bench", MODEL, ROWS, CPU, "worker:1")

    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    config = next(one["value"] for one in container["env"] if one["name"] == CONFIG_VARIABLE)
    told = msgspec.json.decode(config, type=WorkerConfig)
    assert (told.model.uri, told.model.digest, told.batch_size) == (VERSION["uri"], DIGEST, 4)
    assert told.task is not None and told.task.input_data == ROWS
    assert (container["image"], container["resources"]["requests"], pod["restartPolicy"]) == ("worker:1", {"cpu": "100m"}, "Never")
    assert "affinity" not in pod


def test_the_inference_job_and_the_warm_model_are_valid() -> None:
    job = inference_job("a", "bench", "digits-warm", ROWS)
    model = warm_model(MODEL, 2)

    assert parse_job({**job, "metadata": {**job["metadata"], **META}}).invalid is None
    read = parse_model({**model, "metadata": {**model["metadata"], **META}})
    assert read.invalid is None
    assert read.key.name == "digits-warm"
    assert read.spec is not None and read.spec.warm_pool is not None and read.spec.warm_pool.min == 2
    assert MODEL["metadata"]["name"] == "digits"


def test_without_warm_workers_there_is_no_target() -> None:
    cold = {"scenario": "latency", "side": "cold", "p50": 3.0, "p99": 3.1}

    assert (
        judge([{"scenario": "warm", "failed": "not after 60 s"}, cold, {"scenario": "burst", "side": "job", "jobsPerSecond": 3.0}])
        == []
    )


def test_warm_is_held_against_its_bounds_and_against_jobs() -> None:
    warm = {"scenario": "latency", "side": "warm", "p50": 0.12, "p99": 0.6}
    bursts = [{"scenario": "burst", "side": side, "jobsPerSecond": rate} for side, rate in (("job", 3.0), ("warm", 60.0))]

    verdicts = {target.id: target.holds for target in judge([warm, *bursts])}

    assert verdicts == {"warm.p50": True, "warm.p99": False, "warm.rate": True, "warm.aim": False}

"""A field of the spec that changes a service's pod rolls the service out, and no other does."""

import json
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from inference_operator.api.cache import AnswerCache, FrameReuse
from inference_operator.api.job import (
    Autoscaling,
    AutoscalingMode,
    Backend,
    DeadlinePolicy,
    InferenceJobSpec,
    Input,
    ModelControl,
    Output,
    Serve,
    SharedMemory,
    Slack,
)
from inference_operator.api.model import AcceleratorResources
from inference_operator.api.pod_parts import EnvironmentVariable
from inference_operator.api.resources import Resources
from inference_operator.api.storage import SecretReference, Storage
from inference_operator.api.template import PodTemplate, Toleration
from inference_operator.settings import Backends, Settings, TorchScriptBackend, TritonBackend
from inference_operator.state.objects import Job, Model, Worker
from inference_operator.state.parse import parse_job, parse_model
from inference_operator.workers.classes import classes
from inference_operator.workers.options import worker_resources
from inference_operator.workers.pod import worker_pod
from inference_operator.workers.resolve import ResolvedJob
from inference_operator.workers.template_hash import LEFT_OUT, Revisions, template_hash, template_placement
from tests.builders import DIGEST, SETTINGS, a_job, a_model, a_version, observed, resolved_of
from tests.unit.scheduling.support import in_seconds

MODEL = a_model("m", a_version("1"), a_version("2", uri="pvc://models/other.onnx"))
WITH_ALL = msgspec.structs.replace(
    SETTINGS, backends=Backends(triton=TritonBackend(image="triton"), torchscript=TorchScriptBackend(image="torch"))
)
JOB = a_job(model="m", serve=True)

# Another value for each field of a service's spec. What is None belongs to batches alone.
OTHER: dict[str, Any] = {
    "model": "pvc://models/third.onnx",
    "model_version": "1",
    "model_digest": DIGEST,
    "accelerator": "cpu",
    "deadline": in_seconds(60),
    "deadline_policy": DeadlinePolicy.FIRM,
    "priority": 7,
    "batch_size": 9,
    "backend": Backend.TRITON,
    "input": None,
    "output": None,
    "serve": Serve(model_control=ModelControl.EXPLICIT, shared_memory=SharedMemory.SYSTEM),
    "autoscaling": Autoscaling(mode=AutoscalingMode.EXTERNAL),
    "replicas": 5,
    "suspend": True,
    "ttl_seconds_after_finished": 60,
    "max_attempts": 9,
    "resources": Resources(requests={"cpu": "3"}),
    "queue_name": "team",
    "node_selector": {"disk": "fast"},
    "tolerations": [Toleration(key="spot", operator="Exists")],
    "template": PodTemplate(env=[EnvironmentVariable(name="APP_A", value="b")]),
}


def changed(**spec: Any) -> Job:
    assert JOB.spec is not None
    return replace(JOB, spec=replace(JOB.spec, **spec))


def pods(job: Job, model: Model | None = MODEL, settings: Settings = WITH_ALL) -> list[dict[str, Any]]:
    """The pods that the service would get, one for each class that it may run on."""
    resolved = resolved_of(observed(job, model=model), settings)
    spec = resolved.spec
    return [
        worker_pod(
            job,
            spec,
            resolved.source,
            worker_resources(spec, resolved.model, name, settings.accelerators[name]),
            template_placement(name),
            number=3,
            revision="any",
            mounts=resolved.claims,
            settings=settings,
            backend=resolved.backend,
        )
        for name in classes(spec, resolved.backend, settings)
    ]


def revisions(job: Job, model: Model | None = MODEL, settings: Settings = WITH_ALL) -> Revisions:
    return resolved_of(observed(job, model=model), settings).revisions


def test_every_field_of_the_spec_is_looked_at() -> None:
    assert set(OTHER) == {field.name for field in fields(InferenceJobSpec)}


@pytest.mark.parametrize("name", [name for name, value in OTHER.items() if value is not None])
def test_a_field_that_changes_the_pod_rolls_the_service_out_and_no_other_does(name: str) -> None:
    job = changed(**{name: OTHER[name]})
    # The attempt's number stands in the worker's configuration as well: both sides are built with the same.
    pod_changes = pods(job) != pods(JOB)

    assert (revisions(job) != revisions(JOB)) == pod_changes


def test_tolerations_roll_a_service_out() -> None:
    assert revisions(changed(tolerations=OTHER["tolerations"])) != revisions(JOB)


def test_lending_slack_rolls_a_service_out_and_no_token_does() -> None:
    plain = Serve(latency_target_milliseconds=50)
    lending, mounting = (replace(plain, slack=slack) for slack in (Slack(), Slack(claims=["data"])))
    made = [revisions(changed(serve=serve)) for serve in (None, plain, lending, mounting)]

    assert made[0] == made[1]
    assert len({one.combined for one in made[1:]}) == 3


def test_a_setting_that_changes_the_pod_rolls_the_service_out() -> None:
    longer = msgspec.structs.replace(WITH_ALL, termination_grace_seconds=WITH_ALL.termination_grace_seconds + 1)

    assert revisions(JOB, settings=longer) != revisions(JOB)


def test_a_change_on_another_class_does_not_touch_the_workers_of_this_one() -> None:
    small = AcceleratorResources(accelerator="gpu", resources=Resources(requests={"cpu": "3"}))
    assert MODEL.spec is not None
    changed_model = replace(MODEL, spec=replace(MODEL.spec, resources=[small]))
    before, after = (revisions(JOB, model) for model in (MODEL, changed_model))

    assert (after.by_class["cpu"], after.by_class["gpu"] != before.by_class["gpu"]) == (before.by_class["cpu"], True)
    assert after.combined != before.combined
    assert [after.make(a_worker_on(name, before)) for name in ("cpu", "gpu", "gone")] == [True, False, False]


def a_worker_on(accelerator: str, made: Revisions) -> Worker:
    return Worker(JOB.uid, 1, made.by_class.get(accelerator, "r"), accelerator, template_placement(accelerator))


def test_what_tells_one_worker_from_another_is_left_out() -> None:
    first = pods(JOB)
    for pod in first:
        for head, key, *rest in LEFT_OUT:
            if rest:
                pod[head][key][rest[0]] = "another"
            else:
                pod[head][key] = "another"

    assert [template_hash(pod) for pod in first] == [template_hash(pod) for pod in pods(JOB)]


@pytest.mark.parametrize(
    "change",
    [
        {"input": Input(uri="pvc://data/other.npy")},
        {"output": Output(uri="pvc://data/elsewhere")},
        {"output": Output(uri="pvc://data/out", storage=Storage(secret_ref=SecretReference(name="answers")))},
        {"batch_size": 9},
    ],
    ids=["input", "output", "who asks for the output", "batch size"],
)
def test_what_a_batch_computes_is_its_revision(change: dict[str, Any]) -> None:
    batch = a_job(model="m", items=10)
    assert batch.spec is not None

    assert revisions(replace(batch, spec=replace(batch.spec, **change))) != revisions(batch)


def test_another_pod_template_does_not_make_a_batch_start_again() -> None:
    batch = a_job(model="m", items=10)
    assert batch.spec is not None

    assert revisions(replace(batch, spec=replace(batch.spec, template=OTHER["template"]))) == revisions(batch)


def test_a_cache_and_each_of_its_bounds_roll_a_service_out() -> None:
    caches = (
        None,
        AnswerCache(),
        AnswerCache(max_bytes=1 << 20),
        AnswerCache(max_age_seconds=30),
        AnswerCache(frames=FrameReuse()),
        AnswerCache(frames=FrameReuse(similarity=0.9)),
        AnswerCache(frames=FrameReuse(max_streams=2)),
        AnswerCache(frames=FrameReuse(max_bytes=1 << 20)),
        AnswerCache(frames=FrameReuse(max_age_seconds=5)),
    )

    assert len({revisions(changed(serve=Serve(cache=cache))).combined for cache in caches}) == len(caches)


# What a manifest leaves out of a list, and the same as it is filled in.
LEFT_TO_DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "format": ({"versions": [{"format": "onnx"}]}, {}),
    "quantization": ({"versions": [{"quantization": {"maxDrop": 0.01, "minAgreement": 0.99}}]}, {}),
    "toleration": ({}, {"tolerations": [{"operator": "Equal"}]}),
    "environment": ({}, {"template": {"env": [{"value": ""}]}}),
}


def read(given: dict[str, Any], *, batch: bool) -> ResolvedJob:
    """A job and its model as they are read from the API server; `given` is what their lists say beyond what they must."""
    of_model, of_job = given.get("model", {}), given.get("job", {})
    rows = {"method": "Dynamic", "evaluation": "pvc://d/rows.npy"}
    (version,) = of_model.get("versions", [{}])
    version = {"name": "1", "uri": "pvc://d/m.onnx", **version, "quantization": {**rows, **version.get("quantization", {})}}
    (toleration,), (env,) = of_job.get("tolerations", [{}]), of_job.get("template", {"env": [{}]})["env"]
    spec = {"model": "m", "tolerations": [{"key": "gpu", **toleration}], "template": {"env": [{"name": "APP_A", **env}]}}
    if batch:
        spec["input"] = {"uri": "pvc://d/in.npy"}
    # As from the wire: no string of it is one of the code.
    raw = json.loads(json.dumps({"metadata": {"name": "m", "namespace": "default", "uid": "u"}, "spec": {"versions": [version]}}))
    job = json.loads(json.dumps({"metadata": {"name": "job", "namespace": "default", "uid": "u"}, "spec": spec}))
    return resolved_of(observed(parse_job(job), model=parse_model(raw)))


@pytest.mark.parametrize("name", LEFT_TO_DEFAULTS)
@pytest.mark.parametrize("batch", [False, True], ids=["service", "batch"])
def test_a_default_that_a_manifest_names_replaces_no_worker(name: str, batch: bool) -> None:  # noqa: FBT001
    """Objects that were stored before have it by name: an upgrade must not start all work again."""
    of_model, of_job = LEFT_TO_DEFAULTS[name]

    assert read({"model": of_model, "job": of_job}, batch=batch).revisions == read({}, batch=batch).revisions


def test_a_format_is_told_as_objects_that_were_stored_before_have_it() -> None:
    source = read({}, batch=True).source

    assert b'"format":"onnx"' in msgspec.json.encode(source)

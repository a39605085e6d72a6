"""One batch in three forms: the same image, container, model and input each time."""

from datetime import UTC, datetime
from typing import Any

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.job_status import CostTerms, Placement
from inference_operator.api.resources import Resources
from inference_operator.api.schema import API_VERSION
from inference_operator.settings import Settings
from inference_operator.state.parse import parse_job
from inference_operator.workers.claims import claims
from inference_operator.workers.pod import worker_pod
from inference_protocol.messages import ModelSource

Manifest = dict[str, Any]
WARM_SUFFIX = "-warm"
BATCH_SIZE = 4


def inference_job(name: str, namespace: str, model: str, rows: str) -> Manifest:
    """The batch as an InferenceJob; whether it finds a warm worker is its model's affair."""
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": model, "accelerator": "cpu", "batchSize": BATCH_SIZE, "input": {"data": rows}},
    }


def warm_model(model: Manifest, workers: int) -> Manifest:
    """The same model under another name, with workers that are kept loaded."""
    meta = {**model["metadata"], "name": model["metadata"]["name"] + WARM_SUFFIX}
    pool = {"min": workers, "max": workers, "accelerator": "cpu", "batchSize": BATCH_SIZE}
    return {**model, "metadata": meta, "spec": {**model["spec"], "warmPool": pool}}


def batch_job(name: str, namespace: str, model: Manifest, rows: str, accelerator: AcceleratorClass, image: str) -> Manifest:
    """The batch as a Job whose pod is the one that the operator would make, but that kube-scheduler picks the node."""
    meta = {"uid": name, "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    job = inference_job(name, namespace, model["metadata"]["name"], rows)
    job["metadata"] |= meta
    version = model["spec"]["versions"][-1]
    source = ModelSource(model["metadata"]["name"], version["name"], version["uri"], version["digest"])
    nowhere = Placement(
        accelerator="cpu",
        node="",
        pod=name,
        cost=CostTerms(total=0, latency_seconds=0, energy_joules=0, switch_seconds=0, estimated=True),
        decision_time=datetime.now(UTC),
    )
    parsed = parse_job(job)
    assert parsed.spec is not None
    pod = worker_pod(
        parsed,
        parsed.spec,
        source,
        Resources(requests=accelerator.requests, limits=accelerator.limits),
        nowhere,
        number=1,
        revision="",
        mounts=claims(parsed.spec, source),
        settings=Settings(worker_image=image, accelerators={"cpu": accelerator}),
    )
    spec = {key: value for key, value in pod["spec"].items() if key != "affinity"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"backoffLimit": 0, "template": {"metadata": {}, "spec": spec}},
    }

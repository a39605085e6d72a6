"""A worker to be created: the pod, and what the store assumes until it exists."""

from datetime import datetime

from inference_operator.api import names
from inference_operator.api.job import Backend, Placement
from inference_operator.scheduling.types import Assignment, Explanation
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Observed, Pod, PodPhase, Worker
from inference_operator.state.resources import PODS, Amounts
from inference_operator.workers.actions import CreatePod
from inference_operator.workers.backend import chosen
from inference_operator.workers.options import worker_resources
from inference_operator.workers.pod import worker_pod
from inference_operator.workers.source import model_source
from inference_operator.workers.triton import pod_amounts


def create_worker(
    observed: Observed,
    assignment: Assignment,
    explanation: Explanation,
    *,
    number: int,
    revision: str,
    settings: Settings,
    now: datetime,
) -> CreatePod:
    """Create the worker with this number at the assigned place."""
    job = observed.job
    name = names.pod_name(job.key.name, job.uid, number)
    placement = placement_at(assignment, explanation, name, now)
    accelerator = settings.accelerators[assignment.accelerator]
    resources = worker_resources(observed, assignment.accelerator, accelerator)
    source = model_source(observed)
    assert job.spec is not None, "only admitted jobs get pods"
    backend = chosen(job.spec.backend, source.format).backend
    manifest = worker_pod(job, source, resources, placement, number=number, revision=revision, settings=settings, backend=backend)
    requests = pod_amounts(resources, with_sidecar=backend is Backend.TRITON)
    worker = Worker(job.uid, number, revision, assignment.accelerator, placement)
    return CreatePod(manifest, assumed(Key(job.key.namespace, name), requests, worker, now), f"worker {number} of {job.key}")


def assumed(key: Key, requests: Amounts, worker: Worker, now: datetime) -> Pod:
    """What stands for a pod until the API server has shown it: that its place is taken."""
    return Pod(
        key=key,
        uid="",
        resource_version="",
        node=None,
        requests={**requests, PODS: 1},
        phase=PodPhase.PENDING,
        deleting=False,
        worker=worker,
        created=now,
    )


def placement_at(assignment: Assignment, explanation: Explanation, pod: str, now: datetime) -> Placement:
    """The assigned place as the status tells it."""
    return Placement(
        accelerator=assignment.accelerator,
        node=assignment.node,
        pod=pod,
        cost=explanation.cost,
        alternatives=list(explanation.alternatives),
        decision_time=now.replace(microsecond=0),
    )

"""A worker to be created: the pod, and what the store assumes until it exists."""

import re
from collections.abc import Callable
from datetime import datetime

from inference_operator.api import names
from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift
from inference_operator.api.job import Backend
from inference_operator.api.job_status import Placement
from inference_operator.scheduling.types import Assignment, Explanation
from inference_operator.settings import Settings
from inference_operator.state.objects import CreateFailure, Key, Placeholder, Pod, PodPhase, Worker
from inference_operator.state.resources import PODS, Amounts
from inference_operator.workers.actions import CreatePod
from inference_operator.workers.attempts import PERMANENT_RETRY_SECONDS, is_ahead
from inference_operator.workers.config import items_limit
from inference_operator.workers.options import worker_resources
from inference_operator.workers.pod import worker_pod
from inference_operator.workers.pod_template import template_on
from inference_operator.workers.resolve import ResolvedJob
from inference_operator.workers.triton import pod_amounts

# What the API server's admission says of a pod whose RuntimeClass isn't there.
_NO_RUNTIME = re.compile(r'RuntimeClass "[^"]*" not found')


def create_worker(
    resolved: ResolvedJob,
    assignment: Assignment,
    explanation: Explanation,
    *,
    number: int,
    settings: Settings,
    now: datetime,
    digest_of: Callable[[Key], str] = lambda _: "",
) -> CreatePod:
    """Return the action that creates the worker with this number at the assigned place.

    `digest_of` is that of a worker pod's token, for those that are handed tasks.
    """
    job = resolved.job
    name = names.pod_name(job.key.name, job.uid, number)
    key = Key(job.key.namespace, name)
    placement = placement_at(assignment, explanation, name, now)
    accelerator = settings.accelerators[assignment.accelerator]
    resources = worker_resources(resolved.spec, resolved.model, assignment.accelerator, accelerator)
    revision = resolved.revisions.by_class[assignment.accelerator]
    manifest = worker_pod(
        job,
        resolved.spec,
        resolved.source,
        resources,
        placement,
        number=number,
        revision=revision,
        mounts=resolved.claims,
        settings=settings,
        backend=resolved.backend,
        items_limit=items_limit(resolved.spec, resolved.estimate_on(assignment.accelerator), now),
        task_token_digest=digest_of(key),
    )
    requests = pod_amounts(resources, template_on(resolved.spec, accelerator), with_sidecar=resolved.backend is Backend.TRITON)
    worker = Worker(job.uid, number, revision, assignment.accelerator, placement)
    pod = assumed(key, requests, worker, tuple(resolved.claims), now)
    return CreatePod(manifest, pod, f"worker {number} of {job.key}")


def create_retry_time(failure: CreateFailure, settings: Settings) -> datetime:
    """Return when something that the API server refused is tried again. What is invalid waits longest: only a change helps."""
    if failure.reason is Reason.POD_INVALID:
        return shift(failure.time, PERMANENT_RETRY_SECONDS)
    wait = min(settings.backoff_seconds * 2.0 ** min(failure.count, 20), settings.backoff_limit_seconds)
    return shift(failure.time, wait)


def told(failure: CreateFailure) -> str:
    """What the API server has said of it, with the cure where it is not the message's own."""
    if failure.reason is Reason.POD_INVALID:
        return f"{failure.message}; correct the field of the job, its model or its accelerator class that it names"
    if failure.accelerator and _NO_RUNTIME.search(failure.message):
        named = f"template.runtimeClassName of the job, or without it accelerators.{failure.accelerator}.runtimeClassName"
        return f"{failure.message}; {named} in the chart's values, names it: correct that, or create the RuntimeClass"
    return failure.message


def is_held_up(failure: CreateFailure | None, settings: Settings, now: datetime) -> bool:
    """Whether the API server has refused something so recently that it is not tried again yet."""
    return failure is not None and not is_ahead(failure.time, now) and create_retry_time(failure, settings) > now


def assumed(key: Key, requests: Amounts, what: Worker | Placeholder, claims: tuple[str, ...], now: datetime) -> Pod:
    """What stands for a pod until the API server has shown it: that its place is taken."""
    return Pod(
        key=key,
        uid="",
        resource_version="",
        node=None,
        requests={**requests, PODS: 1},
        phase=PodPhase.PENDING,
        deleting=False,
        worker=what if isinstance(what, Worker) else None,
        placeholder=what if isinstance(what, Placeholder) else None,
        created=now,
        claims=claims,
    )


def placement_at(assignment: Assignment, explanation: Explanation, pod: str, now: datetime) -> Placement:
    """The assigned place as the status tells it."""
    return Placement(
        accelerator=assignment.accelerator,
        node=assignment.node,
        pod=pod,
        cost=explanation.cost,
        alternatives=list(explanation.alternatives),
        slack=assignment.slack,
        decision_time=now.replace(microsecond=0),
    )

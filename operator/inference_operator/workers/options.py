"""What a job may run on: accelerator classes, resources, claims, and estimates."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.api.quantity import parse_quantity
from inference_operator.api.resources import Resources
from inference_operator.scheduling.estimate import Assumptions, estimate, wanted
from inference_operator.scheduling.requirements import Tolerance, pod_requirements
from inference_operator.scheduling.types import Option
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Key, Model, Pod
from inference_operator.state.resources import PODS
from inference_operator.state.topology import Terms
from inference_operator.state.volumes import Access, Claim
from inference_operator.workers.classes import classes
from inference_operator.workers.pod_template import template_on
from inference_operator.workers.triton import pod_amounts
from inference_protocol.messages import ModelSource


class Mounts(NamedTuple):
    """What the claims that a worker mounts mean for its place.

    `bound` are those whose volumes can't be mounted everywhere, `exclusive` those that not all may mount at a time.
    """

    bound: tuple[tuple[str, Terms], ...] = ()
    exclusive: tuple[tuple[Key, Access], ...] = ()


def mounts_of(namespace: str, mounts: Mapping[str, bool], volumes: Mapping[str, Terms], claims: Mapping[str, Claim]) -> Mounts:
    """Return what mounted claims mean; `mounts` says of each whether it is written to."""
    names = sorted(mounts)
    known = ((name, claims[name].access(writes=mounts[name])) for name in names if name in claims)
    return Mounts(
        tuple((name, volumes[name]) for name in names if name in volumes),
        tuple((Key(namespace, name), access) for name, access in known if access is not None),
    )


def options(
    job: Job, spec: InferenceJobSpec, model: Model | None, source: ModelSource, backend: Backend, settings: Settings, mounts: Mounts
) -> tuple[Option, ...]:
    """Return the accelerator classes that a job may run on, each with its requirements and estimate."""
    found = []
    items = items_left(job, spec)
    for name in classes(spec, backend, settings):
        accelerator = settings.accelerators[name]
        resources, template = worker_resources(spec, model, name, accelerator), template_on(spec, accelerator)
        taken = pod_amounts(resources, template, with_sidecar=backend is Backend.TRITON)
        expected = estimate(
            model,
            wanted(source, backend),
            accelerator=name,
            batch_size=spec.batch_size,
            items=items,
            serving=spec.input is None,
            assumed=Assumptions(settings.assumed_load_seconds, settings.assumed_work_seconds),
        )
        requirements = pod_requirements(
            tuple(sorted({**taken, PODS: 1}.items())),
            tuple(sorted({**spec.node_selector, **accelerator.node_selector}.items())),
            (
                *(Tolerance(t.key, t.operator, t.value, t.effect) for t in accelerator.tolerations),
                *_tolerances(spec),
            ),
            mounts.bound,
            mounts.exclusive,
            user_namespace=settings.worker_security.user_namespaces,
        )
        found.append(Option(name, requirements, expected, accelerator.watts_busy))
    return tuple(found)


def _tolerances(spec: InferenceJobSpec) -> Iterator[Tolerance]:
    """What new workers tolerate. One that a node would end after so many seconds is no place for a service, which has no end."""
    for t in spec.tolerations:
        if t.toleration_seconds is None or spec.input is not None:
            yield Tolerance(t.key, t.operator, t.value, t.effect)


def worker_resources(spec: InferenceJobSpec, model: Model | None, name: str, accelerator: AcceleratorClass) -> Resources:
    """Return a worker's requests and limits: the job's over its model's, over the class's, and the device itself on top."""
    of_model = None
    if model is not None and model.spec is not None:
        of_model = next((r.resources for r in model.spec.resources if r.accelerator == name), None)
    requests, limits = dict(accelerator.requests), dict(accelerator.limits)
    for given in filter(None, (of_model, spec.resources)):
        requests |= given.requests
        limits |= given.limits
        if "memory" in given.requests and "memory" not in given.limits:
            # A limit of the class below the request would be refused by the API server.
            limits["memory"] = given.requests["memory"]
        for resource, limit in given.limits.items():
            if resource not in given.requests and resource in requests and _more(requests[resource], limit):
                # And so would a request of the class above a limit of the job's.
                requests[resource] = limit
    if accelerator.resource_name is not None:
        requests[accelerator.resource_name] = limits[accelerator.resource_name] = str(accelerator.resource_count)
    return Resources(requests=requests, limits=limits)


def _more(a: str, b: str) -> bool:
    return parse_quantity(a, milli=True) > parse_quantity(b, milli=True)


def items_left(job: Job, spec: InferenceJobSpec) -> int | None:
    """Return the items that are still to be run, as far as is known."""
    progress = job.status.progress
    if spec.input is None:
        return None
    # Another total than the declared one is that of an input that was there before.
    if progress is not None and spec.input.items in (None, progress.total):
        return max(0, progress.total - progress.completed)
    if spec.input.data is not None:
        return sum(1 for line in spec.input.data.splitlines() if line.strip())
    return spec.input.items


def planned_node(pod: Pod) -> str | None:
    """Return the node that a worker is on, or was given."""
    placement = pod.worker.placement if pod.worker is not None else None
    return pod.node or (placement.node if placement is not None else None)


def nodes_of(workers: Iterable[Pod]) -> tuple[str, ...]:
    """Return the nodes that workers are on, or were given."""
    return tuple(sorted(node for pod in workers if (node := planned_node(pod)) is not None))

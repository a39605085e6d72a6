"""What a job may run on: accelerator classes, resources, claims, and estimates."""

from collections.abc import Collection, Iterable

from inference_operator.api.job import Accelerator, Backend, InferenceJobSpec, Resources
from inference_operator.api.quantity import parse_quantity
from inference_operator.scheduling.estimate import Assumptions, estimate, wanted
from inference_operator.scheduling.types import Option, Tolerance, pod_requirements
from inference_operator.settings import AcceleratorClass, Settings
from inference_operator.state.objects import Observed, Pod
from inference_operator.state.resources import PODS
from inference_operator.state.topology import Terms
from inference_operator.workers.backend import chosen
from inference_operator.workers.pod import claims
from inference_operator.workers.source import model_source
from inference_operator.workers.triton import pod_amounts


def classes(asked: Accelerator, settings: Settings) -> tuple[str, ...]:
    """The accelerator classes that a job may run on."""
    return tuple(settings.accelerators) if asked is Accelerator.AUTO else (asked.value,)


def nodes_of(workers: Iterable[Pod]) -> tuple[str, ...]:
    """The nodes that workers are on, or were given."""
    return tuple(sorted(node for pod in workers if (node := pod.node or _planned_node(pod)) is not None))


def _planned_node(pod: Pod) -> str | None:
    return pod.worker.placement.node if pod.worker is not None and pod.worker.placement is not None else None


def options(observed: Observed, settings: Settings, mounts: Collection[str] | None = None) -> tuple[Option, ...]:
    """The accelerator classes that the job may run on, each with its shape and estimate; `mounts` are claims other than its own."""
    spec = observed.job.spec
    assert spec is not None
    volumes = _bound(observed, spec, mounts)
    return tuple(
        _option(observed, spec, name, settings.accelerators[name], settings, volumes)
        for name in classes(spec.accelerator, settings)
    )


def _bound(observed: Observed, spec: InferenceJobSpec, mounts: Collection[str] | None) -> tuple[tuple[str, Terms], ...]:
    """The claims that are mounted and whose volumes can't be mounted everywhere."""
    if not observed.volumes:
        return ()
    mounted = claims(spec, model_source(observed)) if mounts is None else mounts
    return tuple((claim, observed.volumes[claim]) for claim in sorted(mounted) if claim in observed.volumes)


def _option(
    observed: Observed,
    spec: InferenceJobSpec,
    name: str,
    accelerator: AcceleratorClass,
    settings: Settings,
    volumes: tuple[tuple[str, Terms], ...],
) -> Option:
    source = model_source(observed)
    backend = chosen(spec.backend, source.format).backend
    taken = pod_amounts(worker_resources(observed, name, accelerator), with_sidecar=backend is Backend.TRITON)
    return Option(
        accelerator=name,
        requirements=pod_requirements(
            tuple(sorted({**taken, PODS: 1}.items())),
            tuple(sorted({**accelerator.node_selector, **spec.node_selector}.items())),
            (
                *(Tolerance(t.key, t.operator, t.value, t.effect) for t in accelerator.tolerations),
                *(Tolerance(t.key, t.operator, t.value, t.effect) for t in spec.tolerations),
            ),
            volumes,
        ),
        estimate=estimate(
            observed.model,
            wanted(source, backend),
            accelerator=name,
            batch_size=spec.batch_size,
            items=items_left(observed),
            serving=spec.input is None,
            assumed=Assumptions(settings.assumed_load_seconds, settings.assumed_work_seconds),
        ),
        watts=accelerator.watts_busy,
    )


def worker_resources(observed: Observed, name: str, accelerator: AcceleratorClass) -> Resources:
    """Requests and limits of a worker: the job's word over its model's, over the class's, and the device itself on top."""
    spec = observed.job.spec
    assert spec is not None
    model = observed.model.spec if observed.model is not None else None
    of_model = next((r.resources for r in model.resources if r.accelerator == name), None) if model is not None else None
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


def items_left(observed: Observed) -> int | None:
    """Items that are still to be run, as far as is known."""
    spec, progress = observed.job.spec, observed.job.status.progress
    if spec is None or spec.input is None:
        return None
    # Another total than the declared one is that of an input that was there before.
    if progress is not None and spec.input.items in (None, progress.total):
        return max(0, progress.total - progress.completed)
    if spec.input.data is not None:
        return sum(1 for line in spec.input.data.splitlines() if line.strip())
    return spec.input.items

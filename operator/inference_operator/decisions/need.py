"""What a job wants from the fleet just now: nothing, or workers of some shape on some accelerator classes."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from inference_operator.decisions import admit
from inference_operator.decisions.attempts import Attempts, attempts, expected_end, is_running, retry_time
from inference_operator.decisions.backend import chosen
from inference_operator.decisions.fleet import Need, Option, Tenure, Tolerance, shared_shape
from inference_operator.decisions.lodging import classes, guest_of, in_trouble, pool_for
from inference_operator.decisions.profile import Assumptions, estimate, key_of, wanted
from inference_operator.decisions.replicas import Replicas, replicas
from inference_operator.decisions.report import facts_of
from inference_operator.decisions.revision import revision
from inference_operator.domain.cluster import Job, Model, Observed, Pod
from inference_operator.domain.conditions import ConditionType, Truth, find
from inference_operator.domain.instants import shift
from inference_operator.domain.job import Backend, DeadlinePolicy, InferenceJobSpec, Resources
from inference_operator.domain.quantity import parse_quantity
from inference_operator.domain.resources import PODS
from inference_operator.domain.topology import Terms
from inference_operator.manifests.triton import pod_amounts
from inference_operator.manifests.worker import claims
from inference_operator.settings import AcceleratorClass, Settings

# From the signal to the free place, beside the batch that is finished first: a commit, and the kubelet's part.
_STOPPING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands: admitted or not, and its attempts (batch) or replicas (serve)."""

    refusal: admit.Refusal | None
    revision: str = ""
    attempts: Attempts | None = None
    replicas: Replicas | None = None


def is_finished(job: Job) -> bool:
    """Whether the job has ended for good. One that was refused before it started is looked at anew when its spec changes."""
    succeeded = find(job.status.conditions, ConditionType.SUCCEEDED)
    if succeeded is None or succeeded.status is Truth.UNKNOWN:
        return False
    return job.status.start_time is not None or job.status.observed_generation == job.generation


def standing(observed: Observed, settings: Settings, now: datetime) -> Standing:
    """Judge one job by what is observed of it."""
    refused = admit.refusal(observed, settings, now)
    spec = observed.job.spec
    if refused is not None or spec is None:
        return Standing(refused)
    current = revision(observed, settings)
    if spec.input is not None:
        state = attempts(observed, current, now, start_timeout_seconds=settings.start_timeout_seconds)
        return Standing(None, current, attempts=state)
    return Standing(None, current, replicas=replicas(observed, current, settings, now))


def need(observed: Observed, stand: Standing, settings: Settings, now: datetime) -> Need | None:
    """The workers that the job wants placed now; None when it wants none."""
    job, spec = observed.job, observed.job.spec
    if spec is None or stand.refusal or job.unreadable or job.deleting or spec.suspend or is_finished(job):
        return None
    if observed.setback is not None and setback_retry(observed, settings) > now:
        return None
    slots = (
        _batch_slots(observed, stand.attempts, spec, settings, now) if stand.attempts else _serve_slots(stand.replicas, spec, now)
    )
    if not slots:
        return None
    # A service that was ready once has met its deadline or missed it; workers that it wants later are neither late nor refused.
    was_ready = spec.input is None and job.status.completion_time is not None
    return Need(
        key=job.key,
        uid=job.uid,
        revision=stand.revision,
        slots=slots,
        options=options(observed, settings),
        created=job.created,
        priority=spec.priority,
        deadline=None if was_ready else spec.deadline,
        firm=spec.deadline_policy is DeadlinePolicy.FIRM and not was_ready,
        holds=spec.input is None,
        pool=pool_for(observed, settings) if spec.input is not None else None,
        # Whatever an attempt failed of, company does not make the next one better.
        guest=guest_of(observed, settings) if stand.attempts is not None and not stand.attempts.failed else None,
        beside=nodes_of(stand.replicas.current) if stand.replicas is not None else (),
    )


def nodes_of(workers: Iterable[Pod]) -> tuple[str, ...]:
    """The nodes that workers are on, or were given."""
    return tuple(sorted(node for pod in workers if (node := pod.node or _planned_node(pod)) is not None))


def _planned_node(pod: Pod) -> str | None:
    return pod.worker.placement.node if pod.worker is not None and pod.worker.placement is not None else None


def reckoned(model: Model | None) -> object:
    """What of a model's status changes what a job that waits wants: what is measured at all, and whether its pool keeps jobs away.

    How fast it was in the last run is not: it is told once a second, and ten thousand jobs need not be looked at for that.
    """
    if model is None:
        return None
    return in_trouble(model), {(key_of(p), p.device_bytes > 0) for p in model.status.profiles}


def tenure(observed: Observed, stand: Standing, settings: Settings, now: datetime) -> Tenure | None:
    """The place that a batch holds, and whether it may be asked to give it up; None for all that hold none, or for good."""
    job, spec, state = observed.job, observed.job.spec, stand.attempts
    if spec is None or state is None or state.pod is None or job.deleting:
        return None
    pod, worker = state.pod, state.pod.worker
    # A task on a warm worker holds no place of its own.
    if (
        pod.lodging is not None
        or pod.terminal
        or pod.uid in observed.lost
        or worker is None
        or worker.accelerator not in settings.accelerators
    ):
        return None
    node = pod.node or _planned_node(pod)
    if node is None:
        return None
    accelerator = settings.accelerators[worker.accelerator]
    option = _option(observed, spec, worker.accelerator, accelerator, settings, _bound(observed, spec, None))
    begun = pod.started or pod.created or now
    leaves = pod.deleting or state.ending is not None
    end = expected_end(observed, state) or shift(begun, option.estimate.total_seconds)
    facts = facts_of(pod, observed.readings)
    batch_seconds = facts.batch_size / facts.items_per_second if facts is not None and facts.items_per_second else 0.0
    leaving = _STOPPING_SECONDS + batch_seconds
    return Tenure(
        key=job.key,
        uid=job.uid,
        revision=stand.revision,
        node=node,
        shape=option.shape,
        begun=begun,
        end=shift(now, leaving) if leaves else end,
        priority=spec.priority,
        deadline=spec.deadline,
        # Answers in place are kept nowhere but in the worker: leaving would do the work twice.
        movable=is_running(pod)
        and not leaves
        and not spec.suspend
        and spec.output is not None
        and job.status.evictions < settings.evictions_per_job,
        leaving_seconds=leaving,
        resuming_seconds=option.estimate.load_seconds,
    )


def setback_retry(observed: Observed, settings: Settings) -> datetime:
    """When what the API server refused is tried again."""
    setback = observed.setback
    assert setback is not None
    wait = min(settings.backoff_seconds * 2.0 ** min(setback.count, 20), settings.backoff_limit_seconds)
    return shift(setback.time, wait)


def _batch_slots(observed: Observed, state: Attempts, spec: InferenceJobSpec, settings: Settings, now: datetime) -> int:
    if state.number and state.ending is None:
        return 0
    if any(not pod.terminal and pod.uid not in observed.lost for pod in observed.pods):
        # A worker that is on its way out still holds the output's lock and its place on the node.
        return 0
    if state.ending is not None and (state.succeeded or is_lost(state, spec)):
        return 0
    retry = retry_time(state, settings)
    return 1 if retry is None or retry <= now else 0


def is_lost(state: Attempts, spec: InferenceJobSpec) -> bool:
    """Whether no further attempt will be made after a failure."""
    return state.ending is not None and not state.succeeded and (state.ending.permanent or state.failed >= spec.max_attempts)


def _serve_slots(state: Replicas | None, spec: InferenceJobSpec, now: datetime) -> int:
    if state is None or (spec.serve is not None and spec.serve.until is not None and spec.serve.until <= now):
        return 0
    if state.fault is not None and state.retry is not None and state.retry > now:
        return 0
    return state.missing


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
    mounted = claims(spec, admit.source(observed)) if mounts is None else mounts
    return tuple((claim, observed.volumes[claim]) for claim in sorted(mounted) if claim in observed.volumes)


def _option(
    observed: Observed,
    spec: InferenceJobSpec,
    name: str,
    accelerator: AcceleratorClass,
    settings: Settings,
    volumes: tuple[tuple[str, Terms], ...],
) -> Option:
    source = admit.source(observed)
    backend = chosen(spec.backend, source.format).backend
    taken = pod_amounts(worker_resources(observed, name, accelerator), with_sidecar=backend is Backend.TRITON)
    return Option(
        accelerator=name,
        shape=shared_shape(
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

"""Which jobs can run on warm workers, and what those are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from inference_operator.accelerators import AUTO
from inference_operator.api.conditions import NO_PLACE, ConditionType, Truth, find
from inference_operator.api.instants import EARLIEST
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.api.model import Profile, Sharing, WarmPool
from inference_operator.api.schema import rfc3339
from inference_operator.api.template import PodTemplate
from inference_operator.runtime.memo import by_identity
from inference_operator.scheduling.estimate import find_profile, wanted
from inference_operator.scheduling.types import ColocatedModel, ModelMemory, Offer, mounted
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Key, Model
from inference_operator.state.observed import Observed
from inference_operator.workers.classes import classes
from inference_operator.workers.config import batch_task, items_limit, worker_config
from inference_operator.workers.fetch_rules import fetch_from
from inference_operator.workers.options import worker_resources
from inference_operator.workers.output_claims import claims_since
from inference_operator.workers.pod import pool_pod
from inference_operator.workers.resolve import Refusal, ResolvedJob, resolve
from inference_operator.workers.source import asks_as_somebody
from inference_operator.workers.template_hash import Revisions, template_hash, template_placement
from inference_protocol.messages import TaskOrder, WorkerConfig


@dataclass(frozen=True, slots=True)
class Pool:
    """What a model's warm workers are made of: `like` is a job that would get such a worker, `mounts` all that they mount."""

    spec: WarmPool
    model: Model
    like: ResolvedJob
    mounts: Mapping[str, bool]
    revisions: Revisions


# Each job that waits on the model asks.
@by_identity(1024)
def resolve_pool(model: Model, settings: Settings) -> Pool | Refusal | None:
    """Return the pool that a model asks for, why it can't have one, or None where it asks for none."""
    if model.spec is None or model.spec.warm_pool is None:
        return None
    spec = model.spec.warm_pool
    # A job that serves holds its place as a warm worker does, and asks for the same.
    asked = InferenceJobSpec(model=model.key.name, accelerator=spec.accelerator, batch_size=spec.batch_size, backend=spec.backend)
    job = Job(model.key, model.uid, model.generation, model.resource_version, EARLIEST, False, asked, InferenceJobStatus())
    like = resolve(Observed(job, model, ()), asked, settings)
    if isinstance(like, Refusal):
        return like
    mounts = dict(sorted((dict(like.claims) | dict.fromkeys(spec.claims, True)).items()))
    return Pool(spec, model, like, mounts, _revisions(model, like, mounts, settings))


def _revisions(model: Model, like: ResolvedJob, mounts: Mapping[str, bool], settings: Settings) -> Revisions:
    found = {}
    for name in classes(like.spec, like.backend, settings):
        of_class = settings.accelerators[name]
        config = pool_config(like, name, number=0, settings=settings)
        resources = worker_resources(like.spec, model, name, of_class)
        placement = template_placement(name)
        pod = pool_pod(
            model, like.job, like.spec, config, resources, placement, number=0, revision="", mounts=mounts, settings=settings
        )
        found[name] = template_hash(pod)
    return Revisions.of(found)


def pool_config(like: ResolvedJob, accelerator: str, *, number: int, settings: Settings) -> WorkerConfig:
    """Return what a warm worker on a class is told: as one of a job that names the class, since such jobs may come to it."""
    of_class, spec = settings.accelerators[accelerator], replace(like.spec, accelerator=accelerator)
    return worker_config(like.job, spec, like.source, of_class, number=number, settings=settings, backend=like.backend)


def pool_of(model: Model, settings: Settings) -> Pool | None:
    """Return the pool of a model; None for one without, and for one that this operator's workers can't hold."""
    found = resolve_pool(model, settings)
    return found if isinstance(found, Pool) else None


def takes(pool: Pool, job: ResolvedJob) -> bool:
    """Return whether a job can run on a pool's workers: a batch on the same file that asks for nothing which they have not."""
    spec, like = job.spec, pool.like
    if spec.input is None or job.source != like.source or _is_special(spec, like.spec.template):
        return False
    fits = spec.batch_size <= pool.spec.batch_size and job.backend is like.backend
    same_class = AUTO in (spec.accelerator, pool.spec.accelerator) or spec.accelerator == pool.spec.accelerator
    return fits and same_class and mounted(job.claims.items(), pool.mounts)


def _is_special(spec: InferenceJobSpec, template: PodTemplate | None = None) -> bool:
    """Whether a job asks for something of its own worker that others, of this template, have not."""
    own = spec.node_selector or spec.tolerations or spec.resources or spec.template != template
    return bool(own) or asks_as_somebody(spec)


def colocated_model_of(job: ResolvedJob, settings: Settings) -> ColocatedModel | None:
    """Return what a job would ask of another model's warm worker; None for one that needs a worker of its own.

    Only what was measured is co-located: where the memory of a model is not known, nobody can tell whether there is room for it.
    """
    spec, model, source = job.spec, job.model, job.source
    if spec.input is None or model is None or _is_special(spec):
        return None
    if source.digest is None or source.quantization is not None or job.backend is not Backend.ONNX:
        return None
    if source.storage is not None and (source.storage.secret or source.storage.aws_role):
        # Only its own workers are shown what its store is asked with.
        return None
    subject = wanted(source, Backend.ONNX)
    known: list[tuple[str, ModelMemory]] = []
    for name in classes(spec, job.backend, settings):
        profile = find_profile(model, subject, accelerator=name, batch_size=spec.batch_size)
        on_device = settings.accelerators[name].resource_name is not None
        if profile is not None and _is_known(profile, spec.batch_size, on_device=on_device):
            known.append((name, _memory(profile)))
    mounts = tuple(sorted(job.claims.items()))
    return ColocatedModel(job.job.key.namespace, source.digest, spec.batch_size, mounts, tuple(known)) if known else None


def offer_of(pool: Pool, accelerator: str, memory_bytes: int | None) -> Offer | None:
    """Return what a pool's workers of a class have for other models; None where the pool wants none, or room can't be reckoned.

    `memory_bytes` is what their processes may use. What a device has left each worker tells of its own.
    """
    model, like = pool.model, pool.like
    if pool.spec.sharing is Sharing.NONE or memory_bytes is None or like.backend is not Backend.ONNX:
        return None
    own = find_profile(model, wanted(like.source, like.backend), accelerator=accelerator, batch_size=pool.spec.batch_size)
    if own is None or not own.memory_bytes:
        return None
    room = ModelMemory(max(0, memory_bytes - own.memory_bytes))
    return Offer(model.key.namespace, pool.spec.batch_size, tuple(sorted(pool.mounts.items())), room)


def _is_known(profile: Profile, batch_size: int, *, on_device: bool) -> bool:
    """Whether a profile tells all the memory that its model takes: of a device too, where what is computed takes most of it."""
    return bool(profile.memory_bytes) and (not on_device or (profile.device_bytes > 0 and profile.batch_size >= batch_size))


def _memory(profile: Profile | None) -> ModelMemory:
    return ModelMemory(profile.memory_bytes, profile.device_bytes) if profile is not None else ModelMemory(0)


def task_order(
    job: ResolvedJob, attempt: int, accelerator: str, placed: datetime | None = None, *, settings: Settings
) -> TaskOrder:
    """Return what a warm worker of a class is told of an attempt that was placed then; None where nobody remembers when."""
    spec, source = job.spec, job.source
    expected = job.estimate_on(accelerator)
    limit = items_limit(spec, expected, placed, warm=True) if placed is not None else None
    task = batch_task(spec, settings, limit)
    assert task is not None, "only batches are handed over"
    subject = wanted(source, job.backend)
    memory = _memory(find_profile(job.model, subject, accelerator=accelerator, batch_size=spec.batch_size))
    return TaskOrder(
        namespace=job.job.key.namespace,
        job=job.job.key.name,
        uid=job.job.uid,
        attempt=attempt,
        revision=job.revisions.combined,
        created=rfc3339(claims_since(job.job)),
        model=source,
        batch_size=spec.batch_size,
        task=task,
        memory_bytes=memory.process,
        device_bytes=memory.device,
        fetch_from=fetch_from(source, task, traces=False, settings=settings),
    )


def pool_for(job: ResolvedJob, settings: Settings) -> Key | None:
    """Return the model whose pool a job waits for; None for one that gets its own worker, also when the pool is failing."""
    pool = pool_of(job.model, settings) if job.model is not None else None
    if pool is None or not takes(pool, job) or is_failing(pool.model):
        return None
    return pool.model.key


def is_failing(model: Model) -> bool:
    """Return whether jobs stay away from the model's pool for now: none of its workers is ready, and it says why."""
    told = model.status.warm_pool
    ready = find(told.conditions, ConditionType.READY) if told is not None else None
    if told is None or told.ready or ready is None or ready.status is not Truth.FALSE:
        return False
    # Where a warm worker finds no room the job's own would find none either, and the job is told what the pool waits for.
    return ready.reason not in NO_PLACE

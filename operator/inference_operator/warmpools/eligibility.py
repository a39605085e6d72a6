"""Which jobs can run on warm workers, and what those are made of."""

from dataclasses import dataclass

import msgspec

from inference_operator.api import names
from inference_operator.api.conditions import Reason
from inference_operator.api.instants import EARLIEST
from inference_operator.api.job import Accelerator, Backend, InferenceJobSpec, InferenceJobStatus
from inference_operator.api.model import Profile, Sharing, WarmPool
from inference_operator.api.schema import rfc3339
from inference_operator.jobs import admission
from inference_operator.scheduling.estimate import find_profile, wanted
from inference_operator.scheduling.types import ColocatedModel, ModelMemory, Offer, mounted
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Key, Model, Observed
from inference_operator.state.pool_key import pool_key
from inference_operator.workers.backend import chosen
from inference_operator.workers.options import classes
from inference_operator.workers.pod import batch_task, claims, images
from inference_operator.workers.source import model_source
from inference_protocol.messages import ModelSource, TaskOrder

_NO_ROOM = (Reason.NO_FREE_CAPACITY.value, Reason.NO_NODE_FITS.value)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a model's warm workers are made of. `like` is a job that would get such a worker; `backend` is never AUTO."""

    spec: WarmPool
    source: ModelSource
    backend: Backend
    revision: str
    like: Observed
    mounts: dict[str, bool]


def pool_of(model: Model, settings: Settings) -> Pool | None:
    """The pool that a model asks for; None for a model without, and for one that this operator's workers can't hold."""
    if model.spec is None or model.spec.warm_pool is None:
        return None
    spec, like = model.spec.warm_pool, _like(model, model.spec.warm_pool)
    if admission.refusal(like, settings, EARLIEST) is not None:
        return None
    source = model_source(like)
    assert like.job.spec is not None
    mounts = claims(like.job.spec, source) | dict.fromkeys(spec.claims, True)
    backend = chosen(spec.backend, source.format).backend
    parts: list[object] = [
        source,
        spec.batch_size,
        spec.accelerator,
        sorted(mounts.items()),
        backend,
        *images(settings, backend),
    ]
    parts.append([(r.accelerator, r.resources.requests, r.resources.limits) for r in model.spec.resources])
    return Pool(spec, source, backend, names.short_hash(msgspec.json.encode(parts).decode()), like, mounts)


def refusal_of(model: Model, settings: Settings) -> admission.Refusal | None:
    """Why a model that asks for a pool has none; None where it has one, or asks for none."""
    if model.spec is None or model.spec.warm_pool is None:
        return None
    return admission.refusal(_like(model, model.spec.warm_pool), settings, EARLIEST)


def _like(model: Model, spec: WarmPool) -> Observed:
    """A job that serves holds its place as a warm worker does, and has the same needs."""
    asked = InferenceJobSpec(model=model.key.name, accelerator=spec.accelerator, batch_size=spec.batch_size, backend=spec.backend)
    job = Job(model.key, model.uid, model.generation, model.resource_version, EARLIEST, False, asked, InferenceJobStatus())
    return Observed(job, model, ())


def takes(pool: Pool, observed: Observed) -> bool:
    """Whether a job can run on a pool's workers: a batch on the same file that asks for nothing which they have not."""
    spec = observed.job.spec
    if spec is None or spec.input is None or model_source(observed) != pool.source or _is_special(spec):
        return False
    fits = spec.batch_size <= pool.spec.batch_size and chosen(spec.backend, pool.source.format).backend is pool.backend
    same_class = Accelerator.AUTO in (spec.accelerator, pool.spec.accelerator) or spec.accelerator is pool.spec.accelerator
    return fits and same_class and mounted(claims(spec, pool.source).items(), pool.mounts)


def _is_special(spec: InferenceJobSpec) -> bool:
    """Whether a job asks for something of its own worker that no other has."""
    return bool(spec.node_selector or spec.tolerations or spec.resources or spec.template)


def colocated_model_of(observed: Observed, settings: Settings) -> ColocatedModel | None:
    """What a job would ask of another model's warm worker; None for one that needs a worker of its own.

    Only what was measured is co-located: where the memory of a model is not known, nobody can tell whether there is room for it.
    """
    spec, model = observed.job.spec, observed.model
    if spec is None or spec.input is None or model is None or _is_special(spec):
        return None
    source = model_source(observed)
    if source.digest is None or source.quantization is not None or chosen(spec.backend, source.format).backend is not Backend.ONNX:
        return None
    subject = wanted(source, Backend.ONNX)
    known: list[tuple[str, ModelMemory]] = []
    for name in classes(spec.accelerator, settings):
        profile = find_profile(model, subject, accelerator=name, batch_size=spec.batch_size)
        on_device = settings.accelerators[name].resource_name is not None
        if profile is not None and _is_known(profile, spec.batch_size, on_device=on_device):
            known.append((name, _memory(profile)))
    mounts = tuple(sorted(claims(spec, source).items()))
    return ColocatedModel(observed.job.key.namespace, source.digest, spec.batch_size, mounts, tuple(known)) if known else None


def offer_of(pool: Pool, accelerator: str, memory_bytes: int | None) -> Offer | None:
    """What a pool's workers of a class have for co-located models; None where the pool wants none, or room can't be reckoned.

    `memory_bytes` is what their processes may use. What a device has left each worker tells of its own.
    """
    model = pool.like.model
    if pool.spec.sharing is Sharing.NONE or memory_bytes is None or model is None or pool.backend is not Backend.ONNX:
        return None
    own = find_profile(model, wanted(pool.source, pool.backend), accelerator=accelerator, batch_size=pool.spec.batch_size)
    if own is None or not own.memory_bytes:
        return None
    room = ModelMemory(max(0, memory_bytes - own.memory_bytes))
    return Offer(model.key.namespace, pool.spec.batch_size, tuple(sorted(pool.mounts.items())), room)


def _is_known(profile: Profile, batch_size: int, *, on_device: bool) -> bool:
    """Whether a profile tells all the memory that its model takes: of a device too, where what is computed takes most of it."""
    return bool(profile.memory_bytes) and (not on_device or (profile.device_bytes > 0 and profile.batch_size >= batch_size))


def _memory(profile: Profile | None) -> ModelMemory:
    return ModelMemory(profile.memory_bytes, profile.device_bytes) if profile is not None else ModelMemory(0)


def order(observed: Observed, attempt: int, revision: str, accelerator: str) -> TaskOrder:
    """What a warm worker of a class is told of an attempt."""
    job, spec = observed.job, observed.job.spec
    assert spec is not None
    task = batch_task(spec)
    assert task is not None, "only batches are handed over"
    source = model_source(observed)
    subject = wanted(source, chosen(spec.backend, source.format).backend)
    memory = _memory(find_profile(observed.model, subject, accelerator=accelerator, batch_size=spec.batch_size))
    return TaskOrder(
        namespace=job.key.namespace,
        job=job.key.name,
        uid=job.uid,
        attempt=attempt,
        revision=revision,
        created=rfc3339(job.created),
        model=source,
        batch_size=spec.batch_size,
        task=task,
        memory_bytes=memory.process,
        device_bytes=memory.device,
    )


def pool_for(observed: Observed, settings: Settings) -> Key | None:
    """The pool that a job waits for; None for one that gets its own worker, also when the pool is failing."""
    model = observed.model
    pool = pool_of(model, settings) if model is not None else None
    if model is None or pool is None or not takes(pool, observed):
        return None
    return None if is_failing(model) else pool_key(model.key)


def is_failing(model: Model) -> bool:
    """Whether jobs stay away from the model's pool for now: none of its workers is ready, and it says why."""
    told = model.status.warm_pool
    if told is None or told.message is None or told.ready:
        return False
    # Where a warm worker finds no room the job's own would find none either, and the job is told what the pool waits for.
    return not told.message.startswith(_NO_ROOM)

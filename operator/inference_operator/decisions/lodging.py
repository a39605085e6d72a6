"""Which jobs can run on warm workers, and what those are made of."""

from dataclasses import dataclass

import msgspec

from inference_operator.decisions import admit
from inference_operator.decisions.backend import chosen
from inference_operator.domain import names
from inference_operator.domain.cluster import Job, Key, Model, Observed
from inference_operator.domain.conditions import Reason
from inference_operator.domain.instants import EARLIEST
from inference_operator.domain.job import Accelerator, Backend, InferenceJobSpec, InferenceJobStatus
from inference_operator.domain.model import WarmPool
from inference_operator.domain.schema import rfc3339
from inference_operator.manifests.worker import batch_task, claims, worker_image
from inference_operator.settings import Settings
from inference_protocol.messages import ModelSource, TaskOrder

_MARK = "model/"
_NO_ROOM = (Reason.NO_FREE_CAPACITY.value, Reason.NO_NODE_FITS.value)


def pool_key(model: Key) -> Key:
    """The key that stands for a model's pool where keys of jobs stand; no job can have it, since names have no slash."""
    return Key(model.namespace, _MARK + model.name)


def model_of(key: Key) -> Key | None:
    """The model whose pool a key stands for; None for a job's key."""
    return Key(key.namespace, key.name.removeprefix(_MARK)) if key.name.startswith(_MARK) else None


@dataclass(frozen=True, slots=True)
class Pool:
    """What a model's warm workers are made of. `like` is a job that would get such a worker."""

    spec: WarmPool
    source: ModelSource
    revision: str
    like: Observed
    mounts: dict[str, bool]


def pool_of(model: Model, settings: Settings) -> Pool | None:
    """The pool that a model asks for; None for a model without, and for one that this operator's workers can't hold."""
    if model.spec is None or model.spec.warm_pool is None:
        return None
    spec = model.spec.warm_pool
    like = Observed(_job_like(model, spec), model, ())
    source = admit.source(like)
    if admit.refusal(like, settings, EARLIEST) is not None:
        return None
    assert like.job.spec is not None
    mounts = claims(like.job.spec, source) | dict.fromkeys(spec.claims, True)
    parts: list[object] = [
        source,
        spec.batch_size,
        spec.accelerator,
        sorted(mounts.items()),
        worker_image(settings, chosen(Backend.AUTO, source.format).backend),
    ]
    parts.append([(r.accelerator, r.resources.requests, r.resources.limits) for r in model.spec.resources])
    return Pool(spec, source, names.short_hash(msgspec.json.encode(parts).decode()), like, mounts)


def _job_like(model: Model, spec: WarmPool) -> Job:
    """A job that serves holds its place as a warm worker does, and has the same needs."""
    wanted = InferenceJobSpec(model=model.key.name, accelerator=spec.accelerator, batch_size=spec.batch_size)
    return Job(model.key, model.uid, model.generation, model.resource_version, EARLIEST, False, wanted, InferenceJobStatus())


def takes(pool: Pool, observed: Observed) -> bool:
    """Whether a job can run on a pool's workers: a batch on the same file that asks for nothing which they have not."""
    spec = observed.job.spec
    if spec is None or spec.input is None or admit.source(observed) != pool.source:
        return False
    special = spec.node_selector or spec.tolerations or spec.resources or spec.template
    fits = spec.batch_size <= pool.spec.batch_size and _computes(spec.backend, pool) is _computes(Backend.AUTO, pool)
    same_class = Accelerator.AUTO in (spec.accelerator, pool.spec.accelerator) or spec.accelerator is pool.spec.accelerator
    wanted = claims(spec, pool.source)
    mounted = all(claim in pool.mounts and pool.mounts[claim] >= writes for claim, writes in wanted.items())
    return not special and fits and same_class and mounted


def _computes(asked: Backend, pool: Pool) -> Backend:
    return chosen(asked, pool.source.format).backend


def order(observed: Observed, attempt: int, revision: str) -> TaskOrder:
    """What a warm worker is told of an attempt."""
    job, spec = observed.job, observed.job.spec
    assert spec is not None
    task = batch_task(spec)
    assert task is not None, "only batches are handed over"
    return TaskOrder(
        namespace=job.key.namespace,
        job=job.key.name,
        uid=job.uid,
        attempt=attempt,
        revision=revision,
        created=rfc3339(job.created),
        model=admit.source(observed),
        batch_size=spec.batch_size,
        task=task,
    )


def pool_for(observed: Observed, settings: Settings) -> Key | None:
    """The pool that a job waits for; None for one that gets its own worker, also when the pool is in trouble."""
    model = observed.model
    pool = pool_of(model, settings) if model is not None else None
    if model is None or pool is None or not takes(pool, observed):
        return None
    told = model.status.warm_pool
    # Where a warm worker finds no room the job's own would find none either, and the job is told what the pool waits for.
    waits = told is not None and told.message is not None and told.message.startswith(_NO_ROOM)
    in_trouble = told is not None and told.message is not None and not told.ready and not waits
    return None if in_trouble else pool_key(model.key)

"""What a worker is told: its configuration, and a batch's task."""

from datetime import datetime

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.job import Backend, DeadlinePolicy, InferenceJobSpec, ModelControl, SharedMemory
from inference_operator.api.quantity import parse_quantity
from inference_operator.api.schema import rfc3339
from inference_operator.api.template import PodTemplate
from inference_operator.scheduling.estimate import Estimate
from inference_operator.settings import Settings
from inference_operator.state.objects import Job
from inference_operator.workers.classes import providers_of
from inference_operator.workers.fetch_rules import fetch_from, traces_to
from inference_operator.workers.identity import serving_tls, worker_identity
from inference_operator.workers.output_claims import claims_since
from inference_operator.workers.source import input_storage, output_storage
from inference_protocol.messages import (
    TRITON_REPOSITORY,
    AnswerCache,
    BatchTask,
    FrameReuse,
    ModelSource,
    TritonServer,
    WorkerConfig,
)
from inference_protocol.messages import Backend as BackendName

# So much of a service's latency target may a background run use up: more of it would look like load to whoever scales by latency.
_OF_THE_TARGET = 0.5

_BACKENDS: dict[Backend, BackendName] = {
    Backend.ONNX: "onnx",
    Backend.TORCHSCRIPT: "torchscript",
    Backend.TRITON: "triton",
}


def worker_config(
    job: Job,
    spec: InferenceJobSpec,
    source: ModelSource,
    accelerator: AcceleratorClass,
    *,
    number: int,
    settings: Settings,
    backend: Backend = Backend.ONNX,
    items_limit: int | None = None,
    task_token_digest: str = "",
) -> WorkerConfig:
    """Return what the worker is told. `task_token_digest` is of the token by which a service's worker is handed batches."""
    providers = providers_of(accelerator, spec.accelerator, backend)
    task = batch_task(spec, settings, items_limit)
    traces = any(traces_to(spec.template or PodTemplate()))
    return WorkerConfig(
        namespace=job.key.namespace,
        job=job.key.name,
        uid=job.uid,
        attempt=number,
        model=source,
        providers=tuple(provider.name for provider in providers),
        # ONNX Runtime reads True and False as Python writes them.
        provider_options={
            provider.name: {name: str(value) for name, value in provider.options.items()}
            for provider in providers
            if provider.options
        },
        devices=accelerator.resource_count,
        device_memory_bytes=int(parse_quantity(accelerator.device_memory)) if accelerator.device_memory is not None else None,
        batch_size=spec.batch_size,
        created=rfc3339(claims_since(job)),
        task=task,
        drain_seconds=max(1.0, settings.termination_grace_seconds - 5.0),
        model_control="explicit" if spec.serve is not None and spec.serve.model_control is ModelControl.EXPLICIT else "none",
        shared_memory=spec.serve is not None and spec.serve.shared_memory is SharedMemory.SYSTEM,
        task_token_digest=task_token_digest if _lends(spec) else "",
        latency_target_seconds=_background_target(spec),
        backend=_BACKENDS[backend],
        fetch_from=fetch_from(source, task, traces=traces, settings=settings),
        guarded_traces=traces,
        session_header=_session_header(spec) if traces or settings.tracing.endpoint else "",
        triton=TritonServer(settings.backends.triton.platform, TRITON_REPOSITORY) if backend is Backend.TRITON else None,
        identity=worker_identity(settings.mutual_tls),
        serving_tls=serving_tls(spec),
        cache=_cache(spec),
    )


def _session_header(spec: InferenceJobSpec) -> str:
    """By which the gateway knows sessions."""
    gateway = spec.serve.gateway if spec.serve is not None else None
    return (gateway.affinity_header if gateway is not None else None) or ""


def _cache(spec: InferenceJobSpec) -> AnswerCache | None:
    told = spec.serve.cache if spec.serve is not None else None
    if told is None:
        return None
    frames = told.frames
    reuse = (
        FrameReuse(frames.similarity, frames.max_streams, frames.max_bytes, frames.max_age_seconds) if frames is not None else None
    )
    return AnswerCache(told.max_bytes, told.max_age_seconds, reuse)


def _lends(spec: InferenceJobSpec) -> bool:
    return spec.serve is not None and spec.serve.slack is not None


def _background_target(spec: InferenceJobSpec) -> float | None:
    target = spec.serve.latency_target_milliseconds if spec.serve is not None and _lends(spec) else None
    return _OF_THE_TARGET * target / 1e3 if target is not None else None


def items_limit(spec: InferenceJobSpec, expected: Estimate | None, placed: datetime, *, warm: bool = False) -> int | None:
    """How many items a batch answers by its deadline from a place, warm or not, that it got then; None where it may run late."""
    firm = spec.input is not None and spec.deadline_policy is DeadlinePolicy.FIRM
    if not firm or spec.deadline is None or expected is None:
        return None
    return expected.items_within((spec.deadline - placed).total_seconds(), warm=warm)


def batch_task(spec: InferenceJobSpec, settings: Settings, items_limit: int | None = None) -> BatchTask | None:
    """What a batch job's worker is to run; None for a job that serves."""
    if spec.input is None:
        return None
    return BatchTask(
        input_uri=spec.input.uri,
        input_data=spec.input.data,
        input_format=spec.input.format.value,
        input_digest=spec.input.digest,
        allow_non_finite=spec.input.allow_non_finite,
        output_uri=spec.output.uri if spec.output is not None else None,
        input_storage=input_storage(spec, settings),
        output_storage=output_storage(spec, settings),
        items_limit=items_limit,
        deadline=rfc3339(spec.deadline) if items_limit is not None and spec.deadline is not None else "",
    )

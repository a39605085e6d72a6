"""What the worker says of itself and its models, as the protocol's documents; HTTP sends them as JSON, gRPC as messages."""

from collections.abc import Mapping
from typing import Any

from inference_worker import __version__
from inference_worker.batching.admission import QUEUE_LIMIT
from inference_worker.batching.queue import DEFAULT_PRIORITY
from inference_worker.engines.engine import TensorSpec
from inference_worker.model import Model
from inference_worker.repository import Repository, State

Document = dict[str, Any]

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "statistics",
)


def server(*, shared_memory: bool = False) -> Document:
    """Server metadata. An extension that the job does not allow is not listed."""
    extensions = sorted((*EXTENSIONS, "system_shared_memory")) if shared_memory else list(EXTENSIONS)
    return {"name": "inference-worker", "version": __version__, "extensions": extensions}


def metadata(model: Model) -> Document:
    """Model metadata; with what is to be said of how it runs."""
    document: Document = {
        "name": model.name,
        "versions": [model.version],
        "platform": model.engine.platform,
        "inputs": [_tensor(spec) for spec in model.engine.inputs],
        "outputs": [_tensor(spec) for spec in model.engine.outputs],
    }
    if remarks := _remarks(model):
        document["parameters"] = remarks
    return document


def _remarks(model: Model) -> dict[str, str]:
    """Why requests do not share a run, where they do not; how a device computes them, and why not from captures."""
    told = {
        "not_batched_because": model.warm.layout.why,
        "device_runs": model.facts.device_runs,
        "not_captured_because": model.facts.not_captured_because,
    }
    return {name: text for name, text in told.items() if text}


def configuration(model: Model) -> Document:
    """The model's configuration in Triton's vocabulary. Shapes leave the batch dimension out where the model batches."""
    batches = model.batches
    document: Document = {
        "name": model.name,
        "platform": model.engine.platform,
        "backend": model.engine.platform.partition("_")[0],
        "max_batch_size": model.max_rows if batches else 0,
        "input": [_input(spec, model.warm.layout.inputs, batches=batches) for spec in model.engine.inputs],
        "output": [_output(spec, model.warm.layout.outputs, batches=batches) for spec in model.engine.outputs],
        "parameters": {name: {"string_value": text} for name, text in _remarks(model).items()},
        "instance_group": [{"name": model.engine.provider, "count": model.warm.threads}],
    }
    if batches:
        document["dynamic_batching"] = {
            "max_queue_delay_microseconds": 0,
            "priority_levels": DEFAULT_PRIORITY,
            "default_priority_level": DEFAULT_PRIORITY,
            "default_queue_policy": {"max_queue_size": QUEUE_LIMIT, "allow_timeout_override": True},
        }
    return document


def statistics(model: Model) -> Document:
    """What happened to the model's requests since the worker's start; durations are sums in nanoseconds."""
    metrics, counts = model.metrics, model.metrics.counts
    answered = sum(metrics.latency.counts)
    queue, compute = (_duration(answered, distribution.sum / 1e3) for distribution in (metrics.queue, metrics.compute))
    nothing = _duration(0, 0.0)
    return {
        "model_stats": [
            {
                "name": model.name,
                "version": model.version,
                "last_inference": round(metrics.last_inference * 1e3),
                "inference_count": counts.rows,
                "execution_count": counts.runs,
                "inference_stats": {
                    "success": _duration(answered, metrics.latency.sum / 1e3),
                    "fail": _duration(metrics.failed, 0.0),
                    "queue": queue,
                    "compute_input": nothing,
                    "compute_infer": compute,
                    "compute_output": nothing,
                    "cache_hit": nothing,
                    "cache_miss": nothing,
                },
                "batch_stats": [
                    {
                        "batch_size": rows,
                        "compute_input": nothing,
                        "compute_infer": _duration(runs, seconds),
                        "compute_output": nothing,
                    }
                    for rows, (runs, seconds) in sorted(counts.by_rows.items())
                ],
            }
        ]
    }


def models(repository: Repository) -> Document:
    """The names, as KServe's and AMD's servers list them, and beside them the repository index with versions and states."""
    return {"models": list(repository.entries), "index": index(repository)}


def index(repository: Repository, *, ready: bool = False) -> list[Document]:
    """Every model that the worker knows, or those only that are ready."""
    return [
        {"name": name, "version": entry.source.version, "state": entry.state.value, "reason": entry.reason}
        for name, entry in repository.entries.items()
        if not ready or entry.state is State.READY
    ]


def _tensor(spec: TensorSpec) -> Document:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.wire_shape}


def _input(spec: TensorSpec, axes: Mapping[str, int | None], *, batches: bool) -> Document:
    configured = _configured(spec, axes, batches=batches)
    return {**configured, "format": "FORMAT_NONE", "allow_ragged_batch": False, "optional": spec.optional}


def _output(spec: TensorSpec, axes: Mapping[str, int | None], *, batches: bool) -> Document:
    return {**_configured(spec, axes, batches=batches), "label_filename": ""}


def _configured(spec: TensorSpec, axes: Mapping[str, int | None], *, batches: bool) -> Document:
    """What inputs and outputs have in common. Triton writes each field whatever its value, and clients read them unasked."""
    dims = spec.wire_shape
    if batches and axes.get(spec.name) == 0:
        dims = dims[1:]
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    # In this vocabulary dims are never empty: one value a row is [1], which the model takes without that dimension.
    reshape: Document = {} if dims else {"reshape": {"shape": []}}
    fixed = {"is_shape_tensor": False, "is_non_linear_format_io": False}
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": dims or [1], **reshape, **fixed}


def _duration(count: int, seconds: float) -> Document:
    return {"count": count, "ns": round(seconds * 1e9)}

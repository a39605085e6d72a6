"""What the worker says of itself and its models, as the protocol's documents; HTTP sends them as JSON, gRPC as messages."""

from typing import Any

from inference_worker import __version__
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
    if parameters := running_parameters(model):
        document["parameters"] = parameters
    return document


def running_parameters(model: Model) -> dict[str, str]:
    """What callers should know of how the model runs, by name."""
    layout = model.warm.layout
    told = {
        "not_batched_because": layout.why,
        "shared_inputs": ", ".join(layout.shared) if model.batches else "",
        "device_runs": model.facts.device_runs,
        "not_captured_because": model.facts.not_captured_because,
        "not_cached_because": model.facts.not_cached_because,
    }
    return {name: text for name, text in told.items() if text}


def statistics(model: Model) -> Document:
    """What happened to the model's requests since the worker's start; durations are sums in nanoseconds."""
    metrics, counts = model.metrics, model.metrics.counts
    answered = sum(metrics.latency.counts)
    queue, compute = (_duration(answered, distribution.sum) for distribution in (metrics.queue, metrics.compute))
    nothing = _duration(0, 0.0)
    hits, misses = (metrics.cache.hits, metrics.cache.misses) if metrics.cache is not None else (0, 0)
    return {
        "model_stats": [
            {
                "name": model.name,
                "version": model.version,
                "last_inference": round(metrics.last_inference * 1e3),
                "inference_count": counts.rows,
                "execution_count": counts.runs,
                "inference_stats": {
                    "success": _duration(answered, metrics.latency.sum),
                    "fail": _duration(metrics.failed, 0.0),
                    "queue": queue,
                    "compute_input": nothing,
                    "compute_infer": compute,
                    "compute_output": nothing,
                    "cache_hit": _duration(hits, 0.0),
                    "cache_miss": _duration(misses, 0.0),
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


def _duration(count: int, seconds: float) -> Document:
    return {"count": count, "ns": round(seconds * 1e9)}

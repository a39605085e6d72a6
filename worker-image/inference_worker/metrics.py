"""Every metric of the worker, in one place. Names are an API: docs/ lists them and a test compares."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

# Finer than the usual web buckets below 5 ms, where most CPU inference lives.
_BUCKETS_MILLISECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 50, 75, 100, 250, 500, 1000, 2500, 5000, 10000)
_LABELS = ("namespace", "job", "model", "version")

requests_total = Counter("inference_requests_total", "Requests answered, by HTTP status.", (*_LABELS, "code"), registry=REGISTRY)
latency_ms = Histogram(
    "inference_latency_ms",
    "Request latency, milliseconds: queue and compute.",
    _LABELS,
    buckets=_BUCKETS_MILLISECONDS,
    registry=REGISTRY,
)
queue_ms = Histogram(
    "inference_queue_ms", "Time waited for the model, milliseconds.", _LABELS, buckets=_BUCKETS_MILLISECONDS, registry=REGISTRY
)
compute_ms = Histogram(
    "inference_compute_ms", "Time in the model, milliseconds.", _LABELS, buckets=_BUCKETS_MILLISECONDS, registry=REGISTRY
)
queue_depth = Gauge("inference_queue_depth", "Requests that wait or run.", _LABELS, registry=REGISTRY)
ready = Gauge("inference_ready", "1 when the model is loaded, verified, warmed and not draining.", _LABELS, registry=REGISTRY)
items_total = Counter("inference_batch_items_total", "Items of a batch task that were committed.", _LABELS, registry=REGISTRY)

"""Every metric of the operator, in one place. Names are an API: docs/ lists them and a test compares."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

reconcile_seconds = Histogram("inference_operator_reconcile_seconds", "One look at one job.", buckets=_SECONDS, registry=REGISTRY)
reconcile_errors_total = Counter("inference_operator_reconcile_errors_total", "Looks that ended in a bug.", registry=REGISTRY)
scheduling_errors_total = Counter("inference_operator_scheduling_errors_total", "Passes that ended in a bug.", registry=REGISTRY)
scheduling_seconds = Histogram(
    "inference_operator_scheduling_seconds", "One pass over the fleet.", buckets=_SECONDS, registry=REGISTRY
)
placement_requests = Gauge("inference_operator_placement_requests", "Jobs that want a place.", registry=REGISTRY)
events_dropped_total = Counter("inference_operator_events_dropped_total", "Events that were not written.", registry=REGISTRY)
preemptions_total = Counter("inference_operator_preemptions_total", "Batches asked to make room for others.", registry=REGISTRY)
policy_loaded = Gauge("inference_policy_loaded", "1 while a learned policy is asked beside each pass.", registry=REGISTRY)
policy_decisions_total = Counter(
    "inference_policy_decisions_total",
    "Jobs in passes that a learned policy was shown: it agrees, would_start, would_hold, or was skipped (late, or failed).",
    ("outcome",),
    registry=REGISTRY,
)
policy_seconds = Histogram("inference_policy_seconds", "One look of a learned policy.", buckets=_SECONDS, registry=REGISTRY)
exporter_errors_total = Counter(
    "inference_operator_exporter_errors_total", "Questions to devices' meters without an answer.", registry=REGISTRY
)
certificates_total = Counter(
    "inference_operator_certificates_total",
    "Certificates that workers asked the authority for: issued, refused for good, told to come again, or failed by a bug.",
    ("outcome",),
    registry=REGISTRY,
)
gateway_envoys = Gauge("inference_gateway_envoys", "Envoys that are told by this replica.", registry=REGISTRY)
gateway_held_requests = Gauge(
    "inference_gateway_held_requests", "Requests that wait for a worker of a model at zero, at this replica.", registry=REGISTRY
)
gateway_refusals_total = Counter(
    "inference_gateway_refusals_total", "What Envoys refused to take; they go on with what they had.", registry=REGISTRY
)
picker_requests_total = Counter(
    "inference_picker_requests_total",
    "Requests that the endpoint picker decided: picked, shed (nobody in time), unavailable (nobody ready), or refused.",
    ("outcome",),
    registry=REGISTRY,
)
leaked_workers = Gauge(
    "inference_operator_leaked_workers",
    "Workers that hold a place though nobody wants them.",
    registry=REGISTRY,
)
jobs = Gauge("inference_operator_jobs", "InferenceJobs known.", registry=REGISTRY)
queue_depth = Gauge("inference_operator_queue_depth", "Jobs waiting to be looked at.", registry=REGISTRY)
leading = Gauge("inference_operator_leading", "1 on the replica that holds the Lease.", registry=REGISTRY)
watch_age_seconds = Gauge("inference_operator_watch_age_seconds", "Since a kind was last heard of.", ("kind",), registry=REGISTRY)
suspected_workers = Gauge(
    "inference_operator_suspected_workers", "Ready workers that this replica's own polls get no answer from.", registry=REGISTRY
)
suspicions_total = Counter(
    "inference_operator_suspicions_total", "Workers that came under suspicion, by cause.", ("cause",), registry=REGISTRY
)
suspicions_withdrawn_total = Counter(
    "inference_operator_suspicions_withdrawn_total", "Suspected workers that spoke again.", registry=REGISTRY
)

"""The operator's metrics that are counted where things happen. Names are an API: docs/ lists them and a test compares.

A name has one type and one owner: `inference_operator_` is this process, `inference_job_` one job, and what workers tell of
themselves is theirs. Series of jobs, workers and models are made at each scrape, from the store (`jobs.py`, `cluster.py`).
"""

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, disable_created_metrics

from inference_operator import __version__

# A series beside each counter and histogram that nothing reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

# What each replica tells of itself.
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
# What the leader alone tells of the cluster: two replicas that told it would have every sum count twice.
CLUSTER = CollectorRegistry()

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# From a warm worker's start to a night in a queue.
_LONG_SECONDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0, 86_400.0)

build = Info("inference_operator_build", "1, with the labels version and python_version.", registry=REGISTRY)
build.info({"version": __version__, "python_version": platform.python_version()})
reconcile_seconds = Histogram(
    "inference_operator_reconcile_seconds", "One look at one object, by kind.", ("kind",), buckets=_SECONDS, registry=REGISTRY
)
reconcile_errors_total = Counter(
    "inference_operator_reconcile_errors_total",
    "Looks that are tried again, by kind and cause: conflict, unavailable (429 among it), refused, or bug.",
    ("kind", "cause"),
    registry=REGISTRY,
)
api_requests_total = Counter(
    "inference_operator_api_requests_total",
    "Requests to the API server by method and HTTP status; 0 is no answer.",
    ("method", "code"),
    registry=REGISTRY,
)
api_request_seconds = Histogram(
    "inference_operator_api_request_seconds",
    "One request to the API server, without the wait for the operator's own rate limit.",
    ("method",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
api_wait_seconds = Histogram(
    "inference_operator_api_wait_seconds",
    "The wait of one request for the operator's own rate limit.",
    buckets=_SECONDS,
    registry=REGISTRY,
)
scheduling_errors_total = Counter("inference_operator_scheduling_errors_total", "Passes that ended in a bug.", registry=REGISTRY)
scheduling_seconds = Histogram(
    "inference_operator_scheduling_seconds", "One pass over the fleet.", buckets=_SECONDS, registry=REGISTRY
)
placement_requests = Gauge("inference_operator_placement_requests", "Jobs that want a place.", registry=CLUSTER)
events_dropped_total = Counter("inference_operator_events_dropped_total", "Events that were not written.", registry=REGISTRY)
preemptions_total = Counter("inference_operator_preemptions_total", "Batches asked to make room for others.", registry=CLUSTER)
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
    registry=CLUSTER,
)
queue_depth = Gauge("inference_operator_queue_depth", "Jobs waiting to be looked at.", registry=REGISTRY)
leading = Gauge("inference_operator_leading", "1 on the replica that holds the Lease.", registry=REGISTRY)
watch_age_seconds = Gauge("inference_operator_watch_age_seconds", "Since a kind was last heard of.", ("kind",), registry=REGISTRY)
clock_skew_seconds = Gauge(
    "inference_operator_clock_skew_seconds",
    "How far this node's clock is ahead of the API server's, which decides.",
    registry=REGISTRY,
)
suspected_workers = Gauge(
    "inference_operator_suspected_workers",
    "Ready workers that this replica suspects, since they don't answer its own polls.",
    registry=REGISTRY,
)
suspicions_total = Counter(
    "inference_operator_suspicions_total", "Workers that came under suspicion, by cause.", ("cause",), registry=REGISTRY
)
suspicions_withdrawn_total = Counter(
    "inference_operator_suspicions_withdrawn_total", "Suspected workers that spoke again.", registry=REGISTRY
)

# What has happened to jobs, as `history.py` reads it off their statuses.

attempts_total = Counter(
    "inference_attempts_total",
    "Attempts of batches that have ended, and workers of services that have failed, by outcome and reason.",
    ("namespace", "kind", "outcome", "reason"),
    registry=CLUSTER,
)
deadlines_total = Counter(
    "inference_deadlines_total", "Deadlines that were met or missed.", ("namespace", "kind", "outcome"), registry=CLUSTER
)
energy_joules_total = Counter(
    "inference_energy_joules_total",
    "Energy of the devices that batches held, counted at each attempt's end: measured, or modelled from declared watts.",
    ("namespace", "source"),
    registry=CLUSTER,
)
time_to_place_seconds = Histogram(
    "inference_time_to_place_seconds",
    "From a job's creation until its first worker was placed.",
    ("kind",),
    buckets=_LONG_SECONDS,
    registry=CLUSTER,
)
time_to_ready_seconds = Histogram(
    "inference_time_to_ready_seconds",
    "From a service's creation until all its workers were first ready.",
    ("kind",),
    buckets=_LONG_SECONDS,
    registry=CLUSTER,
)
time_to_complete_seconds = Histogram(
    "inference_time_to_complete_seconds",
    "From a job's creation until its end, whichever it was.",
    ("kind",),
    buckets=_LONG_SECONDS,
    registry=CLUSTER,
)


def lead() -> None:
    """Tell of the cluster from now on: this process leads until it ends."""
    leading.set(1)
    REGISTRY.register(CLUSTER)

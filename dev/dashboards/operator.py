"""The operator itself: who leads, how fast it decides, and what the API server says."""

from dev.dashboards.board import Board, Kind, Panel, Query, Row, quantile, quantiles, rate, total

# process_... is told by everything that Prometheus scrapes.
_PROCESS = "* on (instance) group_left () group by (instance) (inference_operator_build_info)"

_NOW = (
    Panel("Leaders", "Replicas that hold the Lease: one.", (Query("sum(inference_operator_leading)"),), kind=Kind.NUMBER),
    Panel("Replicas", "Replicas that Prometheus reaches.", (Query("count(inference_operator_leading)"),), kind=Kind.NUMBER),
    Panel(
        "Version",
        "Of each replica.",
        (Query("count by (version) (inference_operator_build_info)", "{{version}}"),),
        kind=Kind.NUMBER,
    ),
    Panel(
        "Leaked workers",
        "Workers that hold a place though nobody wants them.",
        (Query("max(inference_operator_leaked_workers)"),),
        kind=Kind.NUMBER,
    ),
)
_DECISIONS = (
    Panel(
        "Reconciles",
        "Looks at objects, by kind.",
        (Query(rate("inference_operator_reconcile_seconds_count", "kind"), "{{kind}}"),),
        unit="ops",
    ),
    Panel("Time of a reconcile", "One look at one object.", quantiles("inference_operator_reconcile_seconds", by="kind"), unit="s"),
    Panel(
        "Reconciles that are tried again",
        "By cause: conflict, unavailable, refused, or bug.",
        (Query(rate("inference_operator_reconcile_errors_total", "kind, cause"), "{{kind}} {{cause}}"),),
        unit="ops",
    ),
    Panel(
        "Queue", "Objects that wait to be looked at.", (Query(total("inference_operator_queue_depth", "instance"), "{{instance}}"),)
    ),
    Panel("Scheduling pass", "One pass over the fleet.", quantiles("inference_operator_scheduling_seconds"), unit="s"),
    Panel(
        "Placement requests",
        "Jobs and pools that want a place.",
        (Query("max(inference_operator_placement_requests)", "requests"),),
    ),
)
_API = (
    Panel(
        "Requests by status",
        "Requests to the API server; 0 is no answer, 429 asks for fewer.",
        (Query(rate("inference_operator_api_requests_total", "code"), "{{code}}"),),
        unit="reqps",
        kind=Kind.STACK,
    ),
    Panel(
        "Requests refused as too many",
        "Answers with status 429.",
        (Query('sum(rate(inference_operator_api_requests_total{code="429"}[$__rate_interval])) or vector(0)', "429"),),
        unit="reqps",
    ),
    Panel(
        "Time of a request, p95",
        "By method.",
        (Query(quantile(0.95, "inference_operator_api_request_seconds", by="method"), "{{method}}"),),
        unit="s",
    ),
    Panel(
        "Wait for the operator's own limit",
        "Set requestsPerSecond higher if requests wait for long.",
        quantiles("inference_operator_api_wait_seconds"),
        unit="s",
    ),
    Panel(
        "Since a kind was heard of",
        "Grows while a watch is dead; a resync ends that.",
        (Query("max by (kind) (inference_operator_watch_age_seconds)", "{{kind}}"),),
        unit="s",
    ),
    Panel(
        "Events that were not written",
        "Events of jobs that the API server did not take.",
        (Query(rate("inference_operator_events_dropped_total"), "events"),),
        unit="ops",
    ),
)
_HEALTH = (
    Panel(
        "Suspected workers",
        "Ready workers that a replica's own polls get no answer from.",
        (Query(total("inference_operator_suspected_workers", "instance"), "{{instance}}"),),
    ),
    Panel(
        "Suspicions",
        "Workers that came under suspicion, by cause.",
        (Query(rate("inference_operator_suspicions_total", "cause"), "{{cause}}"),),
        unit="ops",
    ),
    Panel(
        "CPU",
        "Cores that each replica takes.",
        (Query(f"rate(process_cpu_seconds_total[$__rate_interval]) {_PROCESS}", "{{instance}}"),),
    ),
    Panel(
        "Memory",
        "Resident memory of each replica.",
        (Query(f"process_resident_memory_bytes {_PROCESS}", "{{instance}}"),),
        unit="bytes",
    ),
)

BOARD = Board(
    "operator",
    "The operator: its leader, its decisions, its requests to the API server, and its process.",
    (Row("Now", _NOW), Row("Decisions", _DECISIONS), Row("API server", _API), Row("Health", _HEALTH)),
)

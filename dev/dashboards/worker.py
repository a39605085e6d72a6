"""One worker beside the others of its job."""

from dev.dashboards.board import INSTANCE, JOB, NAMESPACE, OF_WORKER, Board, Kind, Panel, Query, Row, quantile, rate

_EACH = "{{instance}}"
_RUN, _ROWS = (rate(f"inference_{what}_total{{{OF_WORKER}}}", "instance") for what in ("runs", "rows"))
_DEVICE_MEMORY = 'inference_device_memory_{}_bytes{{instance=~"$instance"}}'

_REQUESTS = (
    Panel(
        "Ready",
        "1 when the model is loaded, verified and warmed up, and the worker doesn't drain.",
        (Query(f"inference_ready{{{OF_WORKER}}}", _EACH),),
    ),
    Panel(
        "Requests",
        "Requests answered by each worker.",
        (Query(rate(f"inference_requests_total{{{OF_WORKER}}}", "instance"), _EACH),),
        unit="reqps",
    ),
    Panel(
        "Latency, p95",
        "A worker that is slower than the others of its job has a node or a device to look at.",
        (Query(quantile(0.95, "inference_latency_seconds", OF_WORKER, "instance"), _EACH),),
        unit="s",
    ),
    Panel(
        "Requests that wait or run",
        "In each worker.",
        (
            Query(f"inference_queue_depth{{{OF_WORKER}}}", f"{_EACH} wait"),
            Query(f"inference_in_flight{{{OF_WORKER}}}", f"{_EACH} run"),
        ),
    ),
)
_RUNS = (
    Panel("Runs", "Runs of the model.", (Query(_RUN, _EACH),), unit="ops"),
    Panel(
        "Rows of a run",
        "How well requests share runs: the mean over the runs.",
        (
            Query(
                f"{_ROWS} / {_RUN}",
                _EACH,
            ),
        ),
    ),
    Panel(
        "Wasted rows",
        "Rows that were run for callers who had left, or were told that it was too late.",
        (Query(rate(f"inference_wasted_rows_total{{{OF_WORKER}}}", "instance"), _EACH),),
        unit="ops",
    ),
    Panel(
        "Circuit breaker",
        "0 is closed, 1 half-open, 2 open.",
        (Query(f"inference_breaker_state{{{OF_WORKER}}}", _EACH),),
    ),
    Panel(
        "Requests of tenants",
        "Requests that were let in, by tenant.",
        (Query(rate(f"inference_tenant_requests_total{{{OF_WORKER}}}", "tenant"), "{{tenant}}"),),
        unit="reqps",
        kind=Kind.STACK,
    ),
)
_MEMORY = (
    Panel(
        "Memory",
        "Resident memory of the process.",
        (Query('inference_resident_bytes{instance=~"$instance"}', _EACH),),
        unit="bytes",
    ),
    Panel(
        "Rows that fit the device",
        "0 when all do.",
        (Query(f"inference_memory_ceiling_rows{{{OF_WORKER}}}", _EACH),),
    ),
    Panel(
        "Runs in halves",
        "Runs that found no memory and were done again in halves.",
        (Query(rate(f"inference_memory_halvings_total{{{OF_WORKER}}}", "instance"), _EACH),),
        unit="ops",
    ),
)
_DEVICE = (
    Panel(
        "Device utilization",
        "Share of time in which the device computed; only of workers on a device.",
        (Query('inference_device_utilization_ratio{instance=~"$instance"}', "{{uuid}}"),),
        unit="percentunit",
    ),
    Panel(
        "Device memory",
        "Memory in use, whoever uses it, as a share of all.",
        (
            Query(
                f"{_DEVICE_MEMORY.format('used')} / {_DEVICE_MEMORY.format('total')}",
                "{{uuid}}",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        "Age of the meters",
        "Grows while the driver hangs.",
        (Query('inference_device_reading_age_seconds{instance=~"$instance"}', "{{uuid}}"),),
        unit="s",
    ),
)

BOARD = Board(
    "worker",
    "The workers of a job side by side: requests, runs, memory and devices.",
    (Row("Requests", _REQUESTS), Row("Runs", _RUNS), Row("Memory", _MEMORY), Row("Device", _DEVICE)),
    (NAMESPACE, JOB, INSTANCE),
)

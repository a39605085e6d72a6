"""One service or batch, as its callers and the operator see it."""

from dev.dashboards.board import JOB, NAMESPACE, OF_JOB, Board, Kind, Panel, Query, Row, quantile, quantiles, rate, total

_NAME = "namespace, inference_job"
_LEGEND = "{{namespace}}/{{inference_job}}"

_CALLERS = (
    Panel(
        "Latency",
        "From the whole request to its answer, over all workers.",
        quantiles("inference_latency_seconds", OF_JOB),
        unit="s",
    ),
    Panel(
        "Requests by status",
        "Requests answered, by HTTP status.",
        (Query(rate(f"inference_requests_total{{{OF_JOB}}}", "code"), "{{code}}"),),
        unit="reqps",
        kind=Kind.STACK,
    ),
    Panel(
        "Where the time goes, p95",
        "Time that requests wait for the model, and time in the model.",
        (
            Query(quantile(0.95, "inference_queue_seconds", OF_JOB), "queue"),
            Query(quantile(0.95, "inference_compute_seconds", OF_JOB), "compute"),
        ),
        unit="s",
    ),
    Panel(
        "Refused, expired, late and left",
        "Requests that got no answer in time, by what became of them.",
        (
            Query(rate(f"inference_shed_total{{{OF_JOB}}}"), "refused before they waited"),
            Query(rate(f"inference_expired_total{{{OF_JOB}}}"), "expired while they waited"),
            Query(rate(f"inference_late_total{{{OF_JOB}}}"), "late while the model ran"),
            Query(rate(f"inference_cancelled_total{{{OF_JOB}}}"), "left by their callers"),
        ),
        unit="reqps",
    ),
    Panel(
        "Requests that wait or run",
        "Over all workers.",
        (
            Query(total(f"inference_queue_depth{{{OF_JOB}}}"), "wait"),
            Query(total(f"inference_in_flight{{{OF_JOB}}}"), "run"),
        ),
        kind=Kind.STACK,
    ),
    Panel(
        "Answers from the cache",
        "Requests by what the cache made of them; only of jobs with a cache.",
        (Query(rate(f"inference_cache_requests_total{{{OF_JOB}}}", "result"), "{{result}}"),),
        unit="reqps",
        kind=Kind.STACK,
    ),
)
_SCALING = (
    Panel(
        "Workers",
        "Workers that the latency target takes, and those that are ready.",
        (
            Query(f"max by ({_NAME}) (inference_job_desired_replicas{{{OF_JOB}}})", f"{_LEGEND} desired"),
            Query(f"max by ({_NAME}) (inference_job_ready_workers{{{OF_JOB}}})", f"{_LEGEND} ready"),
            Query(f"max by ({_NAME}) (inference_job_unreachable_workers{{{OF_JOB}}})", f"{_LEGEND} unreachable"),
        ),
    ),
    Panel(
        "Latency that scales",
        "The p95 of the operator's window, which the HPA gets as inference_latency_ms.",
        (Query(f'max by ({_NAME}) (inference_job_latency_seconds{{{OF_JOB},percentile="95"}})', _LEGEND),),
        unit="s",
    ),
    Panel(
        "Load that scales",
        "Requests each second in the operator's window.",
        (Query(f"max by ({_NAME}) (inference_job_requests_per_second{{{OF_JOB}}})", _LEGEND),),
        unit="reqps",
    ),
    Panel(
        "Queue that scales",
        "Requests that wait at the job's workers, as the operator heard last.",
        (Query(f"max by ({_NAME}) (inference_job_queue_depth{{{OF_JOB}}})", _LEGEND),),
    ),
)
_BATCH = (
    Panel(
        "Items committed",
        "Items of batches that were committed each second.",
        (Query(rate(f"inference_batch_items_total{{{OF_JOB}}}", _NAME), _LEGEND),),
        unit="ops",
    ),
    Panel(
        "Slack",
        "Deadline less expected completion; negative is late.",
        (Query(f"max by ({_NAME}) (inference_job_slack_seconds{{{OF_JOB}}})", _LEGEND),),
        unit="s",
    ),
)

BOARD = Board(
    "job",
    "One or several jobs: latency, requests, scaling, and the progress of batches.",
    (Row("Callers", _CALLERS), Row("Scaling", _SCALING), Row("Batches", _BATCH)),
    (NAMESPACE, JOB),
)

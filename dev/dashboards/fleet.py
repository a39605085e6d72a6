"""All jobs, their deadlines, and what they run on."""

from dev.dashboards.board import IN_NAMESPACE, NAMESPACE, Board, Kind, Panel, Query, Row, quantiles, rate, total

_NOW = (
    Panel(
        "Jobs that run",
        "Batches that run and services that answer.",
        (Query(f'sum(inference_jobs{{{IN_NAMESPACE},phase=~"Running|Serving"}}) or vector(0)'),),
        kind=Kind.NUMBER,
    ),
    Panel(
        "Jobs that wait",
        "Jobs without a place.",
        (Query(f'sum(inference_jobs{{{IN_NAMESPACE},phase="Waiting"}}) or vector(0)'),),
        kind=Kind.NUMBER,
    ),
    Panel(
        "Deadlines at risk",
        "Jobs that are expected to end late as things stand.",
        (Query(f'sum(inference_open_deadlines{{{IN_NAMESPACE},outlook="AtRisk"}}) or vector(0)'),),
        kind=Kind.NUMBER,
    ),
    Panel(
        "Deadlines met, last hour",
        "The share of deadlines that were met.",
        (
            Query(
                f'sum(increase(inference_deadlines_total{{{IN_NAMESPACE},outcome="Met"}}[1h]))'
                f" / sum(increase(inference_deadlines_total{{{IN_NAMESPACE}}}[1h]))"
            ),
        ),
        unit="percentunit",
        kind=Kind.NUMBER,
    ),
)
_DEADLINES = (
    Panel(
        "Open deadlines by outlook",
        "Jobs that have not ended and have a deadline.",
        (Query(total(f"inference_open_deadlines{{{IN_NAMESPACE}}}", "outlook"), "{{outlook}}"),),
        kind=Kind.STACK,
    ),
    Panel(
        "Deadlines met and missed",
        "How many are decided each second.",
        (Query(rate(f"inference_deadlines_total{{{IN_NAMESPACE}}}", "outcome"), "{{outcome}}"),),
        unit="ops",
    ),
    Panel(
        "Least slack",
        "The ten jobs with the least time between expected completion and deadline; negative is late.",
        (Query(f"bottomk(10, inference_job_slack_seconds{{{IN_NAMESPACE}}})", "{{namespace}}/{{inference_job}}"),),
        unit="s",
    ),
    Panel(
        "Longest wait",
        "For how long the job waits that has waited longest for a place.",
        (Query(f"max by (namespace) (inference_longest_wait_seconds{{{IN_NAMESPACE}}})", "{{namespace}}"),),
        unit="s",
    ),
)
_JOBS = (
    Panel(
        "Jobs by phase",
        "All InferenceJobs.",
        (Query(total(f"inference_jobs{{{IN_NAMESPACE}}}", "phase"), "{{phase}}"),),
        kind=Kind.STACK,
    ),
    Panel(
        "Waiting jobs by reason",
        "Why jobs have no place.",
        (Query(total(f'inference_jobs{{{IN_NAMESPACE},phase="Waiting"}}', "reason"), "{{reason}}"),),
        kind=Kind.STACK,
    ),
    Panel(
        "Attempts that ended",
        "Attempts of batches, and workers of services that failed.",
        (Query(rate(f"inference_attempts_total{{{IN_NAMESPACE}}}", "outcome, reason"), "{{outcome}} {{reason}}"),),
        unit="ops",
    ),
    Panel(
        "Preemptions",
        "Batches that were asked to make room for others.",
        (Query(rate("inference_operator_preemptions_total"), "preemptions"),),
        unit="ops",
    ),
    Panel(
        "Time to place",
        "From a job's creation until its first worker was placed.",
        quantiles("inference_time_to_place_seconds", by="kind"),
        unit="s",
    ),
    Panel(
        "Time to ready",
        "From a service's creation until all its workers were first ready.",
        quantiles("inference_time_to_ready_seconds"),
        unit="s",
    ),
    Panel(
        "Time to complete",
        "From a job's creation until its end.",
        quantiles("inference_time_to_complete_seconds", by="kind"),
        unit="s",
    ),
)
_PLACES = (
    Panel(
        "Workers by accelerator class",
        "Worker pods that have not ended.",
        (Query(total(f"inference_workers{{{IN_NAMESPACE}}}", "accelerator, state"), "{{accelerator}} {{state}}"),),
        kind=Kind.STACK,
    ),
    Panel(
        "Workers by namespace",
        "Whose workers they are.",
        (Query(total(f"inference_workers{{{IN_NAMESPACE}}}", "namespace, kind"), "{{namespace}} {{kind}}"),),
        kind=Kind.STACK,
    ),
    Panel(
        "Warm pools",
        "Workers of each model's pool.",
        (
            Query(
                total(f"inference_pool_workers{{{IN_NAMESPACE}}}", "namespace, model, state"), "{{namespace}}/{{model}} {{state}}"
            ),
        ),
        kind=Kind.STACK,
    ),
    Panel(
        "Nodes by state",
        "Nodes that the operator sees, and those that it has asked for by placeholder pods.",
        (
            Query(total("inference_nodes", "state"), "{{state}}"),
            Query(total("inference_placeholder_pods", "accelerator"), "asked for: {{accelerator}}"),
        ),
        kind=Kind.STACK,
    ),
    Panel(
        "Load time of models",
        "From a worker's start until the model was warmed up, as measured last.",
        (
            Query(
                f"max by (namespace, model, accelerator) (inference_model_load_seconds{{{IN_NAMESPACE}}})",
                "{{namespace}}/{{model}} {{accelerator}}",
            ),
        ),
        unit="s",
    ),
)

BOARD = Board(
    "fleet",
    "All InferenceJobs: deadlines, waits, attempts, and the workers, pools and nodes behind them.",
    (Row("Now", _NOW), Row("Deadlines", _DEADLINES), Row("Jobs", _JOBS), Row("Places", _PLACES)),
    (NAMESPACE,),
)

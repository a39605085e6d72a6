"""Jobs beside each other, by what is urgent: `kubectl inference top`."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum

from inference_client.api import InferenceJob
from inference_client.job_state import is_batch
from kubectl_inference.pages.deadline import outlook_tone
from kubectl_inference.pages.parts import Line, Table, Tone, cell
from kubectl_inference.pages.words import age, duration, instant, number


class SortBy(StrEnum):
    """What comes first."""

    DEADLINE = "deadline"
    LATENCY = "latency"
    LOAD = "load"
    NAME = "name"


_LAST = float("inf")


def slack(job: InferenceJob) -> float:
    """Seconds to spare; without a deadline, any number of them."""
    found = job.status.deadline
    return _LAST if found is None or found.slack_seconds is None else found.slack_seconds


def load(job: InferenceJob) -> float | None:
    """Requests a second, of a service that was asked in its window."""
    found = job.status.latency
    if found is None or not found.window_seconds or is_batch(job):
        return None
    return found.count / found.window_seconds


_KEYS: dict[SortBy, Callable[[InferenceJob], float]] = {
    # What has ended needs nobody's attention.
    SortBy.DEADLINE: lambda job: _LAST if job.status.completion_time else slack(job),
    SortBy.LATENCY: lambda job: -job.status.latency.p95 if job.status.latency else _LAST,
    SortBy.LOAD: lambda job: -(load(job) or 0),
    SortBy.NAME: lambda _: 0,
}


def top(jobs: Sequence[InferenceJob], now: datetime, *, by: SortBy, namespaces: bool = False, wide: bool = False) -> Table:
    """A row a job, as kubectl lays tables out: NAME first, AGE last."""
    ordered = sorted(jobs, key=lambda job: (_KEYS[by](job), job.metadata.namespace, job.metadata.name))
    columns = ("NAME", "REASON", "READY", "P95(MS)", "TARGET(MS)", "LOAD(/S)", "PROGRESS", "OUTLOOK", "SLACK", "NODE")
    more = ("MODEL", "ACCELERATOR", "P50(MS)", "P99(MS)", "DEADLINE") if wide else ()
    return Table(
        ((("NAMESPACE",) if namespaces else ()) + columns + more + ("AGE",)),
        tuple(_row(job, now, namespaces=namespaces, wide=wide) for job in ordered),
    )


def _row(job: InferenceJob, now: datetime, *, namespaces: bool, wide: bool) -> tuple[Line, ...]:
    status, serve, latency = job.status, job.spec.serve, job.status.latency
    target = serve.latency_target_milliseconds if serve else None
    late = target is not None and latency is not None and latency.p95 > target
    stalled = any(one.type == "Stalled" and one.status == "True" for one in status.conditions)
    found = status.deadline
    rate = load(job)
    spare = found.slack_seconds if found else None
    row = (
        Line(job.metadata.name),
        cell(status.reason, Tone.BAD if stalled else Tone.PLAIN),
        cell(None if is_batch(job) else f"{status.ready_replicas}/{_wanted(job)}"),
        cell(latency and number(latency.p95), Tone.BAD if late else Tone.PLAIN),
        cell(target),
        cell(None if rate is None else number(rate)),
        cell(status.progress and f"{status.progress.completed}/{status.progress.total}"),
        cell(found and found.outlook, outlook_tone(found.outlook if found else None)),
        cell(None if spare is None else ("-" if spare < 0 else "") + duration(spare).replace(" ", "")),
        cell(status.placement and status.placement.node),
    )
    more = (
        Line(job.spec.model),
        cell(status.placement and status.placement.accelerator),
        cell(latency and number(latency.p50)),
        cell(latency and number(latency.p99)),
        cell(job.spec.deadline and instant(job.spec.deadline)),
    )
    where = (Line(job.metadata.namespace),) if namespaces else ()
    return (*where, *row, *(more if wide else ()), Line(age(job.metadata.creation_timestamp, now)))


def _wanted(job: InferenceJob) -> int:
    return job.status.desired_replicas if job.status.desired_replicas is not None else job.spec.replicas

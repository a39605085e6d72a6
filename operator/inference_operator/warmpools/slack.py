"""The slack of services: what a service lends to batches now, what a batch asks of it, and when it is given back.

A service lends while it keeps its latency target with room to spare. What a batch is reckoned with is a cautious share of the time
that requests leave: it begins a run only where none waits, so that it gets less than all of the rest.
"""

from collections.abc import Container
from dataclasses import dataclass, replace

from inference_operator.api.conditions import Reason
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask, SlackWorker
from inference_operator.settings import Settings
from inference_operator.state.load import ScalingMetrics
from inference_operator.state.objects import Key, Pod
from inference_operator.workers.options import planned_node
from inference_operator.workers.resolve import ResolvedJob
from inference_operator.workers.source import asks_as_somebody

# Measured beside 1,500 requests a second (docs/measurements.md): a batch gets two thirds of what the requests leave, in runs of 8.
_USABLE = 0.5
# With less than this a batch stands still more than it runs.
_LEAST_SHARE = 0.1
# Shares are told in steps: one that moves all the time is no news.
_STEP = 0.05
# A window that is shorter says nothing of a load.
_KNOWN_SECONDS = 10.0
# Begun below this part of the target and given back above all of it, so that a batch does not come and go.
_BEGIN, _GIVE_BACK = 0.8, 1.0
_BUSY = 0.9
# A percentile of fewer requests is noise.
_FEW = 20


@dataclass(frozen=True, slots=True)
class Lender:
    """A service that lends its slack: the workers that answer, and what it holds them to."""

    uid: str
    target_seconds: float
    slack: ServiceSlack


def lender(resolved: ResolvedJob, ready: tuple[Pod, ...], *, is_whole: bool) -> Lender | None:
    """Return a service as one that lends its slack; None for one that does not. `ready` are its workers that answer."""
    serve = resolved.spec.serve
    if serve is None or serve.slack is None or serve.latency_target_milliseconds is None or resolved.spec.suspend:
        return None
    key = resolved.job.key
    workers = tuple(
        SlackWorker(key, pod.key, planned_node(pod) or "", pod.worker.accelerator, 1.0)
        for pod in ready
        if pod.worker is not None and pod.address is not None
    )
    slack = ServiceSlack(
        service=key,
        source=resolved.source,
        backend=resolved.backend,
        batch_size=resolved.spec.batch_size,
        mounts=tuple(sorted(resolved.claims.items())),
        accelerator=resolved.spec.accelerator,
        workers=workers,
        closed="" if is_whole else "not all of its workers answer, or it rolls out",
    )
    return Lender(resolved.job.uid, serve.latency_target_milliseconds / 1e3, slack)


def lent(lender: Lender, metrics: ScalingMetrics | None, taken: Container[Key]) -> ServiceSlack:
    """Return what a service lends under its load now; `taken` are workers that have a batch."""
    slack = lender.slack
    share = _share(metrics)
    closed = slack.closed or _closed(metrics, share, lender.target_seconds)
    if closed:
        return replace(slack, workers=(), closed=closed)
    return replace(slack, workers=tuple(replace(one, share=share) for one in slack.workers if one.pod not in taken))


def _used(metrics: ScalingMetrics) -> float:
    """The share of their time that requests take of the workers, or would take if all that come were answered at once."""
    ready = metrics.workers.ready
    return min(1.0, max(metrics.load.busy, metrics.load.demand) / ready) if ready else 1.0


def _share(metrics: ScalingMetrics | None) -> float:
    """The part of a worker's time that a batch can count on, in steps downwards."""
    if metrics is None:
        return 0.0
    return round(int(_USABLE * (1.0 - _used(metrics)) / _STEP + 1e-9) * _STEP, 2)


def _closed(metrics: ScalingMetrics | None, share: float, target: float) -> str:
    """Why no batch may begin; empty where one may."""
    if metrics is None or metrics.load.seconds < _KNOWN_SECONDS:
        return "its load is not known yet"
    if metrics.workers.measured < metrics.workers.ready:
        return "not all of its workers say how they stand"
    p95, wish = metrics.load.p95, metrics.recommendation
    if p95 is not None and p95 > _BEGIN * target:
        return f"its p95 latency of {p95 * 1e3:.3g} ms is too near to its target of {target * 1e3:.3g} ms"
    if wish is not None and wish.desired > metrics.workers.ready:
        return f"its load asks for {wish.desired} workers, and it has {metrics.workers.ready}"
    if share < _LEAST_SHARE:
        return f"requests take {_used(metrics):.0%} of its workers' time"
    return ""


def taken_back(target: float | None, metrics: ScalingMetrics | None) -> str | None:
    """Return why a service needs its slack itself by now; None where it does not, or nobody knows."""
    if metrics is None or not metrics.known:
        return None
    load, wish = metrics.load, metrics.recommendation
    if target is not None and load.p95 is not None and load.count >= _FEW and load.p95 > _GIVE_BACK * target:
        return f"its p95 latency is {load.p95 * 1e3:.3g} ms, and its target {target * 1e3:.3g} ms"
    if wish is not None and wish.desired > metrics.workers.ready:
        return f"its load asks for {wish.desired} workers, and it has {metrics.workers.ready}"
    used = _used(metrics)
    return f"requests take {used:.0%} of its workers' time" if used > _BUSY else None


def slack_task(resolved: ResolvedJob, failed: int, settings: Settings) -> SlackTask | None:
    """Return what a batch asks of a service in whose slack it could run; None for services. `failed` attempts it has had."""
    spec, job = resolved.spec, resolved.job
    if spec.input is None:
        return None
    return SlackTask(
        namespace=job.key.namespace,
        source=resolved.source,
        backend=resolved.backend,
        batch_size=spec.batch_size,
        claims=tuple(sorted(resolved.claims.items())),
        accelerator=spec.accelerator,
        barred=_barred(resolved, job.status, failed, settings),
    )


def _barred(resolved: ResolvedJob, status: InferenceJobStatus, failed: int, settings: Settings) -> str:
    spec = resolved.spec
    if spec.node_selector or spec.tolerations or spec.resources or spec.template:
        return "the batch asks for a worker of its own, by nodeSelector, tolerations, resources or template"
    if asks_as_somebody(spec):
        return "the batch has input.storage or output.storage, which a worker of its own alone is shown"
    if failed:
        return "an attempt of the batch has failed; the next runs in a pod of its own"
    if status.preemptions >= settings.preemptions_per_job:
        return f"the batch has made room {status.preemptions} times already"
    if _broke_a_service(status.last_attempt, status):
        return "the service's worker ended under the attempt before"
    return ""


def _broke_a_service(attempt: AttemptStatus | None, status: InferenceJobStatus) -> bool:
    """Whether the attempt before was in slack, and its worker ended by itself: no second service is to end by the same cause."""
    in_slack = status.placement is not None and status.placement.slack is not None
    lost = attempt is not None and attempt.outcome is AttemptOutcome.DISRUPTED and attempt.reason == Reason.WORKER_LOST.value
    return in_slack and lost

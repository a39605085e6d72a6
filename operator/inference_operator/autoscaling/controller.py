"""After each round of telemetry: every serving job's history, load and recommendation, kept in the store for whoever asks.

Every replica of the operator does this by itself, the standbys too: each can answer the HPA.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from inference_operator.api.conditions import NO_PLACE, ConditionType, Truth, find
from inference_operator.api.job import wanted_replicas
from inference_operator.autoscaling import window
from inference_operator.autoscaling.recommender import Bounds, Observation, recommend
from inference_operator.runtime.clock import Clock
from inference_operator.settings import AutoscalingSettings
from inference_operator.state.load import History, Interval, Load, Recommendation, Sample, ScalingMetrics, Workers
from inference_operator.state.objects import Job, Pod, PodPhase
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry

RECENT_SECONDS = 5.0
# A worker whose last answer is older counts as unreachable: one lost answer is no outage.
PATIENCE_ROUNDS = 3
# A burst is over once so many rounds have brought no request.
QUIET_ROUNDS = 2
# What of a latency is worth a look; whether it is worth a write, the plan decides.
_LATENCY_NEWS = 0.1


@dataclass(slots=True)
class _Memory:
    """What is kept of one job between rounds."""

    history: History | None = None
    recommendation: Recommendation | None = None
    # When the job was last woken for its latency, and for which.
    told: tuple[float, float] = (0.0, 0.0)
    # When a batch was last seen in the slack of its workers.
    lent: float = float("-inf")


class Autoscale:
    """Rounds in, measures out."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        wake: Callable[[Request], None],
        settings: AutoscalingSettings,
        *,
        telemetry_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._wake = wake
        self._settings = settings
        self._patience = PATIENCE_ROUNDS * telemetry_seconds
        self._quiet = QUIET_ROUNDS * telemetry_seconds
        self._samples: dict[str, Sample] = {}
        self._memories: dict[str, _Memory] = {}

    def round(self, answers: Mapping[str, Telemetry | None]) -> None:
        """Take in one round: what each running worker answered, by the pod's uid; None when it did not."""
        now = self._clock.monotonic()
        serving = {job.uid: job for job in self._store.jobs.values() if job.spec is not None and job.spec.input is None}
        samples: dict[str, Sample] = {}
        for job in serving.values():
            self._job(job, answers, samples, now)
        self._samples = samples
        for gone in self._memories.keys() - serving.keys():
            del self._memories[gone]
            self._store.scaling_metrics.pop(gone, None)

    def _job(self, job: Job, answers: Mapping[str, Telemetry | None], samples: dict[str, Sample], now: float) -> None:
        pods = self._store.workers_of(job)
        memory = self._memories.setdefault(job.uid, _Memory())
        interval, workers = self._interval(pods, answers, samples, now)
        keep = self._settings.window_seconds + 2 * RECENT_SECONDS
        history = window.extended(memory.history, interval, workers, keep_seconds=keep)
        memory.history = history
        whole = window.load(history, seconds=self._settings.window_seconds)
        memory.lent = now if workers.lending else memory.lent
        lent = now - memory.lent <= self._settings.window_seconds
        memory.recommendation = self._recommend(job, memory.recommendation, history, now, lent=lent)
        before = self._store.scaling_metrics.get(job.uid)
        settled = whole.count > 0 and not window.load(history, seconds=self._quiet).count
        scaling_metrics = ScalingMetrics(now, whole, workers, memory.recommendation, settled)
        self._store.scaling_metrics[job.uid] = scaling_metrics
        burst_is_over = settled and before is not None and not before.settled
        if burst_is_over or _news(before) != _news(scaling_metrics) or self._latency_moved(memory, whole, now):
            self._wake(job_request(job.key))

    @staticmethod
    def _latency_moved(memory: _Memory, load: Load, now: float) -> bool:
        when, p95 = memory.told
        moved = load.p95 is not None and abs(load.p95 - p95) > _LATENCY_NEWS * p95
        if not moved or now - when < RECENT_SECONDS:
            return False
        memory.told = (now, load.p95 or 0.0)
        return True

    def _interval(
        self, pods: Iterable[Pod], answers: Mapping[str, Telemetry | None], samples: dict[str, Sample], now: float
    ) -> tuple[Interval, Workers]:
        pairs: list[tuple[Sample, Sample]] = []
        ready = measured = left_out = unreachable = queued = lending = 0
        for pod in pods:
            before, answer = self._samples.get(pod.uid), answers.get(pod.uid)
            if not counts_for_hpa(pod):
                if answer is not None:
                    # Its first requests may come before the next round: they count from here.
                    samples[pod.uid] = window.sample(answer, now)
                continue
            ready += 1
            if answer is None:
                if before is not None and now - before.time <= self._patience:
                    samples[pod.uid] = before
                    measured += 1
                else:
                    unreachable += 1
                continue
            lending += bool(answer.tasks)
            after = samples[pod.uid] = window.sample(answer, now)
            if before is not None:
                pairs.append((before, after))
            if answer.draining or not answer.ready:
                left_out += 1
            else:
                measured += 1
                queued += answer.queued
        return window.interval(pairs, now), Workers(ready, measured, left_out, unreachable, queued, lending)

    def _recommend(
        self, job: Job, before: Recommendation | None, history: History, now: float, *, lent: bool
    ) -> Recommendation | None:
        bounds = bounds_of(job, len([p for p in self._store.workers_of(job) if not p.over and not p.deleting]))
        if bounds is None:
            return None
        seconds = self._settings.window_seconds
        steady = window.load(history, seconds=seconds, since=history.steady_since)
        recent = window.load(history, seconds=RECENT_SECONDS, since=history.steady_since)
        return recommend(before, Observation(now, history.workers, steady, recent, lent), bounds, window_seconds=seconds)


def counts_for_hpa(pod: Pod) -> bool:
    """Whether the HPA counts the pod: Running and Ready, also while it is being deleted."""
    return pod.phase is PodPhase.RUNNING and pod.ready


def bounds_of(job: Job, placed: int) -> Bounds | None:
    """What a job allows; None without a latency target. `placed` are its workers that exist."""
    spec = job.spec
    if spec is None or spec.serve is None or spec.serve.latency_target_milliseconds is None:
        return None
    serve = spec.serve
    minimum = max(1, serve.min_replicas)
    found = find(job.status.conditions, ConditionType.PLACED)
    waits = found is not None and found.status is Truth.FALSE and found.reason in NO_PLACE
    return Bounds(
        target_seconds=spec.serve.latency_target_milliseconds / 1e3,
        minimum=minimum,
        maximum=serve.max_replicas if serve.max_replicas is not None else max(minimum, wanted_replicas(spec)),
        asked=spec.replicas,
        capacity=placed if waits else None,
    )


def _news(scaling_metrics: ScalingMetrics | None) -> object:
    """What of the scaling metrics a job's conditions tell."""
    if scaling_metrics is None:
        return None
    return scaling_metrics.known, scaling_metrics.recommendation is not None and scaling_metrics.recommendation.below_floor

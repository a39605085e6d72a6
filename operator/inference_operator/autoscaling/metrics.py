"""The metrics of InferenceJobs by name, for whoever scales by them. What is not known is an error, never a number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from inference_operator.autoscaling.controller import counts_for_hpa
from inference_operator.autoscaling.hpa_manifest import METRIC, RECOMMENDED, SIGNAL
from inference_operator.autoscaling.recommender import recommended_milliseconds
from inference_operator.autoscaling.selectors import Selector
from inference_operator.runtime.clock import Clock
from inference_operator.state.load import ScalingMetrics
from inference_operator.state.objects import Job, Key
from inference_operator.state.store import Store


class MetricFault(Enum):
    """Why a metric has no value."""

    INVALID = "what is asked for can't be read"
    NOT_FOUND = "there is no such job, metric or series"
    UNAVAILABLE = "it can't be told now"


class MetricError(Exception):
    """A question without an answer; the message is for whoever reads the conditions of an HPA or a ScaledObject."""

    def __init__(self, fault: MetricFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


ALL = "*"
_ANY = Selector()


@dataclass(frozen=True, slots=True)
class Query:
    """A metric of one job, or of all (`name` is ALL) whose labels `objects` matches; `series` selects by the metric's labels."""

    namespace: str
    name: str
    metric: str
    objects: Selector = _ANY
    series: Selector = _ANY


@dataclass(frozen=True, slots=True)
class Value:
    """One metric of one job; `milli` is in thousandths of the metric's unit."""

    key: Key
    metric: str
    milli: int
    time: datetime
    window_seconds: int


# Rounds after which scaling metrics are no news any more.
_STALE_ROUNDS = 5
_MEASURED = "measured"
DESIRED = "inference_desired_replicas"

_Number = Callable[[ScalingMetrics], float]


def _desired(scaling_metrics: ScalingMetrics) -> float:
    if scaling_metrics.recommendation is None:
        raise MetricError(MetricFault.NOT_FOUND, "the job has no serve.latencyTargetMilliseconds, so no number is wanted")
    return scaling_metrics.recommendation.desired


# By name; latencies in milliseconds. No request in the window is no latency: 0.
METRICS: Mapping[str, _Number] = {
    METRIC: lambda scaling_metrics: (scaling_metrics.load.p95 or 0.0) * 1e3,
    "inference_latency_p99_ms": lambda scaling_metrics: (scaling_metrics.load.p99 or 0.0) * 1e3,
    "inference_queue_depth": lambda scaling_metrics: scaling_metrics.workers.queued,
    "inference_requests_per_second": lambda scaling_metrics: scaling_metrics.load.requests_per_second,
    DESIRED: _desired,
}


class Metrics:
    """Looks values up in the store."""

    def __init__(self, store: Store, clock: Clock, *, round_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._stale = _STALE_ROUNDS * round_seconds

    def values(self, query: Query) -> list[Value]:
        """Return all values that a query asks for. Raises MetricError."""
        if query.metric not in METRICS:
            raise MetricError(MetricFault.NOT_FOUND, f"there is no metric {query.metric}; InferenceJobs have {', '.join(METRICS)}")
        if query.name != ALL:
            return [self._value(self.job(Key(query.namespace, query.name)), query)]
        return self._of_all(query)

    def job(self, key: Key) -> Job:
        """The job. Raises MetricError."""
        job = self._store.jobs.get(key)
        if job is None:
            raise MetricError(MetricFault.NOT_FOUND, f"there is no InferenceJob {key.name!r} in {key.namespace!r}")
        return job

    def _of_all(self, query: Query) -> list[Value]:
        found = []
        for key, job in sorted(self._store.jobs.items()):
            if key.namespace != query.namespace or not query.objects.matches(job.labels):
                continue
            try:
                found.append(self._value(job, query))
            except MetricError:
                # A list tells what is known; who needs one object asks for it and is told what is wrong.
                continue
        return found

    def _value(self, job: Job, query: Query) -> Value:
        scaling_metrics = self.scaling_metrics(job)
        milli = (
            self._recommendation(job, scaling_metrics)
            if self._is_recommendation(query)
            else round(METRICS[query.metric](scaling_metrics) * 1e3)
        )
        return Value(job.key, query.metric, milli, self._measured_at(scaling_metrics), round(scaling_metrics.load.seconds))

    def scaling_metrics(self, job: Job) -> ScalingMetrics:
        """What is known of its workers. Raises MetricError while that is nothing or too old."""
        scaling_metrics = self._store.scaling_metrics.get(job.uid)
        unavailable = MetricFault.UNAVAILABLE
        if scaling_metrics is None:
            raise MetricError(unavailable, f"InferenceJob {job.key} was not measured yet, or does not serve")
        workers = scaling_metrics.workers
        if self._clock.monotonic() - scaling_metrics.time > self._stale:
            raise MetricError(unavailable, f"the last look at the workers of InferenceJob {job.key} is too old")
        if workers.ready and not workers.measured and not workers.left_out:
            text = f"none of the {workers.ready} ready workers of InferenceJob {job.key} can be reached by the operator"
            raise MetricError(unavailable, text)
        if not workers.ready or scaling_metrics.load.seconds <= 0:
            raise MetricError(unavailable, f"no worker of InferenceJob {job.key} is ready and measured yet")
        return scaling_metrics

    @staticmethod
    def _is_recommendation(query: Query) -> bool:
        """Which series of the name is meant: the measured one unless only the other matches."""
        if query.metric != METRIC or query.series.matches({SIGNAL: _MEASURED}):
            return False
        if query.series.matches({SIGNAL: RECOMMENDED}):
            return True
        raise MetricError(MetricFault.NOT_FOUND, f"{METRIC} has the series {SIGNAL}={_MEASURED} and {SIGNAL}={RECOMMENDED}")

    def _recommendation(self, job: Job, scaling_metrics: ScalingMetrics) -> int:
        target = job.spec.serve.latency_target_milliseconds if job.spec is not None and job.spec.serve is not None else None
        if job.spec is None or target is None or scaling_metrics.recommendation is None:
            raise MetricError(MetricFault.NOT_FOUND, f"InferenceJob {job.key} has no serve.latencyTargetMilliseconds to scale by")
        ready = sum(counts_for_hpa(pod) for pod in self._store.workers_of(job))
        return recommended_milliseconds(
            scaling_metrics.recommendation.desired, ready=ready, asked=job.spec.replicas, target_milliseconds=target
        )

    def _measured_at(self, scaling_metrics: ScalingMetrics) -> datetime:
        """The wall time of the scaling metrics, for readers; nothing is decided by it."""
        age = self._clock.monotonic() - scaling_metrics.time
        return datetime.fromtimestamp(self._clock.now().timestamp() - age, tz=self._clock.now().tzinfo)

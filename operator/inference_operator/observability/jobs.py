"""The series of jobs, made when somebody scrapes: a job that is gone has none any more."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_operator.state.load import Load, ScalingMetrics

LABELS = ("namespace", "inference_job")
ScalingMetricsOf = Callable[[], Iterable[tuple[tuple[str, str], ScalingMetrics]]]


class _Series(NamedTuple):
    name: str
    text: str


LATENCY = _Series("inference_job_latency_seconds", "Latency of a job's requests by percentile (50, 95, 99); 0 without requests.")
QUEUE = _Series("inference_job_queue_depth", "Requests that wait at a job's workers.")
RATE = _Series("inference_job_requests_per_second", "Requests that a job's workers answered.")
DESIRED = _Series("inference_job_desired_replicas", "Workers that a job's latency target takes.")
READY = _Series("inference_job_ready_workers", "Workers of a job that are ready, as the HPA counts them.")
UNREACHABLE = _Series("inference_job_unreachable_workers", "Ready workers of a job that the operator can't reach.")


class JobCollector(Collector):
    """Reads `scaling_metrics` ((namespace, name), scaling metrics) at each scrape. Values that are not known have no sample."""

    def __init__(self, scaling_metrics: ScalingMetricsOf) -> None:
        self._scaling_metrics = scaling_metrics

    def collect(self) -> Iterator[Metric]:
        """All series."""
        found = list(self._scaling_metrics())
        latency = GaugeMetricFamily(*LATENCY, labels=(*LABELS, "percentile"))
        for labels, scaling_metrics in found:
            for percentile, seconds in _latencies(scaling_metrics.load):
                if scaling_metrics.known:
                    latency.add_metric((*labels, percentile), seconds or 0.0)
        yield latency
        for series, value in _VALUES:
            family = GaugeMetricFamily(*series, labels=LABELS)
            for labels, scaling_metrics in found:
                number = value(scaling_metrics)
                if number is not None:
                    family.add_metric(labels, number)
            yield family


def _latencies(load: Load) -> tuple[tuple[str, float | None], ...]:
    return (("50", load.p50), ("95", load.p95), ("99", load.p99))


def _known(scaling_metrics: ScalingMetrics, value: float | None) -> float | None:
    """What was measured of workers that can be reached; the rest is not known, and 0 would be a lie."""
    return (value or 0.0) if scaling_metrics.known else None


_VALUES: tuple[tuple[_Series, Callable[[ScalingMetrics], float | None]], ...] = (
    (QUEUE, lambda m: _known(m, m.workers.queued)),
    (RATE, lambda m: _known(m, m.load.requests_per_second)),
    (DESIRED, lambda m: _known(m, m.recommendation.desired) if m.recommendation is not None else None),
    (READY, lambda m: m.workers.ready),
    (UNREACHABLE, lambda m: m.workers.unreachable),
)

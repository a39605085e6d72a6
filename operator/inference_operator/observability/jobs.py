"""The series of jobs, made when somebody scrapes: a job that is gone has none any more."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_operator.state.load import ScalingMetrics

LABELS = ("namespace", "name")
ScalingMetricsOf = Callable[[], Iterable[tuple[tuple[str, str], ScalingMetrics]]]


class _Series(NamedTuple):
    name: str
    text: str


LATENCY = _Series("inference_latency_ms", "95th percentile of a job's request latency, milliseconds, 0 without requests.")
LATENCY_P99 = _Series("inference_latency_p99_ms", "99th percentile of the same.")
QUEUE = _Series("inference_queue_depth", "Requests that wait at a job's workers.")
RATE = _Series("inference_requests_per_second", "Requests that a job's workers answered.")
DESIRED = _Series("inference_desired_replicas", "Workers that a job's latency target takes.")
READY = _Series("inference_ready_workers", "Workers of a job that are ready, as the HPA counts them.")
UNREACHABLE = _Series("inference_unreachable_workers", "Ready workers of a job that the operator can't reach.")


class JobCollector(Collector):
    """Reads `scaling_metrics` ((namespace, name), scaling metrics) at each scrape. Values that are not known have no sample."""

    def __init__(self, scaling_metrics: ScalingMetricsOf) -> None:
        self._scaling_metrics = scaling_metrics

    def collect(self) -> Iterator[Metric]:
        """All series."""
        found = list(self._scaling_metrics())
        for series, value in _VALUES:
            family = GaugeMetricFamily(series.name, series.text, labels=LABELS)
            for labels, scaling_metrics in found:
                number = value(scaling_metrics)
                if number is not None:
                    family.add_metric(labels, number)
            yield family


def _known(scaling_metrics: ScalingMetrics, value: float | None) -> float | None:
    """What was measured of workers that can be reached; the rest is not known, and 0 would be a lie."""
    return (value or 0.0) if scaling_metrics.known else None


_VALUES: tuple[tuple[_Series, Callable[[ScalingMetrics], float | None]], ...] = (
    (LATENCY, lambda m: _known(m, (m.load.p95 or 0.0) * 1e3)),
    (LATENCY_P99, lambda m: _known(m, (m.load.p99 or 0.0) * 1e3)),
    (QUEUE, lambda m: _known(m, m.workers.queued)),
    (RATE, lambda m: _known(m, m.load.requests_per_second)),
    (DESIRED, lambda m: _known(m, m.recommendation.desired) if m.recommendation is not None else None),
    (READY, lambda m: m.workers.ready),
    (UNREACHABLE, lambda m: m.workers.unreachable),
)

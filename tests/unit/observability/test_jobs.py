"""The series of jobs on /metrics: what is known of those that are there."""

from prometheus_client import CollectorRegistry, generate_latest

from inference_operator.observability.jobs import JobCollector
from inference_operator.state.load import Recommendation, ScalingMetrics, Workers
from tests.builders import a_load


def text(*scaling_metrics: tuple[str, ScalingMetrics]) -> str:
    registry = CollectorRegistry()
    registry.register(JobCollector(lambda: [(("ns", name), scaling_metrics) for name, scaling_metrics in scaling_metrics]))
    return generate_latest(registry).decode()


def test_every_job_has_its_series() -> None:
    shown = text(("a", ScalingMetrics(0.0, a_load(0.25, count=30), Workers(2, 2, queued=3), Recommendation(4))))

    for line in (
        'inference_job_latency_seconds{inference_job="a",namespace="ns",percentile="95"} 0.25',
        'inference_job_latency_seconds{inference_job="a",namespace="ns",percentile="99"} 0.3',
        'inference_job_queue_depth{inference_job="a",namespace="ns"} 3.0',
        'inference_job_requests_per_second{inference_job="a",namespace="ns"} 2.0',
        'inference_job_desired_replicas{inference_job="a",namespace="ns"} 4.0',
        'inference_job_ready_workers{inference_job="a",namespace="ns"} 2.0',
        'inference_job_unreachable_workers{inference_job="a",namespace="ns"} 0.0',
    ):
        assert line in shown


def test_what_is_not_known_has_no_sample() -> None:
    shown = text(("gone", ScalingMetrics(0.0, a_load(None), Workers(2, 0, unreachable=2))))

    assert "inference_job_latency_seconds{" not in shown
    assert 'inference_job_unreachable_workers{inference_job="gone",namespace="ns"} 2.0' in shown


def test_a_job_that_is_gone_has_no_series() -> None:
    assert "{" not in text()

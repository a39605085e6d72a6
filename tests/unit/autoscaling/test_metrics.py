"""Values: what is measured, what is 0, and what is an error because it is not known."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from inference_operator.api.job import Serve
from inference_operator.autoscaling.metrics import METRICS, MetricError, MetricFault, Metrics, Query, Value
from inference_operator.autoscaling.metricsapi.documents import values
from inference_operator.autoscaling.selectors import Selector, parse_selector
from inference_operator.state.load import Recommendation, ScalingMetrics, Why, Workers
from inference_operator.state.objects import Job, Key, PodPhase
from inference_operator.state.store import Store
from tests.builders import a_job, a_load, a_pod

ROUND = 1.0


class Clock:
    """Stands still."""

    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.monotonic()

    def now(self) -> datetime:
        return datetime(2026, 4, 2, 12, tzinfo=UTC)


def scaling_metrics(
    *, p95: float | None = 0.25, ready: int = 2, measured: int = 2, age: float = 0.0, **more: Any
) -> ScalingMetrics:
    workers = Workers(ready=ready, measured=measured, unreachable=ready - measured, queued=7)
    return ScalingMetrics(Clock.seconds - age, a_load(p95, count=30, **more), workers, Recommendation(3, Why.LOAD))


def store_with(job: Job, found: ScalingMetrics | None, *, ready: int = 2) -> Store:
    store = Store()
    store.put_job(job)
    for number in range(1, ready + 1):
        store.put_pod(a_pod(job, number))
    if found is not None:
        store.scaling_metrics[job.uid] = found
    return store


JOB = a_job(serve=Serve(latency_target_milliseconds=100, max_replicas=9), replicas=2)


def ask(store: Store, metric: str = "inference_latency_ms", name: str = "job", **more: Any) -> list[Value]:
    given = {"namespace": "default", "objects": Selector(), "series": Selector(), **more}
    return Metrics(store, Clock(), round_seconds=ROUND).values(Query(name=name, metric=metric, **given))


def refused(store: Store, metric: str = "inference_latency_ms", **more: Any) -> tuple[MetricFault, str]:
    with pytest.raises(MetricError) as caught:
        ask(store, metric, **more)
    return caught.value.fault, str(caught.value)


@pytest.mark.parametrize(
    ("metric", "milli"),
    [
        ("inference_latency_ms", 250_000),
        ("inference_latency_p99_ms", 300_000),
        ("inference_queue_depth", 7_000),
        ("inference_requests_per_second", 2_000),
        ("inference_desired_replicas", 3_000),
    ],
)
def test_every_metric_has_its_value(metric: str, milli: int) -> None:
    (value,) = ask(store_with(JOB, scaling_metrics()), metric)

    assert (value.milli, value.window_seconds, value.key) == (milli, 15, JOB.key)
    assert metric in METRICS


def test_latencies_below_a_millisecond_keep_three_digits() -> None:
    (value,) = ask(store_with(JOB, scaling_metrics(p95=0.000_123)))

    assert value.milli == 123


def test_ready_workers_without_requests_have_no_latency() -> None:
    assert [v.milli for v in ask(store_with(JOB, scaling_metrics(p95=None)))] == [0]


def test_a_measure_tells_when_it_was_made_by_our_clock() -> None:
    (value,) = ask(store_with(JOB, scaling_metrics(age=3.0)))

    assert value.time == datetime(2026, 4, 2, 11, 59, 57, tzinfo=UTC)


def test_what_is_not_known_is_an_error() -> None:
    assert refused(store_with(JOB, None)) == (
        MetricFault.UNAVAILABLE,
        "InferenceJob default/job was not measured yet, or does not serve",
    )
    assert "none of the 2 ready workers" in refused(store_with(JOB, scaling_metrics(measured=0)))[1]
    assert "too old" in refused(store_with(JOB, scaling_metrics(age=5.1)))[1]
    assert "is ready and measured yet" in refused(store_with(JOB, scaling_metrics(ready=0, measured=0)))[1]
    assert "is ready and measured yet" in refused(store_with(JOB, scaling_metrics(seconds=0.0)))[1]
    assert len(ask(store_with(JOB, scaling_metrics(age=4.9)))) == 1


def test_what_does_not_exist_is_not_found() -> None:
    store = store_with(JOB, scaling_metrics())

    assert refused(store, name="other") == (MetricFault.NOT_FOUND, "there is no InferenceJob 'other' in 'default'")
    assert refused(store, "cpu")[0] is MetricFault.NOT_FOUND
    assert refused(store, namespace="")[0] is MetricFault.NOT_FOUND


def test_the_recommendation_series_goes_by_the_same_name() -> None:
    store = store_with(JOB, scaling_metrics())
    (recommendation,) = ask(store, series=parse_selector("signal=recommended"))
    (measured,) = ask(store, series=parse_selector("signal=measured"))

    # ceil(149.999 / 100 * 2) = 3, as the HPA computes it.
    assert (recommendation.milli, measured.milli) == (149_999, 250_000)
    assert refused(store, series=parse_selector("signal=x"))[0] is MetricFault.NOT_FOUND


def test_a_job_without_a_target_has_no_recommendation() -> None:
    job = a_job(serve=Serve())
    store = store_with(job, ScalingMetrics(Clock.seconds, a_load(0.1), Workers(2, 2)))

    assert refused(store, series=parse_selector("signal=recommended"))[0] is MetricFault.NOT_FOUND
    assert refused(store, "inference_desired_replicas")[0] is MetricFault.NOT_FOUND
    assert len(ask(store)) == 1


def test_pods_that_leave_count_as_long_as_the_hpa_counts_them() -> None:
    store = store_with(JOB, scaling_metrics())
    store.put_pod(a_pod(JOB, 3, deleting=True))
    store.put_pod(a_pod(JOB, 4, ready=False))
    store.put_pod(a_pod(JOB, 5, phase=PodPhase.PENDING, ready=False))
    (recommendation,) = ask(store, series=parse_selector("signal=recommended"))

    # Three wanted, three counted, two asked for: a moment later one is gone, and until then the HPA is told to wait.
    assert recommendation.milli == 100_000


def test_a_list_has_what_matches_and_is_known() -> None:
    store = store_with(JOB, scaling_metrics())
    for name, labels in (("a", {"team": "x"}), ("b", {"team": "y"}), ("unknown", {"team": "x"})):
        job = a_job(name, serve=True)
        object.__setattr__(job, "labels", labels)
        store.put_job(job)
        if name != "unknown":
            store.scaling_metrics[job.uid] = scaling_metrics()

    assert [v.key.name for v in ask(store, name="*")] == ["a", "b", "job"]
    assert [v.key.name for v in ask(store, name="*", objects=parse_selector("team=x"))] == ["a"]
    assert ask(store, name="*", namespace="other") == []


def test_the_two_versions_spell_differently() -> None:
    (value,) = ask(store_with(JOB, scaling_metrics()))
    new, old = (values(version, [value], parse_selector("signal=measured")) for version in ("v1beta2", "v1beta1"))
    selector = {"matchExpressions": [{"key": "signal", "operator": "In", "values": ["measured"]}]}
    described = {"kind": "InferenceJob", "apiVersion": "inference.myorg/v1", "namespace": "default", "name": "job"}
    common = {"describedObject": described, "timestamp": "2026-04-02T12:00:00Z", "value": "250000m"}

    assert new["apiVersion"] == "custom.metrics.k8s.io/v1beta2"
    assert new["items"] == [{**common, "metric": {"name": "inference_latency_ms", "selector": selector}, "windowSeconds": 15}]
    assert old["items"] == [{**common, "metricName": "inference_latency_ms", "selector": selector, "window": 15}]


def test_workers_that_another_namespace_forges_move_no_recommendation() -> None:
    """The HPA divides by the workers that are ready: forged ones had it take real ones away, or ask for more."""
    store = store_with(JOB, scaling_metrics())
    recommended = parse_selector("signal=recommended")
    before = ask(store, series=recommended)
    for number in range(5, 15):
        store.put_pod(replace(a_pod(JOB, number), key=Key("hostile", f"forged-{number}"), uid=f"forged-{number}"))

    assert ask(store, series=recommended) == before

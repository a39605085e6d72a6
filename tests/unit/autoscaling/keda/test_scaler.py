"""What KEDA is told of a job in every state that it can be in."""

from dataclasses import replace
from typing import Any

import pytest

from inference_operator.api.job import Serve
from inference_operator.autoscaling.keda.questions import Question
from inference_operator.autoscaling.keda.scaler import Scaler
from inference_operator.autoscaling.metrics import MetricError, MetricFault, Metrics
from inference_operator.state.load import Load, Recommendation, ScalingMetrics, Why, Workers
from inference_operator.state.objects import Job, Key, PodPhase
from inference_operator.state.store import Store
from tests.builders import a_job, a_load, a_pod
from tests.unit.autoscaling.test_metrics import ROUND, Clock, scaling_metrics, store_with

QUESTION = Question(Key("default", "job"), "inference_desired_replicas", 1.0)
IDLE = ScalingMetrics(Clock.seconds, Load(seconds=15.0), Workers(1, 1), Recommendation(1, Why.IDLE))


def a_service(*, least: int = 0, replicas: int = 1, **more: Any) -> Job:
    return a_job(serve=Serve(min_replicas=least, max_replicas=9, latency_target_milliseconds=100), replicas=replicas, **more)


def scaler(store: Store) -> Scaler:
    return Scaler(store, Metrics(store, Clock(), round_seconds=ROUND))


def active(store: Store) -> bool:
    return scaler(store).active(QUESTION)


def value(store: Store, **more: Any) -> float:
    return scaler(store).value(replace(QUESTION, **more))


def refused(store: Store, **more: Any) -> list[MetricFault]:
    codes = []
    for ask in (scaler(store).active, scaler(store).value):
        with pytest.raises(MetricError) as caught:
            ask(replace(QUESTION, **more))
        codes.append(caught.value.fault)
    return codes


def test_the_number_is_that_of_custom_metrics() -> None:
    store = store_with(a_service(), scaling_metrics())

    assert value(store) == 3.0
    assert value(store, metric="inference_latency_ms") == 250.0


def test_a_service_that_may_go_to_zero_is_active_while_requests_come() -> None:
    assert active(store_with(a_service(), scaling_metrics()))
    assert not active(store_with(a_service(), IDLE))


@pytest.mark.parametrize(
    "traces",
    [
        {"load": Load(seconds=15.0, arrived=1)},
        {"load": a_load(0.1, count=1)},
        # A request that came before the window and is still computed.
        {"load": Load(seconds=15.0, busy=0.9)},
        {"workers": Workers(1, 1, queued=1)},
    ],
)
def test_any_trace_of_a_request_is_activity(traces: dict[str, Any]) -> None:
    assert active(store_with(a_service(), replace(IDLE, **traces)))


def test_a_service_that_always_keeps_workers_is_always_active() -> None:
    assert active(store_with(a_service(least=2), IDLE))
    # Also when nothing is known of them: that it is to have workers is written in its spec.
    assert active(store_with(a_service(least=2), None))


def test_a_service_at_zero_is_known_to_be_at_rest() -> None:
    store = store_with(a_service(replicas=0), None, ready=0)

    assert not active(store)
    assert value(store) == 0.0
    with pytest.raises(MetricError):
        value(store, metric="inference_latency_ms")


def test_a_service_at_zero_that_is_to_keep_workers_is_woken() -> None:
    store = store_with(a_service(least=2, replicas=0), None, ready=0)

    assert active(store)
    assert value(store) == 2.0


def test_until_its_last_worker_goes_a_service_is_measured() -> None:
    job = a_service(replicas=0)
    store = store_with(job, scaling_metrics(), ready=1)
    assert active(store)
    assert value(store) == 3.0

    store.put_pod(a_pod(job, deleting=True))
    assert not active(store)
    assert value(store) == 0.0


def test_a_worker_that_starts_is_neither_rest_nor_activity() -> None:
    job = a_service(replicas=1)
    store = store_with(job, None, ready=0)
    store.put_pod(a_pod(job, phase=PodPhase.PENDING, ready=False))

    assert refused(store) == [MetricFault.UNAVAILABLE] * 2


def test_what_is_not_known_is_an_error() -> None:
    job = a_service()

    assert refused(store_with(job, None)) == [MetricFault.UNAVAILABLE] * 2
    assert refused(store_with(job, scaling_metrics(measured=0))) == [MetricFault.UNAVAILABLE] * 2
    assert refused(store_with(job, scaling_metrics(age=5.1))) == [MetricFault.UNAVAILABLE] * 2
    assert refused(store_with(job, scaling_metrics()), job=Key("default", "other")) == [MetricFault.NOT_FOUND] * 2
    assert refused(store_with(job, scaling_metrics()), job=Key("other", "job")) == [MetricFault.NOT_FOUND] * 2


def test_what_does_not_serve_is_never_at_rest() -> None:
    assert refused(store_with(a_job(replicas=0), None, ready=0)) == [MetricFault.UNAVAILABLE] * 2
    suspended = a_service(least=2, replicas=1, suspend=True)
    assert refused(store_with(suspended, None, ready=0)) == [MetricFault.UNAVAILABLE] * 2

"""From rounds of telemetry to measures: who counts, what is kept, whom it wakes, and that no clock but ours matters."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from inference_operator.api.conditions import Condition, Reason, Truth
from inference_operator.api.job import Serve
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.autoscaling.controller import Autoscale, bounds_of
from inference_operator.settings import AutoscalingSettings
from inference_operator.state.load import ScalingMetrics, Workers
from inference_operator.state.objects import Job, Key, Pod
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_protocol.messages import TaskState, Telemetry
from inference_protocol.sketch import LatencySketch
from tests.builders import NOW, a_job, a_pod

SERVE = Serve(latency_target_milliseconds=100, max_replicas=8)


class Ticking:
    """A clock that is set."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.monotonic()

    def now(self) -> datetime:
        return NOW


class Bench:
    """An operator's ears: each round is a second."""

    def __init__(self, job: Job | None = None, pods: int = 1) -> None:
        self.clock = Ticking()
        self.woken: list[Request] = []
        self.store = Store()
        self.job = job or a_job(serve=SERVE, replicas=pods)
        self.store.put_job(self.job)
        self.pods = [a_pod(self.job, number) for number in range(1, pods + 1)]
        for pod in self.pods:
            self.store.put_pod(pod)
        self.autoscale = Autoscale(self.store, self.clock, self.woken.append, AutoscalingSettings(), telemetry_seconds=1.0)
        self._told = {pod.uid: LatencySketch() for pod in self.pods}

    def say(self, pod: Pod, *, seconds: float = 0.05, requests: int = 10, **more: Any) -> Telemetry:
        """What a worker has counted after so many more requests."""
        sketch = self._told[pod.uid]
        if requests:
            sketch.record(seconds, weight=requests)
        return Telemetry(
            **{
                "ready": True,
                "draining": False,
                "sketch": dict(sketch.counts),
                "requests_total": sketch.total,
                "busy_seconds": sketch.total * 0.05,
                **more,
            }
        )

    def round(self, answers: Mapping[str, Telemetry | None] | None = None) -> ScalingMetrics:
        self.clock.seconds += 1
        self.autoscale.round(answers if answers is not None else {pod.uid: self.say(pod) for pod in self.pods})
        return self.scaling_metrics

    @property
    def scaling_metrics(self) -> ScalingMetrics:
        return self.store.scaling_metrics[self.job.uid]


def test_rounds_become_a_window() -> None:
    bench = Bench(pods=2)
    for _ in range(6):
        bench.round()

    assert bench.scaling_metrics.workers == Workers(ready=2, measured=2)
    assert (bench.scaling_metrics.load.count, bench.scaling_metrics.load.seconds) == (100, 5.0)
    assert bench.scaling_metrics.load.busy == pytest.approx(1.0)
    assert bench.scaling_metrics.recommendation is not None


def test_the_end_of_a_burst_wakes_its_job_once() -> None:
    """Without it the status keeps what the burst's first second has told."""
    bench = Bench(a_job(serve=True))
    for _ in range(3):
        bench.round()
    bench.woken.clear()
    settled = [bench.round({pod.uid: bench.say(pod, requests=0) for pod in bench.pods}).settled for _ in range(20)]

    assert settled[:3] == [False, True, True] and not settled[-1]
    assert bench.woken == [job_request(bench.job.key)]


def test_the_requests_that_come_as_soon_as_a_worker_is_ready_are_counted() -> None:
    bench = Bench()
    (pod,) = bench.pods
    bench.store.put_pod(replace(pod, ready=False))
    bench.round({pod.uid: bench.say(pod, requests=0, ready=False)})
    bench.store.put_pod(pod)
    bench.round({pod.uid: bench.say(pod, requests=20)})

    assert bench.scaling_metrics.load.count == 20


def test_workers_that_drain_or_warm_up_are_left_out_and_counted() -> None:
    bench = Bench(pods=3)
    draining, cold, well = bench.pods
    said = {
        draining.uid: bench.say(draining, draining=True, ready=False),
        cold.uid: bench.say(cold, ready=False),
        well.uid: bench.say(well, queued=4),
    }

    assert bench.round(said).workers == Workers(ready=3, measured=1, left_out=2, queued=4)


def test_pods_that_are_not_ready_are_not_counted() -> None:
    bench = Bench()
    bench.store.put_pod(a_pod(bench.job, 2, ready=False))

    assert bench.round().workers == Workers(ready=1, measured=1)


def test_one_lost_answer_is_no_outage_and_four_are() -> None:
    bench = Bench()
    bench.round()
    (pod,) = bench.pods
    states = [bench.round({pod.uid: None}).workers for _ in range(4)]

    assert [state.measured for state in states] == [1, 1, 1, 0]
    assert states[-1].unreachable == 1
    # It comes back with all that it did meanwhile.
    assert bench.round().workers.measured == 1


def test_a_worker_that_was_never_reached_is_unreachable() -> None:
    bench = Bench()

    assert bench.round({}).workers == Workers(ready=1, unreachable=1)


def test_the_wall_clock_may_jump() -> None:
    """Times are monotonic and ours: nothing else that tells a time goes in, be it a worker's or the API server's."""
    bench = Bench()
    for _ in range(3):
        bench.round()
    job = replace(bench.job, created=datetime(1970, 1, 1, tzinfo=UTC), resource_version="2")
    bench.store.put_job(job)

    assert bench.round().load.count == 30


def test_memory_of_jobs_that_are_gone_is_let_go() -> None:
    bench = Bench()
    bench.round()
    bench.store.drop_job(bench.job.key, bench.job.uid)
    bench.autoscale.round({})

    assert bench.store.scaling_metrics == {}
    assert (bench.autoscale._memories, bench.autoscale._samples) == ({}, {})


def test_memory_is_bounded_by_the_window() -> None:
    bench = Bench()
    for _ in range(200):
        bench.round()
    history = bench.autoscale._memories[bench.job.uid].history

    assert history is not None and len(history.intervals) <= 26


def test_batch_jobs_are_not_measured() -> None:
    bench = Bench(a_job())
    bench.autoscale.round({})

    assert bench.store.scaling_metrics == {}


def test_a_job_is_woken_for_news_and_no_more() -> None:
    bench = Bench()
    for _ in range(60):
        bench.round()

    # Its first round, its first measure, its first latency.
    assert bench.woken == [job_request(bench.job.key)] * 3


def test_a_job_is_woken_once_it_can_be_told_of_also_without_requests() -> None:
    bench = Bench()
    idle = {pod.uid: bench.say(pod, requests=0) for pod in bench.pods}
    bench.round(idle)
    # One look tells no difference yet.
    assert not bench.scaling_metrics.known
    bench.woken.clear()
    bench.round(idle)

    assert bench.scaling_metrics.known
    assert bench.woken == [job_request(bench.job.key)]


def test_a_job_is_woken_when_its_latency_moves_and_not_each_second() -> None:
    bench = Bench()
    for number in range(40):
        bench.round({pod.uid: bench.say(pod, seconds=0.05 * 1.3**number) for pod in bench.pods})

    assert 5 <= len(bench.woken) <= 10


def test_pods_of_another_namespace_with_our_label_are_nobodys() -> None:
    bench = Bench()
    forged = replace(a_pod(bench.job, 9), key=Key("elsewhere", "forged"))
    bench.store.put_pod(forged)

    assert bench.round().workers.ready == 1


def test_a_job_without_a_target_is_measured_and_gets_no_recommendation() -> None:
    bench = Bench(a_job(serve=Serve()))

    assert bench.round().recommendation is None


@pytest.mark.parametrize(("reason", "capacity"), [(Reason.NO_FREE_CAPACITY, 2), (Reason.NO_NODE_FITS, 2), (Reason.STARTING, None)])
def test_workers_without_a_place_bound_what_is_asked_for(reason: Reason, capacity: int | None) -> None:
    waits = Condition(type="Placed", status=Truth.FALSE, reason=reason.value, message="", last_transition_time=NOW)
    job = a_job(serve=SERVE, replicas=5, status=InferenceJobStatus(conditions=[waits]))
    found = bounds_of(job, 2)

    assert found is not None
    assert (found.capacity, found.asked, found.minimum, found.maximum) == (capacity, 5, 1, 8)


def test_the_minimum_of_an_hpa_is_one() -> None:
    found = bounds_of(a_job(serve=Serve(min_replicas=0, latency_target_milliseconds=1)), 0)

    assert found is not None
    assert (found.minimum, found.maximum) == (1, 1)


def test_a_batch_in_slack_is_told_of_and_its_window_teaches_nothing() -> None:
    bench = Bench()
    task = TaskState("uid-of-batch", 1, "r", "Running")
    rounds = [bench.say(bench.pods[0], seconds=0.07, requests=10) for _ in range(12)]
    learned = [bench.round({bench.pods[0].uid: told}).recommendation for told in rounds][-1]
    other = Bench()
    lent = [other.say(other.pods[0], seconds=0.07, requests=10, tasks=(task,)) for _ in range(12)]
    beside = [other.round({other.pods[0].uid: told}) for told in lent][-1]

    assert learned is not None and learned.learned
    assert beside.workers.lending == 1
    assert beside.recommendation is not None and not beside.recommendation.learned

"""Batches in the slack of services: what both statuses say, when the place is given back, and whose fault an end is."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from inference_operator.api.job import Serve, Slack
from inference_operator.api.job_status import AttemptOutcome, BackgroundTask, EnergySource, SlackPlacement
from inference_operator.jobs.background import background_tasks
from inference_operator.scheduling.types import Assignment, Decision, Explanation, PlacementRequest
from inference_operator.state.load import ScalingMetrics
from inference_operator.state.objects import Job, Pod, PodPhase, PodProblem, Reading
from inference_operator.state.observed import BackgroundWork, Observed
from inference_operator.state.request import job_request
from inference_operator.state.store import Store
from inference_operator.workers.actions import CreatePod, DeletePod, EmitEvent, StartTask, StopTask
from inference_protocol.messages import Progress, TaskState, Telemetry
from inference_protocol.reasons import WorkerReason
from tests.builders import (
    NOW,
    SETTINGS,
    TOKENS,
    a_job,
    a_load,
    a_model,
    a_pod,
    a_profile,
    a_report,
    cost_terms,
    observed,
    placed_on,
    some_scaling_metrics,
    whole,
)
from tests.simulation.cluster import config_of
from tests.unit.scheduling.support import decide, kinds, status_of, wanted
from tests.unit.warmpools.pool_support import a_hosted_job, a_store, a_task

MODEL = replace(a_model(), status=replace(a_model().status, profiles=[a_profile(items_per_second=2.0)]))
SERVICE = a_job("web", model="m", serve=Serve(latency_target_milliseconds=50, slack=Slack(claims=["data"])))
WORKER = replace(a_pod(SERVICE, model=MODEL), claims=("data",))
PLACE = SlackPlacement(service="web", share=0.25)


def a_batch(**job: Any) -> Job:
    """A batch that was given to the service's worker, an hour ago unless said otherwise."""
    ago = job.pop("ago", 30.0)
    found = a_hosted_job(MODEL, WORKER, **job)
    assert found.status.placement is not None
    placed = replace(found.status.placement, slack=PLACE, decision_time=whole(NOW - timedelta(seconds=ago)))
    return replace(found, status=replace(found.status, placement=placed))


BATCH = a_batch()


def a_world(batch: Job = BATCH, task: TaskState | None = None, *, metrics: ScalingMetrics | None = None, **worker: Any) -> Store:
    store = a_store(MODEL, replace(WORKER, **worker))
    for job in (SERVICE, batch):
        store.put_job(job)
    store.scaling_metrics[SERVICE.uid] = metrics if metrics is not None else some_scaling_metrics(a_load(0.01))
    if task is not None:
        store.task_index.put_task(task, NOW)
        tasks = (task,) if task.report is None else ()
        store.put_reading(WORKER, Reading(Telemetry(ready=True, draining=False, tasks=tasks), NOW))
    return store


def at(store: Store, job: Job) -> Observed:
    found = store.observe(job.key)
    assert found is not None
    return found


def running(batch: Job = BATCH, *, done: int = 4, runs: int = 4, seconds: float = 3.0) -> TaskState:
    told = a_task(batch, MODEL)
    return msgspec.structs.replace(told, progress=Progress(total=10, completed=done), runs=runs, computed_seconds=seconds)


def lent(request: PlacementRequest) -> Decision:
    """The scheduler gives the service's worker."""
    place = Assignment("cpu", "node-1", WORKER.key, PLACE)
    return Decision(request.uid, request.revision, (place,), explanations=(Explanation(cost_terms(seconds=40, estimated=False)),))


# Placed.


def test_a_batch_that_is_placed_in_slack_says_whose_it_is() -> None:
    batch = a_job("batch", model="m", items=10)
    done = decide(at(a_world(batch), batch), lent)
    status = status_of(done)

    assert status.placement is not None and status.placement.slack == PLACE
    assert (status.placement.pod, kinds(done)) == (WORKER.key.name, ("WriteStatus",))
    (event,) = [action for action in done.actions if isinstance(action, EmitEvent)]
    assert event.message == "Placed attempt 1: cpu on node node-1, in the slack of service web"


def test_a_firm_batch_in_slack_is_refused_only_what_no_worker_could_answer() -> None:
    """A batch that is too much for its share of the time gives its place back; it need not fail."""
    firm = a_batch(deadline_in=60.0, firm=True, ago=0.0)
    (start,) = [action for action in decide(at(a_world(firm), firm)).actions if isinstance(action, StartTask)]

    # A minute at two items a second.
    assert start.order.task.items_limit is not None
    assert 119 <= start.order.task.items_limit <= 121


def test_a_services_worker_knows_the_digest_of_its_own_token_where_it_lends_and_only_there() -> None:
    plain = a_job("web", model="m", serve=Serve(latency_target_milliseconds=50))
    for service, told in ((SERVICE, True), (plain, False)):
        done = decide(observed(service, model=MODEL), lambda request: placed_on(request, "node-1"))
        (pod,) = [action for action in done.actions if isinstance(action, CreatePod)]
        config = config_of(pod.manifest)

        assert config.task_token_digest == (TOKENS.digest(pod.assumed.key) if told else "")
        # Half of the target is what background runs may use up.
        assert config.latency_target_seconds == (0.025 if told else None)


# Given back.


OFF_TARGET = some_scaling_metrics(a_load(0.2))


def test_a_batch_gives_its_place_back_once_its_service_is_off_its_target() -> None:
    seen = at(a_world(task=running(), metrics=OFF_TARGET), BATCH)
    status = status_of(decide(seen))

    assert status.last_attempt is not None
    assert (status.last_attempt.outcome, status.last_attempt.reason) == (AttemptOutcome.DISRUPTED, "Preempted")
    assert status.last_attempt.message is not None
    assert status.last_attempt.message.startswith("service web needs its workers itself: its p95 latency is 200 ms")
    assert (status.preemptions, status.failed_attempts) == (1, 0)
    assert status.deadline is None
    # Of its own namespace, which `maxPreemptionsPerHour` doesn't count.
    assert status.last_preemption is not None and status.last_preemption.namespace == BATCH.key.namespace


def test_its_task_is_stopped_then_and_the_next_attempt_waits_for_its_end() -> None:
    store = a_world(task=running(), metrics=OFF_TARGET)
    given_back = replace(BATCH, status=status_of(decide(at(store, BATCH))), resource_version="2")
    store.put_job(given_back)
    seen = at(store, given_back)

    (stop,) = [action for action in decide(seen).actions if isinstance(action, StopTask)]
    assert (stop.warm_worker, stop.uid, stop.attempt) == (WORKER.key, BATCH.uid, 1)
    assert wanted(seen) is None
    store.task_index.put_task(a_task(BATCH, MODEL, report=a_report("Drained", completed=4)), NOW)
    request = wanted(at(store, given_back))
    assert request is not None and request.slack is not None


def test_on_target_a_batch_keeps_its_place_and_looks_again_soon() -> None:
    done = decide(at(a_world(task=running()), BATCH))

    assert done.recheck is not None and (done.recheck - NOW).total_seconds() == 5
    assert not any(isinstance(action, StopTask) for action in done.actions)


@pytest.mark.parametrize(("ago", "done", "moves"), [(70.0, 0, True), (50.0, 0, False), (70.0, 1, False)])
def test_a_batch_that_finds_no_moment_to_run_goes_elsewhere(ago: float, done: int, *, moves: bool) -> None:
    batch = a_batch(ago=ago)
    told = decide(at(a_world(batch, running(batch, done=done)), batch))

    assert any("no moment for a run" in str(action) for action in told.actions) == moves


LATE = "in slack, after the deadline, and a worker of its own is in time"


@pytest.mark.parametrize(
    ("ago", "done", "deadline_in", "moves"),
    [
        # Four of ten items took thirty seconds: the others take 45 more, or 23 with luck; a worker of its own would take seven.
        (30.0, 4, 20.0, True),
        (30.0, 4, 30.0, False),
        (30.0, 4, 90.0, False),
        # Certain of nothing between 9 and 15 seconds more, but there is no time left to see more.
        (60.0, 8, 14.0, True),
        # Three seconds say nothing, whatever they foretell.
        (3.0, 1, 20.0, False),
        (3.0, 1, 12.0, False),
        # A worker of its own would be late too.
        (20.0, 8, 4.5, False),
    ],
)
def test_a_batch_that_would_be_late_in_slack_goes_where_it_is_in_time(
    ago: float, done: int, deadline_in: float, *, moves: bool
) -> None:
    batch = a_batch(deadline_in=deadline_in, ago=ago)
    told = decide(at(a_world(batch, running(batch, done=done)), batch))

    assert (LATE in str(status_of(told).last_attempt)) is moves


# Ends.


def ended(**worker: Any) -> Observed:
    return at(a_world(task=running(), **{"phase": PodPhase.FAILED, "exit_code": 1, "ready": False, **worker}), BATCH)


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ({"problem": PodProblem("OOMKilled", "")}, "WorkerLost"),
        ({"report": a_report("Failed", reason=WorkerReason.INTERNAL)}, "WorkerLost"),
        ({"problem": PodProblem("Evicted", "the node is low on memory")}, "Terminated"),
        ({"report": a_report("Drained"), "phase": PodPhase.SUCCEEDED}, "Terminated"),
        ({"deleting": True, "report": a_report("Failed", reason=WorkerReason.INTERNAL)}, "Terminated"),
    ],
    ids=["out of memory", "failed", "ended by its kubelet", "drained", "failed while it drained"],
)
def test_the_end_of_a_services_worker_is_no_failure_of_the_batch_behind_it(worker: dict[str, Any], reason: str) -> None:
    status = status_of(decide(ended(**worker)))

    assert status.last_attempt is not None
    assert (status.last_attempt.outcome, status.last_attempt.reason) == (AttemptOutcome.DISRUPTED, reason)
    assert status.failed_attempts == 0


def test_a_task_that_fails_by_itself_is_a_failed_attempt_there_too() -> None:
    failed = a_task(BATCH, MODEL, report=a_report("Failed", reason=WorkerReason.INPUT_INVALID))

    assert status_of(decide(at(a_world(task=failed), BATCH))).failed_attempts == 1


def test_a_batch_in_slack_costs_what_its_runs_took_and_not_the_services_device() -> None:
    told = msgspec.structs.replace(
        a_task(BATCH, MODEL, report=a_report()), ran_seconds=28.0, ended_seconds=0.0, computed_seconds=7.0
    )
    energy = status_of(decide(at(a_world(task=told), BATCH))).energy

    assert energy is not None
    assert (energy.joules, energy.source) == (7.0 * SETTINGS.accelerators["cpu"].watts_busy, EnergySource.MODELLED)


# What the service says.


def test_a_service_tells_whom_it_lends_its_workers_and_what_that_costs_it() -> None:
    status = status_of(decide(at(a_world(task=running(seconds=7.5)), SERVICE)))

    assert status.background_tasks is not None
    (told,) = status.background_tasks
    assert (told.job, told.pod, told.runs) == (BATCH.key.name, WORKER.key.name, 4)
    assert told.device_share == pytest.approx(7.5 / 30.65, abs=0.01)
    assert status_of(decide(at(a_world(a_job("other", model="m", items=1)), SERVICE))).background_tasks is None


@pytest.mark.parametrize(("seconds", "ago", "written"), [(30.0, 60, True), (24.0, 60, False), (30.0, 5, False), (24.0, 5, False)])
def test_a_share_is_written_when_it_has_moved_and_not_all_the_time(seconds: float, ago: float, *, written: bool) -> None:
    told = BackgroundTask(
        job="batch", pod=WORKER.key.name, runs=9, device_share=0.2, observed_time=whole(NOW - timedelta(seconds=ago))
    )
    before = replace(SERVICE, status=replace(SERVICE.status, background_tasks=[told]))
    work = BackgroundWork(BATCH.key._replace(name="batch"), WORKER.key, NOW - timedelta(seconds=100), 50, seconds)
    seen = observed(before, WORKER, background=(work,))

    assert (background_tasks(seen, NOW) != [told]) == written


@pytest.mark.parametrize("spec", [{"suspend": True}, {"serve": Serve(until=whole(NOW), latency_target_milliseconds=50)}], ids=str)
def test_a_service_that_is_over_lends_nothing(spec: dict[str, Any]) -> None:
    store = a_world(task=running())
    told = status_of(decide(at(store, SERVICE))).background_tasks
    assert told is not None and SERVICE.spec is not None
    over = replace(
        SERVICE, spec=replace(SERVICE.spec, **spec), status=replace(SERVICE.status, background_tasks=told), resource_version="2"
    )
    store.put_job(over)

    assert status_of(decide(at(store, over))).background_tasks is None


def test_of_two_workers_the_one_without_a_batch_goes() -> None:
    first, second = (a_pod(SERVICE, number, model=MODEL) for number in (1, 2))
    work = BackgroundWork(BATCH.key, second.key, NOW)
    for background, gone in (((), second), ((work,), first)):
        done = decide(observed(SERVICE, first, second, model=MODEL, background=background))
        assert [action.key for action in done.actions if isinstance(action, DeletePod)] == [gone.key]


def test_a_task_that_nobody_waits_for_is_stopped_on_a_services_worker() -> None:
    store = a_world(task=running())
    store.drop_job(BATCH.key, BATCH.uid)
    store.put_reading(WORKER, Reading(Telemetry(ready=True, draining=False, tasks=(running(),)), NOW))
    stops = [action for action in decide(at(store, SERVICE)).actions if isinstance(action, StopTask)]

    assert [(one.warm_worker, one.uid, one.attempt) for one in stops] == [(WORKER.key, BATCH.uid, 1)]


def test_whose_slack_it_is_follows_from_the_pod_that_runs_the_batch() -> None:
    lent_by = at(a_world(), BATCH).lent_by

    assert lent_by is not None
    assert (lent_by.service, lent_by.target_seconds) == (SERVICE.key, 0.05)
    assert job_request(lent_by.service) == job_request(SERVICE.key)


def test_a_worker_that_is_made_for_a_batch_is_nobody_elses() -> None:
    own = a_job("own", model="m", items=10)
    pod: Pod = a_pod(own, model=MODEL)
    store = a_store(MODEL, pod)
    store.put_job(own)

    assert at(store, own).hosted is None and not store.task_index.has_task(pod)

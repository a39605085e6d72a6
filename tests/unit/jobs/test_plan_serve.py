"""Serving jobs: what a plan must get right beyond the table of situations."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job import DeadlinePolicy, Serve
from inference_operator.api.job_status import InferenceJobStatus, LatencyStatus, ModelStatus
from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.state.objects import PodPhase
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import ApplyBudget, CreatePod, CreateService, DeletePod, EmitEvent, WriteModelStatus
from tests.builders import (
    DIGEST,
    NOW,
    OTHER_DIGEST,
    SETTINGS,
    a_create_failure,
    a_fact,
    a_job,
    a_load,
    a_model,
    a_pod,
    a_profile,
    a_reading,
    a_report,
    observed,
    some_scaling_metrics,
    whole,
)
from tests.unit.jobs.situation import LOOKED, full, on
from tests.unit.scheduling.support import Scheduler, after, decide, in_seconds, kinds, settled, status_of

PENDING, FAILED = PodPhase.PENDING, PodPhase.FAILED


def deleted(seen: Observed) -> list[int]:
    """The numbers of the workers that a plan deletes."""
    by_uid = {pod.uid: pod.worker.number for pod in seen.pods if pod.worker is not None}
    return [by_uid[a.uid] for a in decide(seen, full()).actions if isinstance(a, DeletePod)]


def least(seen: Observed) -> list[int]:
    """How many workers the budget that a plan writes keeps."""
    return [a.manifest["spec"]["minAvailable"] for a in decide(seen, full()).actions if isinstance(a, ApplyBudget)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_whose_workers_are_all_silent_is_not_ready(workers: int) -> None:
    """It said Ready=True with 0 workers that answer, and 1 of 1 ready."""
    job = a_job(serve=True, replicas=workers, status=replace(LOOKED, ready_time=NOW))
    pods = [a_pod(job, number, created_ago=600) for number in range(1, workers + 1)]
    seen = replace(observed(job, *pods), silent=frozenset(pod.uid for pod in pods), has_service=True)
    status = status_of(decide(seen, full()))

    ready = next(one for one in status.conditions if one.type == "Ready")
    assert (ready.status, status.ready_replicas, status.phase) == ("False", 0, "Waiting")
    assert ready.message.startswith(f"0/{workers} workers answer")


def test_a_silent_worker_without_room_for_a_successor_is_told_with_what_is_in_the_way() -> None:
    """It said Serving, and 2/2 workers ready, for as long as the control plane knew nothing of the dead node."""
    job = a_job(serve=True, replicas=2, status=replace(LOOKED, ready_time=NOW))
    dead, other = a_pod(job, 1, created_ago=600), a_pod(job, 2, node="node-2", created_ago=600)
    status = status_of(decide(replace(observed(job, dead, other), silent=frozenset({dead.uid}), has_service=True), full()))

    ready = next(one for one in status.conditions if one.type == "Ready")
    assert (ready.status, ready.reason, status.ready_replicas) == ("True", "NoFreeCapacity", 1)
    assert ready.message.startswith("1/2 workers answer")


def test_a_worker_that_falls_silent_is_not_among_those_that_answer() -> None:
    """The message said that two of two answer, and then that one of them doesn't."""
    two = replace(TWO, status=replace(LOOKED, ready_time=NOW))
    dead, other, new = a_pod(two, 1), a_pod(two, 2, node="b"), a_pod(two, 3, node="b", phase=PENDING)
    seen = replace(observed(two, dead, other, new), silent=frozenset({dead.uid}))

    ready = next(c for c in after(seen, decide(seen, on("b"))).job.status.conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("True", "AddingWorkers")
    assert ready.message.startswith("1/2 workers answer; ") and ready.message.endswith(f"; worker {dead.key.name} does not answer")


THREE = a_job(serve=True, replicas=3, status=LOOKED)


def test_a_worker_that_has_a_place_nowhere_holds_no_drain_back() -> None:
    assert least(observed(THREE, a_pod(THREE, 1), a_pod(THREE, 2))) == [1]
    assert least(observed(THREE, a_pod(THREE, 1))) == [1]


def test_a_roll_out_without_room_keeps_its_old_workers_in_the_budget() -> None:
    seen = observed(THREE, *(a_pod(THREE, number, revision="old") for number in (1, 2, 3)))

    assert least(replace(seen, budget=None)) == [2]


# Roll-outs without spare room: one old worker at a time makes room, and never before its successor answers.

TWO = a_job(serve=True, replicas=2, status=LOOKED)


def test_without_room_one_old_worker_makes_room() -> None:
    assert deleted(observed(TWO, a_pod(TWO, 1, revision="old"), a_pod(TWO, 2, revision="old"))) == [1]


def test_no_other_old_worker_goes_while_one_is_leaving() -> None:
    seen = observed(TWO, a_pod(TWO, 1, revision="old", deleting=True), a_pod(TWO, 2, revision="old"))

    assert deleted(seen) == []


def test_no_other_old_worker_goes_before_the_new_one_answers() -> None:
    seen = observed(TWO, a_pod(TWO, 2, revision="old"), a_pod(TWO, 3, phase=PENDING))

    assert deleted(seen) == []


def test_the_next_old_worker_goes_once_the_new_one_answers() -> None:
    seen = observed(TWO, a_pod(TWO, 2, revision="old"), a_pod(TWO, 3))

    assert deleted(seen) == [2]


def test_a_broken_new_revision_takes_no_further_old_worker() -> None:
    broken = a_pod(TWO, 3, phase=FAILED, report=a_report("Failed"), ended_ago=1)

    assert deleted(observed(TWO, a_pod(TWO, 2, revision="old"), broken)) == []


def test_the_model_is_the_one_that_answers_until_the_next_one_does() -> None:
    told = ModelStatus(name="net", version="1", digest=OTHER_DIGEST, verified=True)
    two = replace(TWO, status=replace(LOOKED, model=told))
    starting = observed(two, a_pod(two, 1, revision="old"), a_pod(two, 2, revision="old"), a_pod(two, 3, phase=PENDING))
    new = a_pod(two, 3)
    loaded = observed(two, a_pod(two, 2, revision="old"), new, readings={new.uid: a_reading(model=a_fact())})

    assert status_of(decide(starting, on("a", "b")), starting).model == told
    model = status_of(decide(loaded, on("a", "b")), loaded).model
    assert model is not None and model.digest == DIGEST


def test_a_service_that_answered_once_is_ready_while_a_worker_answers() -> None:
    two = replace(TWO, status=replace(LOOKED, ready_time=NOW))

    seen = after(observed(two, a_pod(two, 1)), decide(observed(two, a_pod(two, 1)), on("a", "b")))

    ready = next(c for c in seen.job.status.conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("True", "AddingWorkers") and ready.message.startswith("1/2 workers answer")


THREE = a_job(serve=True, replicas=3, status=LOOKED)


def test_a_roll_out_ends_where_there_is_room_for_fewer_than_are_wanted() -> None:
    old = a_pod(THREE, 1, revision="old"), a_pod(THREE, 2, revision="old")

    assert deleted(observed(THREE, *old)) == [1]
    assert deleted(observed(THREE, replace(old[0], deleting=True), old[1])) == [], "one at a time"
    assert deleted(observed(THREE, old[1])) == [], "the last one that answers stays"
    assert deleted(observed(THREE, old[1], a_pod(THREE, 3))) == [2]


def test_a_broken_new_revision_takes_no_old_worker_where_room_is_short() -> None:
    broken = a_pod(THREE, 3, phase=FAILED, report=a_report("Failed"), ended_ago=1)

    assert deleted(observed(THREE, a_pod(THREE, 1, revision="old"), a_pod(THREE, 2, revision="old"), broken)) == []


def test_a_roll_out_that_fits_no_node_leaves_the_old_workers() -> None:
    seen = observed(TWO, a_pod(TWO, 1, revision="old"), a_pod(TWO, 2, revision="old"))
    actions = decide(seen, full(Reason.NO_NODE_FITS)).actions

    assert not any(isinstance(action, DeletePod) for action in actions)


# Before the scheduler has answered.


def test_what_needs_no_place_does_not_wait_for_one_and_nothing_is_written() -> None:
    lost = a_pod(TWO, 1, node="node-9")
    decided = decide(replace(observed(TWO, lost, a_pod(TWO, 2), lost=[lost]), has_service=False))

    assert [type(action) for action in decided.actions] == [CreateService, DeletePod]


def test_a_firm_deadline_that_has_passed_ends_a_service_without_asking_for_a_place() -> None:
    job = a_job(serve=True, deadline=NOW, deadline_policy=DeadlinePolicy.FIRM)

    status = status_of(decide(observed(job, a_pod(job, 1, ready=False), a_pod(job, 2, phase=FAILED, report=a_report("Failed")))))
    assert status.reason == "DeadlineExceeded"


# What a worker says of itself.


def test_why_a_worker_lost_ready_is_told_in_its_own_words() -> None:
    pod = a_pod(TWO, 1, ready=False)
    status = status_of(decide(observed(TWO, pod, a_pod(TWO, 2), readings={pod.uid: a_reading(problem="Triton is away")})))

    ready = next(c for c in status.conditions if c.type == "Ready")
    assert (ready.reason, ready.message) == ("BackendUnreachable", "1/2 workers answer; Triton is away")


def test_a_problem_that_is_over_is_not_told() -> None:
    pod = a_pod(TWO, 1)
    status = status_of(decide(observed(TWO, pod, a_pod(TWO, 2), readings={pod.uid: a_reading(problem="Triton is away")})))

    assert next(c for c in status.conditions if c.type == "Ready").reason == "Serving"


# Numbers.


@pytest.mark.parametrize("scheduler", [on("node-2"), full(), None], ids=["there is room elsewhere", "there is none", "it is whole"])
def test_that_a_node_is_out_of_reach_is_said_for_as_long_as_it_is(scheduler: Scheduler | None) -> None:
    job = a_job(serve=Serve(min_replicas=1), status=LOOKED)
    lost = a_pod(job, 1, node="node-9")
    others = () if scheduler is not None else (a_pod(job, 2),)
    status = status_of(decide(observed(job, lost, *others, lost=[lost]), scheduler))

    assert [c.message for c in status.conditions if c.type == "Ready" and "; node node-9 is out of reach" in c.message]


def test_only_what_is_missing_is_created() -> None:
    seen = observed(TWO, a_pod(TWO, 1))
    created = [a for a in decide(seen, on("a", "b", "c")).actions if isinstance(a, CreatePod)]

    assert [a.assumed.worker.number for a in created if a.assumed.worker is not None] == [2]


def test_ended_workers_are_cleared_away_but_for_the_newest_while_none_answers() -> None:
    ended = [a_pod(TWO, n, phase=FAILED, report=a_report("Failed"), ended_ago=60) for n in (1, 2, 3)]
    starting = decide(observed(TWO, *ended, a_pod(TWO, 4, ready=False), a_pod(TWO, 5, ready=False)))
    answering = decide(observed(TWO, *ended, a_pod(TWO, 4), a_pod(TWO, 5)))

    assert [a.uid for a in starting.actions if isinstance(a, DeletePod)] == [ended[0].uid, ended[1].uid]
    assert [a.uid for a in answering.actions if isinstance(a, DeletePod)] == [pod.uid for pod in ended]


def test_the_scale_subresource_finds_its_numbers() -> None:
    status = status_of(decide(observed(TWO, a_pod(TWO, 1), a_pod(TWO, 2, phase=PENDING))))

    assert (status.replicas, status.ready_replicas) == (2, 1)
    assert status.selector == f"inference.myorg/job-uid={TWO.uid}"
    assert status.endpoint == "http://job.default.svc:8000"


# Deadline and end.


def test_the_first_time_that_all_answer_is_kept() -> None:
    job = a_job(serve=True, deadline_in=60, status=LOOKED)
    seen = settled(observed(job, a_pod(job)))

    later = decide(replace(seen, pods=(a_pod(job, phase=PENDING),)), now=in_seconds(90))

    assert seen.job.status.ready_time == whole(NOW)
    assert status_of(later).ready_time == whole(NOW)
    assert status_of(later).deadline == seen.job.status.deadline


def test_a_firm_job_that_is_scaled_to_zero_does_not_fail_at_its_deadline() -> None:
    job = a_job(serve=Serve(min_replicas=0), replicas=0, deadline_in=10, firm=True, status=replace(LOOKED, start_time=NOW))
    seen = settled(observed(job))

    assert status_of(decide(seen, now=in_seconds(11)), seen).phase != "Failed"


def an_ended_job(**spec: Any) -> Observed:
    job = a_job(serve=Serve(until=whole(NOW)), status=replace(LOOKED, ready_time=whole(NOW - timedelta(hours=10))), **spec)
    seen = observed(job, a_pod(job))
    return after(seen, decide(seen))


def test_a_job_that_has_ended_has_no_workers() -> None:
    status = an_ended_job().job.status

    assert (status.replicas, status.ready_replicas) == (0, 0)


def test_time_to_live_counts_from_the_end_of_serving() -> None:
    seen = an_ended_job(ttl_seconds_after_finished=600)

    assert "DeleteJob" not in kinds(decide(seen))


def test_a_service_ends_at_its_end_of_serving_and_not_a_look_later() -> None:
    """The look that `until` asks for comes at that very instant, and none after it would be asked for."""
    seen = observed(a_job(serve=Serve(until=NOW), status=LOOKED))

    assert status_of(decide(seen)).phase == "Succeeded"


# Measurements.


def measured(rate: float) -> Observed:
    job = a_job(model="m", serve=True, status=LOOKED)
    model = a_model(profiles=[a_profile("cpu", items_per_second=100.0)])
    pod = a_pod(job, model=model)
    return observed(job, pod, model=model, readings={pod.uid: a_reading(model=a_fact(items_per_second=rate))})


def test_one_measurement_is_learned_once() -> None:
    seen = measured(200.0)
    first = decide(seen)
    assert any(isinstance(a, WriteModelStatus) for a in first.actions)

    assert not any(isinstance(a, WriteModelStatus) for a in decide(after(seen, first)).actions)


def test_a_measurement_that_says_nothing_new_is_not_written() -> None:
    assert not any(isinstance(a, WriteModelStatus) for a in decide(measured(104.0)).actions)


def with_latency(before: LatencyStatus | None, p95: float, *, target: int | None = None) -> LatencyStatus | None:
    job = a_job(serve=Serve(latency_target_milliseconds=target), status=replace(LOOKED, latency=before))
    seen = observed(job, a_pod(job), scaling_metrics=some_scaling_metrics(a_load(p95 / 1e3)))
    return status_of(decide(seen), seen).latency


def known_latency(p95: float, *, ago: float, count: int = 1) -> LatencyStatus:
    return LatencyStatus(p50=1.0, p95=p95, p99=99.0, count=count, observed_time=whole(NOW - timedelta(seconds=ago)))


def test_latency_is_written_when_it_has_moved_and_not_too_often() -> None:
    fresh = with_latency(None, 10.0)
    assert fresh is not None
    assert (fresh.count, fresh.p95, fresh.window_seconds) == (100, 10.0, 15)

    assert with_latency(known_latency(20.0, ago=60), 10.0) == fresh
    recent, near = known_latency(20.0, ago=5), known_latency(11.0, ago=60)
    assert with_latency(recent, 10.0) == recent
    assert with_latency(near, 10.0) == near


def test_latency_is_written_when_it_crosses_the_target() -> None:
    near = known_latency(11.0, ago=60)

    assert with_latency(near, 9.5, target=10) == with_latency(None, 9.5)
    assert with_latency(near, 10.5, target=10) == near


def a_burst_is_over(before: LatencyStatus | None, count: int) -> LatencyStatus | None:
    job = a_job(serve=True, status=replace(LOOKED, latency=before))
    seen = observed(job, a_pod(job), scaling_metrics=some_scaling_metrics(a_load(0.01, count=count), settled=True))
    return status_of(decide(seen), seen).latency


def test_a_burst_that_is_over_is_told_with_all_its_requests() -> None:
    """Its first second was told, and nothing after it, since the percentile had not moved."""
    begun = known_latency(10.0, ago=3, count=4)
    told = a_burst_is_over(begun, 20)

    assert told is not None and told.count == 20
    # What then leaves the window takes nothing back.
    assert a_burst_is_over(told, 7) == told
    assert a_burst_is_over(known_latency(10.0, ago=30, count=50), 20) == told


def test_a_burst_is_told_for_a_while_after_its_end_and_then_forgotten() -> None:
    before = known_latency(11.0, ago=20)
    job = a_job(serve=True, status=replace(LOOKED, latency=before))
    seen = observed(job, a_pod(job), scaling_metrics=some_scaling_metrics(a_load(None)))
    plan = decide(seen)

    assert status_of(plan, seen).latency == before
    assert plan.recheck == before.observed_time + timedelta(seconds=60)


def test_a_window_without_requests_has_no_latency_after_a_while() -> None:
    before = known_latency(11.0, ago=60)
    job = a_job(serve=True, status=replace(LOOKED, latency=before))
    seen = observed(job, a_pod(job), scaling_metrics=some_scaling_metrics(a_load(None)))

    assert status_of(decide(seen), seen).latency is None


def test_status_of_a_suspended_job_has_no_workers() -> None:
    job = a_job(serve=True, suspend=True, status=InferenceJobStatus(observed_generation=1, replicas=2, ready_replicas=2))
    status = status_of(decide(observed(job, a_pod(job))))

    assert (status.replicas, status.ready_replicas, status.phase) == (0, 0, "Suspended")


def test_a_service_is_ready_when_the_slowest_of_the_workers_that_still_start_is() -> None:
    job = a_job(serve=True, replicas=3, deadline_in=600, status=LOOKED)
    running = a_pod(job, 1, seconds=500, created_ago=60)
    starting = [a_pod(job, number, phase=PENDING, seconds=seconds, created_ago=0) for number, seconds in ((2, 20), (3, 40))]
    deadline = status_of(decide(observed(job, running, *starting))).deadline

    assert deadline is not None and deadline.estimated_completion_time == whole(NOW) + timedelta(seconds=40)


def test_a_worker_is_told_to_be_placed_though_the_next_one_was_refused() -> None:
    job = a_job(serve=True, replicas=2, status=LOOKED)
    seen = replace(observed(job, a_pod(job, 1, phase=PENDING)), create_failure=a_create_failure())
    told = [action.reason for action in decide(seen).actions if isinstance(action, EmitEvent)]

    assert told == ["Placed"]
    assert not [a for a in decide(settled(seen)).actions if isinstance(a, EmitEvent)]


@pytest.mark.parametrize(
    ("answering", "seconds", "counted"),
    [([5], 61, 0), ([5], 59, 3), ([3], 61, 3), ([], 0, 3)],
    ids=["long", "young", "older", "none"],
)
def test_failures_are_counted_until_a_later_worker_has_answered_for_a_while(
    answering: list[int], seconds: float, counted: int
) -> None:
    job = a_job(serve=True, replicas=1, status=replace(LOOKED, failed_attempts=2, attempts=3))
    broken = a_pod(job, 4, phase=FAILED, report=a_report("Failed"), ended_ago=1)
    seen = observed(job, broken, *(a_pod(job, number, created_ago=seconds) for number in answering))

    status = status_of(decide(seen))
    assert status.failed_attempts == counted
    assert not counted or (status.last_attempt is not None and status.last_attempt.end_time == whole(NOW - timedelta(seconds=1)))


def test_an_edit_of_the_deadline_changes_no_slack_of_a_service_that_was_ready() -> None:
    """It printed the time between its first readiness and a deadline that came after it."""
    job = a_job(serve=True, deadline_in=60)
    seen = observed(job, a_pod(job))
    ready = after(seen, decide(seen)).job.status
    edited = replace(a_job(serve=True, deadline_in=9000), status=ready, generation=2)
    seen = observed(edited, a_pod(edited))

    assert ready.deadline is not None and ready.deadline.outlook == "Met"
    assert status_of(decide(seen), seen).deadline == ready.deadline


def test_a_roll_out_under_a_cap_of_the_namespace_does_not_wait_for_ever() -> None:
    """The cap has no room for a successor beside the old workers, as a full node has none."""
    seen = observed(TWO, a_pod(TWO, 1, revision="old"), a_pod(TWO, 2, revision="old"))
    capped, fair = full(Reason.NAMESPACE_CAPPED), full(Reason.FAIR_SHARE)

    for scheduler, who in ((capped, "no cap of its namespace"), (fair, "no node")):
        (gone,) = [a for a in decide(seen, scheduler).actions if isinstance(a, DeletePod)]
        assert gone.why == f"makes room for its successor: {who} has room for both"


def test_an_old_worker_of_a_class_that_is_not_capped_makes_no_room_in_vain() -> None:
    two = a_job(serve=True, replicas=2, accelerator="gpu", status=LOOKED)
    seen = observed(two, *[a_pod(two, number, revision="old", accelerator="cpu") for number in (1, 2)])
    of_all = msgspec.structs.replace(SETTINGS, namespace_limits=NamespaceLimits(default=Limits(max_replicas=2)))

    assert not [a for a in decide(seen, full(Reason.NAMESPACE_CAPPED)).actions if isinstance(a, DeletePod)]
    assert [a for a in decide(seen, full(Reason.NAMESPACE_CAPPED), settings=of_all).actions if isinstance(a, DeletePod)]


def test_a_headless_service_is_made_beside_the_other_once() -> None:
    job = a_job(serve=Serve(headless=True))
    made = [
        a.manifest["metadata"]["name"]
        for a in decide(replace(observed(job), has_service=False)).actions
        if isinstance(a, CreateService)
    ]

    assert made == ["job", "job-headless"]
    there = decide(replace(observed(job), has_headless=True)).actions
    assert not any(isinstance(action, CreateService) for action in there)

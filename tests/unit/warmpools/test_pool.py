"""A warm pool: as many workers as can be used, within its bounds; which of them go, and when."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend
from inference_operator.api.model import WarmPoolStatus
from inference_operator.scheduling.types import PoolDemand, WarmWorker
from inference_operator.scheduling.warm_workers import warm_timelines
from inference_operator.state.objects import Model, Pod, PodPhase, PodProblem
from inference_operator.state.observed import PoolObserved
from inference_operator.warmpools.places import warm_workers
from inference_operator.warmpools.pool import plan_pool, pool_placement_request
from inference_operator.warmpools.pool_state import pool_state
from inference_operator.workers.actions import CreatePod, DeletePod, Plan, StopTask, WriteModelStatus
from inference_operator.workers.attempts import PERMANENT_RETRY_SECONDS, SETTLED_SECONDS
from inference_protocol.messages import CONFIG_VARIABLE, WorkerConfig
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, SETTINGS, TOKENS, a_create_failure, a_job, a_profile, a_report, no_room, whole
from tests.unit.scheduling.support import created_pod, in_seconds, kinds
from tests.unit.warmpools.pool_support import (
    WITH_TRITON,
    a_pool_status,
    a_pooled_model,
    a_view,
    a_worker,
    decide_pool,
    said,
    the_pool,
)

FAILED, PENDING, SUCCEEDED = PodPhase.FAILED, PodPhase.PENDING, PodPhase.SUCCEEDED
BROKEN = a_report("Failed", reason=WorkerReason.INTERNAL, message="it broke")
MISSING = a_report("Failed", reason=WorkerReason.MODEL_NOT_FOUND, message="no such file")


def gone(done: Plan) -> set[int]:
    """The numbers of the workers that are let go."""
    return {int(action.key.name.rpartition("-")[2]) for action in done.actions if isinstance(action, DeletePod)}


def made(done: Plan) -> list[int]:
    return [action.assumed.number for action in done.actions if isinstance(action, CreatePod)]


def told(done: Plan) -> WarmPoolStatus | None:
    (status,) = [action.status for action in done.actions if isinstance(action, WriteModelStatus)]
    return status.warm_pool


# How many.


@pytest.mark.parametrize(
    ("least", "most", "waiting", "tasks", "wanted"),
    [(0, 4, 0, 0, 0), (2, 4, 0, 0, 2), (2, 4, 1, 0, 2), (0, 4, 3, 0, 3), (0, 4, 2, 1, 3), (0, 4, 20, 0, 4), (1, 1, 20, 5, 1)],
)
def test_as_many_as_can_be_used_within_the_bounds(least: int, most: int, waiting: int, tasks: int, wanted: int) -> None:
    model = a_pooled_model(min=least, max=most)
    seen = a_view(model, a_worker(model), tasks={1: tasks})

    assert pool_state(seen, PoolDemand(waiting), SETTINGS, NOW).wanted == wanted


def test_what_is_missing_is_made_and_belongs_to_the_model() -> None:
    model = a_pooled_model(min=2)
    done = decide_pool(a_view(model))
    created = [action for action in done.actions if isinstance(action, CreatePod)]

    assert made(done) == [1, 2]
    for action in created:
        pod = created_pod(action, NOW)
        assert pod.worker is not None
        assert pod.worker.pool
        assert (pod.worker.job_uid, pod.worker.revision) == (model.uid, the_pool(model).revisions.by_class[pod.worker.accelerator])
        assert action.manifest["metadata"]["ownerReferences"][0]["uid"] == model.uid
        assert action.assumed.worker is not None
        assert action.assumed.worker.job_uid == pod.worker.job_uid


def test_workers_on_triton_have_a_tritonserver_beside_them_and_their_place_is_reckoned_with_it() -> None:
    seen = a_view(a_pooled_model(min=1, backend=Backend.TRITON))
    (action,) = [a for a in decide_pool(seen, settings=WITH_TRITON).actions if isinstance(a, CreatePod)]
    shown = created_pod(action, NOW)

    (beside,) = action.manifest["spec"]["initContainers"]
    (config,) = [e["value"] for e in action.manifest["spec"]["containers"][0]["env"] if e["name"] == CONFIG_VARIABLE]
    told_worker = msgspec.json.decode(config, type=WorkerConfig)
    assert (beside["image"], beside["restartPolicy"]) == ("triton", "Always")
    assert told_worker.backend == "triton" and told_worker.triton is not None and told_worker.task_token_digest
    assert action.assumed.requests == shown.requests


def test_a_pool_that_no_worker_can_hold_says_why_and_has_none() -> None:
    done = decide_pool(a_view(a_pooled_model(min=1, backend=Backend.TRITON)))
    status = told(done)

    assert not made(done)
    assert status is not None
    (ready,) = status.conditions
    assert (ready.reason, ready.status) == ("BackendUnavailable", "False") and "backends.triton.image" in ready.message


def test_only_as_many_are_made_as_there_is_room_for() -> None:
    assert made(decide_pool(a_view(a_pooled_model(min=3)), room=1)) == [1]


def test_each_worker_is_told_the_digest_of_its_own_token_and_never_the_token() -> None:
    done = decide_pool(a_view(a_pooled_model(min=2)))
    texts = {action.assumed.key: str(action.manifest) for action in done.actions if isinstance(action, CreatePod)}

    assert len(texts) == 2
    for pod, text in texts.items():
        assert TOKENS.digest(pod) in text
        for other in texts:
            assert TOKENS.token(other) not in text
            assert (TOKENS.digest(other) in text) == (other == pod)


def test_a_place_that_was_given_for_another_revision_is_not_taken() -> None:
    before, model = a_pooled_model(min=1, batch_size=8), a_pooled_model(min=1)
    state = pool_state(a_view(before), PoolDemand(), SETTINGS, NOW)
    placement_request = pool_placement_request(a_view(before), state, PoolDemand(), SETTINGS, NOW)
    assert placement_request is not None
    seen = a_view(model)
    state = pool_state(seen, PoolDemand(), SETTINGS, NOW)

    assert made(plan_pool(seen, state, no_room(placement_request), SETTINGS, TOKENS, NOW)) == []


STATES: dict[str, dict[str, Any]] = {
    "running": {},
    "failed": {"phase": FAILED, "report": BROKEN},
    "deleted": {"deleting": True},
    "stale": {"revision": "old"},
}


@given(st.dictionaries(st.integers(1, 30), st.sampled_from(sorted(STATES)), max_size=8), st.integers(0, 8))
def test_names_never_collide(there: dict[int, str], waiting: int) -> None:
    model = a_pooled_model(max=10)
    workers = [a_worker(model, number, **STATES[how]) for number, how in there.items()]
    done = decide_pool(a_view(model, *workers), waiting=waiting, now=in_seconds(10_000))

    names = [pod.key for pod in workers] + [action.assumed.key for action in done.actions if isinstance(action, CreatePod)]
    assert len(names) == len(set(names))


def test_a_worker_is_never_named_as_a_pod_of_a_job_with_the_models_name() -> None:
    model = a_pooled_model(min=1)
    (created,) = [action for action in decide_pool(a_view(model)).actions if isinstance(action, CreatePod)]
    done = decide_pool(a_view(replace(model, uid=a_job("m").uid)))
    (other,) = [action for action in done.actions if isinstance(action, CreatePod)]

    assert created.assumed.key != other.assumed.key


# Which go.


def test_idle_workers_over_the_minimum_go_after_their_time() -> None:
    model = a_pooled_model(min=1, idle_seconds=60)
    workers = [a_worker(model, number) for number in (1, 2, 3)]

    assert gone(decide_pool(a_view(model, *workers, idle={1: 99, 2: 60, 3: 59.9}))) == {2}
    assert gone(decide_pool(a_view(model, *workers, idle={1: 99, 2: 99, 3: 99}))) == {2, 3}


def test_a_worker_that_has_not_said_how_long_it_was_idle_stays() -> None:
    model = a_pooled_model(min=0)

    assert gone(decide_pool(a_view(model, a_worker(model)))) == set()


def test_workers_that_could_be_used_stay_however_long_they_were_idle() -> None:
    model = a_pooled_model(min=0, idle_seconds=60)
    workers = [a_worker(model, number) for number in (1, 2, 3)]

    assert len(gone(decide_pool(a_view(model, *workers, idle={1: 99, 2: 99, 3: 99}), waiting=2))) == 1


def test_no_worker_goes_while_more_are_wanted_than_there_are() -> None:
    model = a_pooled_model(min=0, max=9, idle_seconds=60)
    workers = [a_worker(model, number) for number in (1, 2, 3)]

    assert gone(decide_pool(a_view(model, *workers, idle={1: 99, 2: 99, 3: 99}), waiting=5)) == set()


@given(
    least=st.integers(0, 4),
    idle=st.lists(st.sampled_from([0.0, 59.0, 60.0, 900.0]), max_size=6),
    tasks=st.dictionaries(st.integers(1, 6), st.integers(1, 3)),
    waiting=st.integers(0, 5),
)
@example(least=0, idle=[900.0, 900.0], tasks={}, waiting=1)
def test_the_floor_is_kept_and_nobody_with_tasks_goes(least: int, idle: list[float], tasks: dict[int, int], waiting: int) -> None:
    model = a_pooled_model(min=least, max=6, idle_seconds=60)
    workers = [a_worker(model, number) for number in range(1, len(idle) + 1)]
    tasks = {number: count for number, count in tasks.items() if number <= len(workers)}
    seen = a_view(model, *workers, tasks=tasks, idle=dict(enumerate(idle, 1)))
    done = decide_pool(seen, waiting=waiting)
    wanted = min(max(least, waiting + sum(tasks.values())), 6)

    assert gone(done).isdisjoint(tasks)
    assert len(workers) - len(gone(done)) + len(made(done)) >= wanted
    assert not (gone(done) and made(done))


def test_a_worker_of_an_older_revision_ends_what_it_does_and_is_replaced() -> None:
    model = a_pooled_model(min=2)
    old = [a_worker(model, number, revision="old") for number in (1, 2)]
    done = decide_pool(a_view(model, *old, tasks={2: 1}))

    assert gone(done) == {1}
    assert made(done) == [3, 4]


def test_a_task_that_nobody_waits_for_is_stopped() -> None:
    worker = a_worker(MODEL)
    for model in (MODEL, without_pool(MODEL)):
        seen = a_view(model, worker, tasks={1: 1}, orphaned_tasks=((worker.key, ("gone", 3)),))
        (stop,) = [action for action in decide_pool(seen).actions if isinstance(action, StopTask)]

        assert (stop.warm_worker, stop.address, stop.uid, stop.attempt) == (worker.key, worker.address, "gone", 3)


@pytest.mark.parametrize("how", [{"deleting": True}, {"phase": FAILED}, {"address": None}], ids=str)
def test_who_can_not_be_told_to_stop_it_is_not_told(how: dict[str, Any]) -> None:
    worker = replace(a_worker(MODEL), **how)

    assert "StopTask" not in kinds(decide_pool(a_view(MODEL, worker, orphaned_tasks=((worker.key, ("gone", 3)),))))


def without_pool(model: Model) -> Model:
    assert model.spec is not None
    return replace(model, spec=replace(model.spec, warm_pool=None))


def test_without_a_pool_all_go_once_they_have_no_tasks() -> None:
    model = a_pooled_model(told=WarmPoolStatus(workers=2, ready=2))
    workers = [a_worker(model, number) for number in (1, 2)]
    done = decide_pool(a_view(without_pool(model), *workers, tasks={2: 1}))

    assert gone(done) == {1}
    assert told(done) is None


def test_without_a_pool_no_worker_is_wanted_however_many_jobs_wait() -> None:
    state = pool_state(a_view(without_pool(a_pooled_model())), PoolDemand(5), SETTINGS, NOW)

    assert (state.wanted, state.missing) == (0, 0)


def test_when_time_alone_changes_something_it_is_looked_at_again() -> None:
    model = a_pooled_model(min=0, idle_seconds=60)

    assert decide_pool(a_view(model, a_worker(model), idle={1: 20.0})).recheck == in_seconds(41)
    assert decide_pool(a_view(model, a_worker(model), idle={1: 20.0}), waiting=1).recheck == in_seconds(41)
    assert decide_pool(a_view(model, a_worker(model), tasks={1: 1}, idle={1: 20.0})).recheck == in_seconds(61)
    assert decide_pool(a_view(a_pooled_model(min=1), a_worker(model), idle={1: 20.0})).recheck is None


# Failures.


def failed(model: Model, *numbers: int, report: Any = BROKEN) -> list[Pod]:
    return [a_worker(model, number, phase=FAILED, report=report) for number in numbers]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_failed_workers_back_off(count: int) -> None:
    model = a_pooled_model(min=1)
    seen = a_view(model, *failed(model, *range(1, count + 1)))
    state = pool_state(seen, PoolDemand(), SETTINGS, NOW)
    assert state.retry is not None
    waited = SETTINGS.backoff_seconds * 2 ** (count - 1) - 1

    assert (state.retry - NOW).total_seconds() == pytest.approx(waited, abs=1)
    assert made(decide_pool(seen)) == []
    assert made(decide_pool(seen, now=state.retry)) == [count + 1]


def test_a_node_whose_clock_is_ahead_puts_no_worker_off() -> None:
    model = a_pooled_model(min=1)
    (worker,) = failed(model, 1)
    seen = a_view(model, replace(worker, ended=in_seconds(3600)))

    assert made(decide_pool(seen, now=in_seconds(SETTINGS.backoff_seconds))) == [2]


def test_a_node_that_turns_workers_away_gets_no_more_of_them_for_a_while() -> None:
    model = a_pooled_model(min=1)
    (worker,) = failed(model, 1, report=None)
    away = replace(worker, problem=PodProblem("UnexpectedAdmissionError", ""), started=None, ended=None, created=NOW)
    lived = replace(away, started=NOW)

    assert made(decide_pool(a_view(model, away))) == []
    assert made(decide_pool(a_view(model, lived))) == [2]


def test_the_pause_grows_though_the_failures_in_between_are_gone() -> None:
    model = a_pooled_model(min=1)

    def retry(*numbers: int) -> object:
        return pool_state(a_view(model, *failed(model, *numbers)), PoolDemand(), SETTINGS, NOW).retry

    assert retry(3, 6) == retry(3, 4, 5, 6)


def test_a_pool_from_zero_is_open_again_once_its_pause_is_over() -> None:
    model = a_pooled_model(told=a_pool_status(fault="WorkerFailed: it broke"))
    seen = a_view(model, *failed(model, 1))
    pause = in_seconds(SETTINGS.backoff_seconds)

    assert decide_pool(seen).recheck is not None
    assert places(seen, waiting=1) == []
    assert said(told(decide_pool(seen, now=pause))) == (0, 0, "")
    assert len(places(seen, waiting=1, now=pause)) == 1
    assert made(decide_pool(seen, waiting=1, now=pause)) == [2]
    assert gone(decide_pool(seen, waiting=1, now=pause)) == set()


def test_a_pool_that_tries_by_itself_keeps_jobs_away_until_a_worker_answers() -> None:
    model = a_pooled_model(min=1, told=a_pool_status(1, fault="WorkerFailed: it broke"))
    starts = a_view(model, *failed(model, 1), a_worker(model, 2, phase=PENDING))

    assert "WriteModelStatus" not in kinds(decide_pool(starts, now=in_seconds(500)))


@pytest.mark.parametrize("least", [0, 1])
def test_a_change_of_the_model_ends_the_fault_of_what_it_was(least: int) -> None:
    before = a_pooled_model(min=least, told=a_pool_status(fault="WorkerFailed: it broke"))
    after = a_pooled_model(min=least, batch_size=8, told=a_pool_status(fault="WorkerFailed: it broke"))
    done = decide_pool(a_view(after, *failed(before, 1)), room=least)

    assert said(told(done)) == (0, 0, "")
    assert made(done) == [2] * least
    assert gone(done) == {1}


def test_a_fault_that_stays_is_not_tried_again_soon() -> None:
    model = a_pooled_model(min=1)
    seen = a_view(model, *failed(model, 1, 30, report=MISSING))

    assert made(decide_pool(seen, now=in_seconds(PERMANENT_RETRY_SECONDS - 5))) == []
    assert made(decide_pool(seen, now=in_seconds(PERMANENT_RETRY_SECONDS))) == [31]


def test_a_worker_that_has_answered_for_a_while_ends_the_fault_before_it() -> None:
    model = a_pooled_model(min=2)
    done = decide_pool(a_view(model, *failed(model, 1), a_worker(model, 2, created_ago=SETTLED_SECONDS)))

    assert made(done) == [3]
    assert gone(done) == {1}
    assert said(told(done)) == (1, 1, "Serving")


def test_a_worker_that_has_just_answered_ends_neither_the_pause_nor_the_count_before_it() -> None:
    """One that ends at its first task would else be made anew at once, for ever."""
    model = a_pooled_model(min=2, told=a_pool_status(fault="WorkerFailed: it broke"))
    seen = a_view(model, *failed(model, 1), a_worker(model, 2))
    later = decide_pool(seen, now=in_seconds(SETTINGS.backoff_seconds))

    assert (made(decide_pool(seen)), made(later)) == ([], [3])
    assert gone(later) == set()
    assert said(told(later)) == (1, 1, "Serving")
    assert later.recheck == whole(NOW) + timedelta(seconds=SETTLED_SECONDS - 8)


def test_workers_that_live_among_those_that_failed_are_no_failures() -> None:
    model = a_pooled_model(min=4)
    seen = a_view(model, *failed(model, 1, 4), a_worker(model, 2), a_worker(model, 3))

    assert made(decide_pool(seen, now=in_seconds(2 * SETTINGS.backoff_seconds))) != []


def test_one_that_answers_and_is_older_does_not() -> None:
    model = a_pooled_model(min=2)
    done = decide_pool(a_view(model, a_worker(model, 1), *failed(model, 2)))

    assert made(done) == []


def test_the_newest_that_failed_keeps_its_last_words_and_the_first_tells_with_it_how_many_did() -> None:
    model = a_pooled_model(min=1)
    done = decide_pool(a_view(model, *failed(model, 2, 10, 9)))

    assert gone(done) == {9}
    assert said(told(done)) == (0, 0, "WorkerFailed: it broke")


def test_a_worker_that_was_drained_is_replaced_at_once() -> None:
    model = a_pooled_model(min=1)

    assert made(decide_pool(a_view(model, a_worker(model, phase=SUCCEEDED, report=a_report("Drained"))))) == [2]


def test_workers_out_of_reach_are_replaced() -> None:
    model = a_pooled_model(min=1)
    worker = a_worker(model)

    assert made(decide_pool(a_view(model, worker, lost=frozenset({worker.uid})))) == [2]


def test_what_the_api_server_refused_is_tried_again_later() -> None:
    model = a_pooled_model(min=1)
    seen = a_view(model, create_failure=a_create_failure())

    assert made(decide_pool(seen)) == []
    assert decide_pool(seen).recheck == in_seconds(SETTINGS.backoff_limit_seconds)
    assert made(decide_pool(seen, now=in_seconds(SETTINGS.backoff_limit_seconds))) == [1]


def test_what_was_refused_after_a_failure_is_not_tried_again_at_once() -> None:
    model = a_pooled_model(min=1)
    seen = a_view(model, *failed(model, 1), create_failure=a_create_failure(ago=-10))

    assert made(decide_pool(seen, now=in_seconds(20))) == []
    assert made(decide_pool(seen, now=in_seconds(10 + SETTINGS.backoff_limit_seconds))) == [2]


@pytest.mark.parametrize("waiting", [0, 1])
def test_what_was_refused_keeps_jobs_away_until_it_is_tried_again_whether_they_wait_or_not(waiting: int) -> None:
    model = a_pooled_model(told=a_pool_status(fault="QuotaExceeded: exceeded quota: q"))
    seen = a_view(model, create_failure=a_create_failure())
    later = in_seconds(SETTINGS.backoff_limit_seconds)

    assert decide_pool(seen, waiting=waiting).actions == ()
    assert said(told(decide_pool(seen, waiting=waiting, now=later))) == (0, 0, "")


def test_a_pool_that_answers_tells_of_a_failure_until_the_next_try() -> None:
    model = a_pooled_model(min=1)
    seen = a_view(model, a_worker(model, 1), *failed(model, 2))

    assert said(told(decide_pool(seen, waiting=1))) == (1, 1, "WorkerFailed: it broke")
    assert said(told(decide_pool(seen, waiting=1, now=in_seconds(SETTINGS.backoff_seconds)))) == (1, 1, "Serving")


# What is said.


def status_after(seen: PoolObserved, **how: Any) -> PoolObserved:
    done = decide_pool(seen, **how)
    model = seen.model
    for action in done.actions:
        if isinstance(action, WriteModelStatus):
            model = replace(model, status=action.status)
    return replace(seen, model=model)


MODEL = a_pooled_model(min=1)
VIEWS = {
    "none yet": a_view(MODEL),
    "well": a_view(MODEL, a_worker(MODEL)),
    "starting": a_view(MODEL, a_worker(MODEL, phase=PENDING)),
    "no image": a_view(MODEL, a_worker(MODEL, phase=PENDING, problem=PodProblem("ErrImagePull", "no such image"))),
    "failed": a_view(MODEL, *failed(MODEL, 1)),
    "refused": a_view(MODEL, create_failure=a_create_failure()),
}
IMAGE_CURE = (
    "check accelerators.cpu.image, or worker.image where the class has none (backends.torchscript.image for TorchScript) in the "
    "chart's values, and the job's template.imagePullSecrets"
)
SAYS = {
    "none yet": (0, 0, ""),
    "well": (1, 1, "Serving"),
    "starting": (1, 0, ""),
    "no image": (1, 0, f"ImageUnavailable: the worker's image can't be had on node node-1: no such image; {IMAGE_CURE}"),
    "failed": (0, 0, "WorkerFailed: it broke"),
    "refused": (0, 0, "QuotaExceeded: exceeded quota: q"),
}  # fmt: skip


@pytest.mark.parametrize("how", VIEWS)
def test_what_is_said_is_said_once(how: str) -> None:
    assert said(told(decide_pool(VIEWS[how], room=0))) == SAYS[how]
    assert "WriteModelStatus" not in kinds(decide_pool(status_after(VIEWS[how], room=0), room=0))


def test_why_there_is_no_room_is_said_and_moving_counts_are_not_said_again() -> None:
    seen = a_view(MODEL)
    state = pool_state(seen, PoolDemand(), SETTINGS, NOW)
    placement_request = pool_placement_request(seen, state, PoolDemand(), SETTINGS, NOW)
    assert placement_request is not None
    first = plan_pool(seen, state, no_room(placement_request, "waits for room: 3 of 4 nodes"), SETTINGS, TOKENS, NOW)
    status = told(first)
    again = replace(seen, model=replace(MODEL, status=replace(MODEL.status, warm_pool=status)))

    assert said(status) == (0, 0, "NoFreeCapacity: waits for room: 3 of 4 nodes")
    assert plan_pool(again, state, no_room(placement_request, "waits for room: 2 of 4 nodes"), SETTINGS, TOKENS, NOW).actions == ()
    changed = no_room(placement_request, "no node is large enough", reason=Reason.NO_NODE_FITS)
    assert said(told(plan_pool(again, state, changed, SETTINGS, TOKENS, NOW))) == (0, 0, "NoNodeFits: no node is large enough")


def test_what_was_said_stands_until_the_scheduler_has_answered() -> None:
    seen = a_view(MODEL)
    state = pool_state(seen, PoolDemand(), SETTINGS, NOW)
    placement_request = pool_placement_request(seen, state, PoolDemand(), SETTINGS, NOW)
    assert placement_request is not None
    status = told(plan_pool(seen, state, no_room(placement_request, "no node has room now"), SETTINGS, TOKENS, NOW))
    again = replace(seen, model=replace(MODEL, status=replace(MODEL.status, warm_pool=status)))

    assert plan_pool(again, state, None, SETTINGS, TOKENS, NOW).actions == ()


def test_another_refusal_for_the_same_reason_is_said_in_its_own_words() -> None:
    before = a_view(a_pooled_model(min=1, backend=Backend.TRITON))
    after = a_view(a_pooled_model(min=1, backend=Backend.TORCHSCRIPT, told=told(decide_pool(before))))

    assert "torchscript" in str(said(told(decide_pool(after))))


# What the scheduler hears.


def test_workers_are_as_urgent_as_the_job_that_waits_for_them() -> None:
    seen, pool = a_view(MODEL), the_pool(MODEL)
    demand = PoolDemand(3, priority=7)
    placement_request = pool_placement_request(seen, pool_state(seen, demand, SETTINGS, NOW), demand, SETTINGS, NOW)
    assert placement_request is not None

    assert (placement_request.priority, placement_request.workers, placement_request.holds, placement_request.pool) == (
        7,
        3,
        True,
        None,
    )
    assert (placement_request.uid, placement_request.revision) == (MODEL.uid, pool.revisions.combined)


def places(seen: PoolObserved, waiting: int = 0, *, blocked: bool = False, now: datetime = NOW) -> list[WarmWorker]:
    demand = PoolDemand(waiting)
    state = pool_state(seen, demand, SETTINGS, now)
    return list(warm_workers(seen, state, demand, SETTINGS, now, blocked=blocked))


def test_a_worker_that_answers_takes_tasks_after_those_that_it_has() -> None:
    worker = a_worker(MODEL)
    (warm_worker,) = places(a_view(MODEL, worker, tasks={1: 2}, busy={1: 6.5}))

    assert (warm_worker.pod, warm_worker.node, warm_worker.ready, warm_worker.tasks, warm_worker.wait) == (
        worker.key,
        "node-1",
        True,
        2,
        6.5,
    )


def test_room_on_a_device_is_what_each_worker_says_of_its_own() -> None:
    model = a_pooled_model(sharing="SameNamespace")
    model = replace(model, status=replace(model.status, profiles=[replace(a_profile(), memory_bytes=1)]))
    large, small, silent = (a_worker(model, n) for n in (1, 2, 3))
    told = {large.key: 80_000, small.key: 40_000}

    found = places(a_view(model, large, small, silent, device_free_bytes=told))
    rooms = [warm_worker.offer.memory.device if warm_worker.offer is not None else None for warm_worker in found]
    assert rooms == [80_000, 40_000, 0]
    # Whoever has room for another co-located model is not like the others.
    assert len(warm_timelines(found)) == 3


def test_a_worker_that_starts_takes_tasks_when_it_has_started() -> None:
    (warm_worker,) = places(a_view(MODEL, a_worker(MODEL, phase=PENDING, created_ago=1)))

    assert not warm_worker.ready
    assert 0 < warm_worker.wait < SETTINGS.assumed_load_seconds


def test_a_worker_that_does_not_start_in_time_is_followed_elsewhere() -> None:
    model = a_pooled_model(min=1)
    stuck = a_worker(model, 1, phase=PENDING, created_ago=SETTINGS.start_timeout_seconds)
    seen = a_view(model, stuck)
    request = pool_placement_request(seen, pool_state(seen, PoolDemand(), SETTINGS, NOW), PoolDemand(), SETTINGS, NOW)
    young = decide_pool(a_view(model, a_worker(model, 1, phase=PENDING, created_ago=1)))

    assert request is not None and (request.failed_on, request.beside) == (("node-1",), ())
    assert (made(decide_pool(seen)), gone(decide_pool(seen))) == ([2], {1})
    assert (made(young), gone(young)) == ([], set())
    assert young.recheck == in_seconds(SETTINGS.start_timeout_seconds - 1).replace(microsecond=0)


def test_one_that_takes_longer_than_thought_is_still_awaited() -> None:
    (warm_worker,) = places(a_view(MODEL, a_worker(MODEL, ready=False, created_ago=1e6)))

    assert warm_worker.wait > 0


def test_workers_that_could_be_added_are_places_too_as_far_as_jobs_wait() -> None:
    model = a_pooled_model(max=3)

    assert [warm_worker.pod for warm_worker in places(a_view(model), waiting=2)] == [None, None]
    assert [warm_worker.pod for warm_worker in places(a_view(model), waiting=9)] == [None] * 3
    assert len(places(a_view(model, a_worker(model)), waiting=9)) == 3


def test_a_pool_that_found_no_room_or_fails_promises_none() -> None:
    model = a_pooled_model(max=3)

    assert places(a_view(model), waiting=2, blocked=True) == []
    assert places(a_view(model, *failed(model, 1)), waiting=2) == []


@pytest.mark.parametrize("how", ["failed", "deleted", "stale"])
def test_workers_that_go_are_no_places(how: str) -> None:
    assert places(a_view(MODEL, a_worker(MODEL, **STATES[how]))) == []

"""The store's view of warm pools: which job runs where, under every change of a job, and what is forgotten with whom."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from inference_operator.api.conditions import Condition, Truth
from inference_operator.state.objects import Job, PodPhase, Reading
from inference_operator.state.store import Store
from inference_protocol.messages import TaskState, Telemetry
from tests.builders import NOW, a_job, a_report, whole
from tests.unit.warmpools.pool_support import a_hosted_job, a_pooled_model, a_store, a_task, a_worker

MODEL = a_pooled_model()
HOST, OTHER = a_worker(MODEL, 1), a_worker(MODEL, 2)
JOB = a_hosted_job(MODEL, HOST)


def later(job: Job, **changes: Any) -> Job:
    return replace(job, resource_version="9", **changes)


def ended() -> Job:
    done = Condition(
        type="Succeeded", status=Truth.TRUE, reason="Succeeded", message="", last_transition_time=whole(NOW), observed_generation=1
    )
    return later(JOB, status=replace(JOB.status, conditions=[done], start_time=whole(NOW)))


LEAVES = {
    "it has ended": ended(),
    "it moved": later(a_hosted_job(MODEL, OTHER, attempt=2)),
    "it was suspended": later(a_hosted_job(MODEL, HOST, suspend=True)),
    "it has a pod of its own": later(a_job(model="m", items=10)),
    "another came under its name": later(a_job(model="m", items=10, uid="next")),
}


@pytest.mark.parametrize("how", LEAVES)
def test_a_worker_has_no_hosted_job_any_more(how: str) -> None:
    store = a_store(MODEL, HOST, OTHER)
    store.put_job(JOB)
    assert store.task_index.on(HOST.key) == (JOB.key,)
    store.put_job(LEAVES[how])

    assert store.task_index.on(HOST.key) == ()


def test_a_deleted_job_leaves_its_worker_and_takes_its_tasks_along() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    store.task_index.put_task(a_task(JOB, MODEL), NOW)
    store.drop_job(JOB.key, JOB.uid)

    assert (store.task_index.on(HOST.key), store.task_index.tasks) == ((), {})


@pytest.mark.parametrize(
    ("ran", "ago", "begun"), [(None, None, -2), (0.5, 0.0, -0.5), (0.0, None, 0), (0.5, 1.0, -1.5), (60.0, 0.0, -2)]
)
def test_a_task_has_its_own_time_and_begins_never_before_its_order(ran: float | None, ago: float | None, begun: float) -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    told = a_task(JOB, MODEL, report=a_report())
    store.task_index.put_task(msgspec.structs.replace(told, ran_seconds=ran, ended_seconds=ago), whole(NOW))

    seen = store.observe(JOB.key)
    assert seen is not None
    attempt = seen.hosted
    assert attempt is not None
    assert attempt.started == whole(NOW) + timedelta(seconds=begun)
    assert attempt.created == whole(NOW - timedelta(seconds=2))
    assert attempt.ended == whole(NOW) - timedelta(seconds=ago or 0)


def test_what_was_told_of_an_end_stands_and_survives_the_worker() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    assert store.task_index.put_task(a_task(JOB, MODEL, report=a_report()), NOW)
    assert not store.task_index.put_task(a_task(JOB, MODEL), NOW)
    store.drop_pod(HOST.key, HOST.uid)

    assert len(store.task_index.tasks) == 1


def test_a_pool_is_seen_with_its_hosted_tasks() -> None:
    store = a_store(MODEL, HOST, OTHER)
    store.put_job(JOB)
    seen = store.observe_pool(MODEL.key, NOW)
    assert seen is not None

    assert {pod.key for pod in seen.pods} == {HOST.key, OTHER.key}
    assert seen.tasks == {HOST.key: 1, OTHER.key: 0}
    assert 0 < seen.busy_seconds[HOST.key] <= 33


# Tasks that nobody waits for.


def told(store: Store, *tasks: TaskState, at: float = 0.0) -> None:
    reading = Telemetry(ready=True, draining=False, tasks=tasks)
    store.put_reading(HOST, Reading(reading, NOW + timedelta(seconds=at)))


def orphaned_tasks(store: Store, at: float = 0.0) -> tuple[object, ...]:
    return store.task_index.orphaned_tasks(HOST, NOW + timedelta(seconds=at))


def test_a_task_is_a_orphaned_task_once_its_job_was_seen_to_go() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    told(store, a_task(JOB, MODEL))
    store.drop_job(JOB.key, JOB.uid)
    assert orphaned_tasks(store) == ()
    told(store, a_task(JOB, MODEL))

    assert orphaned_tasks(store) == ((JOB.uid, 1),)
    seen = store.observe_pool(MODEL.key, NOW)
    assert seen is not None
    assert seen.orphaned_tasks == ((HOST.key, (JOB.uid, 1)),)


def test_a_task_of_a_job_that_nobody_has_seen_is_given_the_time_that_news_take() -> None:
    store = a_store(MODEL, HOST)
    for second in range(0, 40, 10):
        told(store, a_task(JOB, MODEL), at=second)

    assert orphaned_tasks(store, at=30) == ()
    assert orphaned_tasks(store, at=31) == ((JOB.uid, 1),)
    store.put_job(JOB)
    assert orphaned_tasks(store, at=31) == ()


def test_an_older_attempt_is_a_orphaned_task_and_a_newer_one_is_news_that_are_late() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(a_hosted_job(MODEL, OTHER, attempt=2))
    told(store, *(a_task(JOB, MODEL, attempt=attempt) for attempt in (1, 2, 3)))

    assert orphaned_tasks(store) == ((JOB.uid, 1),)


def test_what_is_stopping_already_is_left_alone() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(a_hosted_job(MODEL, OTHER, attempt=2))
    told(store, msgspec.structs.replace(a_task(JOB, MODEL), stopping=True))

    assert orphaned_tasks(store) == ()


def test_what_was_told_to_stop_is_told_again_if_it_did_not_hear() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(a_hosted_job(MODEL, OTHER, attempt=2))
    told(store, a_task(JOB, MODEL))
    store.task_index.forget_orphan(HOST.key, (JOB.uid, 1))
    assert orphaned_tasks(store) == ()
    told(store, a_task(JOB, MODEL))

    assert orphaned_tasks(store) == ((JOB.uid, 1),)


# Whom the end of a worker is laid to.

SECOND = a_hosted_job(MODEL, HOST, name="second")


def after_its_end(store: Store) -> set[str]:
    """The jobs that are held to have waited while the worker ran another."""
    store.put_pod(replace(HOST, phase=PodPhase.FAILED, ready=False, resource_version="9"))
    seen = {name: store.observe(name) for name in (JOB.key, SECOND.key)}
    found = {key.name: view.hosted.hosted for key, view in seen.items() if view is not None and view.hosted is not None}
    return {name for name, task in found.items() if task is not None and task.waited}


def two_ordered(first: Job = JOB, second: Job = SECOND) -> Store:
    store = a_store(MODEL, HOST)
    for later_by, job in enumerate((first, second)):
        store.put_job(job)
        store.task_index.put_task(a_task(job, MODEL, state="Queued"), NOW + timedelta(seconds=later_by))
    return store


def test_who_was_ordered_later_waited() -> None:
    assert after_its_end(two_ordered()) == {"second"}
    assert after_its_end(two_ordered(SECOND, JOB)) == {JOB.key.name}


def test_the_workers_own_word_on_who_comes_first_goes_before_the_order_in_which_they_were_ordered() -> None:
    store = two_ordered()
    told(store, a_task(SECOND, MODEL), a_task(JOB, MODEL, state="Queued"))

    assert after_its_end(store) == {JOB.key.name}


def test_who_comes_after_one_that_has_ended_did_not_wait() -> None:
    store = two_ordered()
    told(store, a_task(JOB, MODEL), a_task(SECOND, MODEL, state="Queued"))
    store.task_index.put_task(a_task(JOB, MODEL, report=a_report()), NOW)

    assert after_its_end(store) == set()


def test_what_ran_last_stays_known_when_its_job_has_been_told() -> None:
    store = two_ordered()
    assert after_its_end(store) == {"second"}
    store.drop_job(JOB.key, JOB.uid)

    assert after_its_end(store) == {"second"}


def test_where_nothing_was_heard_nobody_is_held_to_have_waited() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    store.put_job(SECOND)

    assert after_its_end(store) == set()

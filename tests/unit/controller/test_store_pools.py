"""The store's view of warm pools: who lodges where, under every change of a job, and what is forgotten with whom."""

from dataclasses import replace
from typing import Any

import pytest

from inference_operator.domain.cluster import Job
from inference_operator.domain.conditions import Condition, Truth
from tests.builders import NOW, a_job, a_report, whole
from tests.unit.decisions.pool_support import a_lodger, a_pooled_model, a_store, a_task, a_worker

MODEL = a_pooled_model()
HOST, OTHER = a_worker(MODEL, 1), a_worker(MODEL, 2)
JOB = a_lodger(MODEL, HOST)


def later(job: Job, **changes: Any) -> Job:
    return replace(job, resource_version="9", **changes)


def ended() -> Job:
    done = Condition(
        type="Succeeded", status=Truth.TRUE, reason="Succeeded", message="", last_transition_time=whole(NOW), observed_generation=1
    )
    return later(JOB, status=replace(JOB.status, conditions=[done], start_time=whole(NOW)))


LEAVES = {
    "it has ended": ended(),
    "it moved": later(a_lodger(MODEL, OTHER, attempt=2)),
    "it was suspended": later(a_lodger(MODEL, HOST, suspend=True)),
    "it has a pod of its own": later(a_job(model="m", items=10)),
    "another came under its name": later(a_job(model="m", items=10, uid="next")),
}


@pytest.mark.parametrize("how", LEAVES)
def test_a_worker_has_no_lodger_any_more(how: str) -> None:
    store = a_store(MODEL, HOST, OTHER)
    store.put_job(JOB)
    assert store.lodgers(HOST.key) == (JOB.key,)
    store.put_job(LEAVES[how])

    assert store.lodgers(HOST.key) == ()


def test_a_deleted_job_leaves_its_worker_and_takes_its_tasks_along() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    store.put_task(a_task(JOB, MODEL), NOW)
    store.drop_job(JOB.key, JOB.uid)

    assert (store.lodgers(HOST.key), store.tasks) == ((), {})


def test_what_was_told_of_an_end_stands_and_survives_the_worker() -> None:
    store = a_store(MODEL, HOST)
    store.put_job(JOB)
    assert store.put_task(a_task(JOB, MODEL, report=a_report()), NOW)
    assert not store.put_task(a_task(JOB, MODEL), NOW)
    store.drop_pod(HOST.key, HOST.uid)

    assert len(store.tasks) == 1


def test_a_pool_is_seen_with_its_lodgers() -> None:
    store = a_store(MODEL, HOST, OTHER)
    store.put_job(JOB)
    seen = store.observe_pool(MODEL.key, NOW)
    assert seen is not None

    assert {pod.key for pod in seen.pods} == {HOST.key, OTHER.key}
    assert seen.lodgers == {HOST.key: 1, OTHER.key: 0}
    assert 0 < seen.busy_seconds[HOST.key] <= 33

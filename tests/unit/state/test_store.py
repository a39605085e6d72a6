"""The store: only the newest counts, the dead stay dead, and what was assumed is dropped when it never comes."""

from dataclasses import replace
from datetime import timedelta

import pytest

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition, dated
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.api.names import service_name
from inference_operator.state.objects import Job, Key, Pod, PodPhase
from inference_operator.state.raw import is_newer
from inference_operator.state.request import job_request
from inference_operator.state.store import Store, stale_objects
from tests.builders import NOW, a_create_failure, a_job, a_model, a_node, a_pod, a_reading, somebodys_pod

JOB = a_job()
KEY = JOB.key


def at(version: int, job: Job = JOB, **changes: object) -> Job:
    return replace(job, resource_version=str(version), **changes)  # type: ignore[arg-type]


def pod_at(version: int, **changes: object) -> Pod:
    return replace(a_pod(JOB), resource_version=str(version), **changes)  # type: ignore[arg-type]


def a_store(*jobs: Job, pods: tuple[Pod, ...] = ()) -> Store:
    store = Store()
    store.nodes["node-1"] = a_node()
    for job in jobs:
        store.put_job(job)
    for pod in pods:
        store.put_pod(pod)
    return store


# Versions.


@pytest.mark.parametrize(
    ("new", "old", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", True), ("abc", "9", True), ("9", "", True), ("", "9", True)],
)
def test_versions_are_compared_as_numbers(new: str, old: str, newer: bool) -> None:  # noqa: FBT001
    assert is_newer(new, old) == newer


def test_an_older_version_of_a_job_is_not_taken_in() -> None:
    store = a_store(at(9))

    assert not store.put_job(at(8, status=InferenceJobStatus(attempts=1)))
    assert store.jobs[KEY].resource_version == "9"


def test_the_same_again_is_no_news() -> None:
    store = a_store(at(9))

    assert not store.put_job(at(9))
    assert store.put_job(at(10))


def test_an_older_version_of_a_pod_is_not_taken_in() -> None:
    store = a_store(JOB, pods=(pod_at(9, phase=PodPhase.RUNNING),))

    assert not store.put_pod(pod_at(8, phase=PodPhase.PENDING))
    assert not store.put_pod(pod_at(9, phase=PodPhase.RUNNING))
    assert store.pods[a_pod(JOB).key].phase is PodPhase.RUNNING


def test_a_new_object_of_the_same_name_counts_whatever_its_version() -> None:
    store = a_store(at(900))

    assert store.put_job(at(3, uid="next"))
    assert store.job_key("next") == KEY
    assert store.job_key(JOB.uid) is None


# The dead.


def test_a_dropped_job_never_comes_back() -> None:
    store = a_store(JOB)
    store.drop_job(KEY, JOB.uid)

    assert not store.put_job(at(99))
    assert store.observe(KEY) is None


def test_a_dropped_pod_never_comes_back() -> None:
    pod = pod_at(5)
    store = a_store(JOB, pods=(pod,))
    store.drop_pod(pod.key, pod.uid)

    assert not store.put_pod(pod_at(99))
    assert store.workers_of(JOB) == ()


def test_what_is_dropped_before_it_was_known_never_comes() -> None:
    store = a_store()
    store.drop_job(KEY, JOB.uid)

    assert not store.put_job(JOB)


def test_a_late_farewell_does_not_take_the_successor_along() -> None:
    store = a_store(at(9, uid="next"), pods=(pod_at(9, uid="next-pod"),))
    store.drop_job(KEY, JOB.uid)
    store.drop_pod(a_pod(JOB).key, a_pod(JOB).uid)

    assert store.jobs[KEY].uid == "next"
    assert store.pods[a_pod(JOB).key].uid == "next-pod"


def test_memory_of_the_dead_is_bounded() -> None:
    store = a_store()
    for n in range(50_000):
        store.drop_pod(Key("n", f"p{n}"), f"u{n}")

    assert len(store._tombstones) <= 20_000
    assert not store.put_pod(replace(somebodys_pod(), uid="u49999"))


# Assumed pods.


def assumed(created_ago: float = 0.0) -> Pod:
    return replace(a_pod(JOB, uid=""), resource_version="", created=NOW - timedelta(seconds=created_ago), phase=PodPhase.PENDING)


def test_an_assumed_pod_is_there_until_the_real_one_comes() -> None:
    store = a_store(JOB, pods=(assumed(),))
    assert [pod.uid for pod in store.workers_of(JOB)] == [""]

    assert store.put_pod(pod_at(1))
    assert [pod.uid for pod in store.workers_of(JOB)] == [a_pod(JOB).uid]


def test_an_assumed_pod_that_never_comes_expires() -> None:
    store = a_store(JOB, pods=(assumed(created_ago=31),))

    assert store.drop_stale_assumptions(NOW) == (JOB.uid,)
    assert store.workers_of(JOB) == ()
    assert store.drop_stale_assumptions(NOW) == ()


def test_a_young_assumption_and_a_real_pod_stay() -> None:
    real = a_pod(a_job("other"), created_ago=9999)
    store = a_store(JOB, pods=(assumed(created_ago=29), real))

    assert store.drop_stale_assumptions(NOW) == ()
    assert len(store.pods) == 2


def test_an_assumption_is_dropped_by_its_key_and_the_real_pod_is_not() -> None:
    store = a_store(JOB, pods=(assumed(),))
    store.drop_pod(assumed().key, "")
    assert store.pods == {}

    assert store.put_pod(assumed())


# Views.


def test_a_snapshot_holds_all_that_belongs_to_a_job_and_nothing_else() -> None:
    job, other = a_job(model="m"), a_job("other", model="m")
    store = a_store(job, other, pods=(a_pod(job, model=a_model()), a_pod(other, model=a_model()), somebodys_pod()))
    store.models[a_model().key] = a_model()
    store.services[Key(KEY.namespace, service_name(KEY.name))] = job.uid
    store.create_failures[job_request(KEY)] = a_create_failure()
    store.readings[a_pod(job, model=a_model()).uid] = a_reading()

    seen = store.observe(KEY)

    assert seen is not None and seen.model == a_model()
    assert [pod.worker.job_uid for pod in seen.pods if pod.worker is not None] == [job.uid]
    assert seen.has_service and seen.create_failure is not None and len(seen.readings) == 1
    assert set(store.jobs_of(a_model().key)) == {job.key, other.key}


@pytest.mark.parametrize(("ready", "deleting", "lost"), [(False, True, True), (False, False, False), (True, True, False)])
def test_a_pod_that_a_node_which_is_not_ready_was_told_to_end_is_lost(*, ready: bool, deleting: bool, lost: bool) -> None:
    store = Store()
    store.put_job(a_job())
    store.put_pod(a_pod(a_job(), deleting=deleting))
    store.nodes["node-1"] = replace(a_node(), ready=ready)

    assert bool(store.observe(KEY).lost) == lost  # type: ignore[union-attr]


def test_a_worker_that_answers_is_not_lost_with_the_control_planes_way_to_its_node() -> None:
    """After an outage of the API server all nodes count as out of reach, and running work was given up."""
    pod = a_pod(JOB)
    store = a_store(JOB, pods=(pod,))
    store.nodes["node-1"] = replace(a_node(), ready=False, reachable=False)
    store.put_pod(replace(pod, ready=False, containers_ready=True, resource_version="2"))
    unheard = store.observe(KEY)
    store.heard.add(pod.uid)
    heard = store.observe(KEY)

    assert unheard is not None and heard is not None
    assert (unheard.lost, unheard.pods[0].ready) == (frozenset({pod.uid}), False)
    assert (heard.lost, heard.pods[0].ready) == (frozenset(), True)

    # One whose own containers are not ready is not, whatever it answers.
    store.put_pod(replace(pod, ready=False, containers_ready=False, resource_version="3"))
    not_ready = store.observe(KEY)
    assert not_ready is not None and not not_ready.pods[0].ready
    # One that was told to end is given up: nobody knows whether it ever heard of it.
    store.put_pod(replace(pod, deleting=True, resource_version="4"))
    told = store.observe(KEY)
    assert told is not None and told.lost == {pod.uid}


def test_pods_on_nodes_gone_or_out_of_reach_are_lost() -> None:
    pod = a_pod(JOB)
    store = a_store(JOB, pods=(pod,))
    assert not store.observe(KEY).lost  # type: ignore[union-attr]

    store.nodes["node-1"] = replace(a_node(), reachable=False)
    assert store.observe(KEY).lost == {pod.uid}  # type: ignore[union-attr]
    del store.nodes["node-1"]
    assert store.observe(KEY).lost == {pod.uid}  # type: ignore[union-attr]
    assert store.workers_on("node-1") == (pod,)


def test_a_job_that_takes_another_model_no_longer_concerns_the_first() -> None:
    store = a_store(at(1, a_job(model="m")))
    store.put_job(at(2, a_job(model="other")))

    assert store.jobs_of(Key("default", "m")) == ()
    assert store.jobs_of(Key("default", "other")) == (KEY,)


def test_a_reading_goes_with_its_pod() -> None:
    pod = a_pod(JOB)
    store = a_store(JOB, pods=(pod,))
    store.readings[pod.uid] = a_reading()
    store.drop_pod(pod.key, pod.uid)

    assert store.readings == {}


def test_an_edited_spec_is_not_held_up_by_what_the_one_before_was_refused_for() -> None:
    """The new generation would be stamped with the words about the old one, and nothing tried until the pause is over."""
    store = a_store(at(1))
    for failures in (store.create_failures, store.autoscaler_failures, store.budget_failures):
        failures[job_request(KEY)] = a_create_failure()
    store.put_job(at(2, status=InferenceJobStatus(attempts=1)))
    assert store.observe(KEY).create_failure is not None  # type: ignore[union-attr]

    store.put_job(at(3, generation=2))

    assert store.observe(KEY).create_failure is None  # type: ignore[union-attr]
    assert store.observe(KEY).autoscaler_failure is None  # type: ignore[union-attr]
    assert store.observe(KEY).budget_failure is None  # type: ignore[union-attr]


def test_the_jobs_that_use_a_model_are_those_that_have_not_ended() -> None:
    model, of_model = Key("default", "m"), a_job(model="m")
    store = a_store(at(1, of_model), at(1, a_job("other", model="m")), at(1, a_job("elsewhere", namespace="away", model="m")))
    assert store.users_of(model) == {"job", "other"}

    done = dated([UndatedCondition(ConditionType.SUCCEEDED, Truth.TRUE, Reason.SUCCEEDED, "")], before=(), generation=1, now=NOW)
    store.put_job(at(2, of_model, status=InferenceJobStatus(start_time=NOW, conditions=list(done))))
    assert store.users_of(model) == {"other"}

    store.drop_job(Key("default", "other"), "uid-of-other")
    assert store.users_of(model) == set()


def test_a_new_job_does_not_inherit_the_create_failure_of_its_predecessor() -> None:
    store = a_store(JOB)
    store.create_failures[job_request(KEY)] = a_create_failure()
    store.put_job(at(2, uid="next"))

    assert store.observe(KEY).create_failure is None  # type: ignore[union-attr]


def test_a_pod_of_another_namespace_is_no_worker_of_this_job() -> None:
    forged = replace(a_pod(JOB, 99), key=Key("elsewhere", "forged"), uid="forged")
    store = a_store(JOB, pods=(forged,))
    seen = store.observe(KEY)

    assert seen is not None and seen.pods == ()
    assert store.workers_of(JOB) == ()


# Stale objects.


def test_what_a_list_lacks_is_a_stale_object() -> None:
    a, b, c = (Key("n", name) for name in "abc")
    known = {a: "1", b: "2", c: "3"}

    assert stale_objects(known, [(a, "1"), (c, "3")]) == [(b, "2")]
    assert stale_objects(known, [(a, "1"), (b, "2"), (c, "new")]) == [(c, "3")]
    assert stale_objects({}, [(a, "1")]) == []

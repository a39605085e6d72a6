"""The series of the cluster: they are what the store holds, and no more of them than are bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from inference_operator.api.conditions import Condition, ConditionType, Reason, Truth
from inference_operator.api.job_status import DeadlineStatus, InferenceJobStatus, Outlook, Phase
from inference_operator.api.model import WarmPool
from inference_operator.observability.cluster import SLACK_SERIES, ClusterCollector
from inference_operator.observability.history import NAMESPACES
from inference_operator.observability.namespaces import OTHERS
from inference_operator.state.objects import Placeholder, PodPhase
from inference_operator.state.store import Store
from tests.builders import NOW, a_job, a_model, a_node, a_pod, a_profile

if TYPE_CHECKING:
    from inference_operator.state.objects import Job

Found = dict[tuple[str, ...], float]


def waits(name: str, *, reason: Reason = Reason.NO_FREE_CAPACITY, ago: float = 60, namespace: str = "ns") -> Job:
    since = NOW - timedelta(seconds=ago)
    placed = Condition(type=ConditionType.PLACED, status=Truth.FALSE, reason=reason, message="", last_transition_time=since)
    status = InferenceJobStatus(phase=Phase.WAITING, reason=reason, conditions=[placed])
    return a_job(name, namespace=namespace, status=status, created_ago=1000)


def due(name: str, slack: int | None, *, namespace: str = "ns", outlook: Outlook = Outlook.ON_TIME) -> Job:
    deadline = DeadlineStatus(time=NOW, slack_seconds=slack, outlook=outlook)
    status = InferenceJobStatus(phase=Phase.RUNNING, reason=Reason.RUNNING, deadline=deadline)
    return a_job(name, namespace=namespace, status=status)


def store_of(*jobs: Job) -> Store:
    store = Store()
    for job in jobs:
        store.put_job(job)
    return store


def series(store: Store, name: str) -> Found:
    registry = CollectorRegistry()
    registry.register(ClusterCollector(store, lambda: NOW))
    return {tuple(s.labels.values()): s.value for family in registry.collect() for s in family.samples if s.name == name}


def test_placeholder_pods_are_counted_by_class_and_whether_they_have_a_node() -> None:
    store, job = Store(), a_job()
    store.put_job(job)
    for number, node in enumerate((None, None, "gpu-1")):
        pod = replace(a_pod(job, number), worker=None, placeholder=Placeholder(job.uid, "gpu"), node=node)
        store.put_pod(replace(pod, phase=PodPhase.PENDING))

    assert series(store, "inference_placeholder_pods") == {("gpu", "pending"): 2, ("gpu", "bound"): 1}


def test_jobs_are_counted_by_phase_and_reason() -> None:
    store = store_of(waits("a"), waits("b"), waits("c", reason=Reason.NO_NODE_FITS), due("d", 5))

    assert series(store, "inference_jobs") == {
        ("ns", "batch", "Waiting", "NoFreeCapacity"): 2,
        ("ns", "batch", "Waiting", "NoNodeFits"): 1,
        ("ns", "batch", "Running", "Running"): 1,
    }


def test_words_that_the_operator_does_not_know_make_no_series_of_their_own() -> None:
    odd = [a_job(f"j{n}", status=InferenceJobStatus(phase=f"Phase{n}", reason=f"Reason{n}")) for n in range(9)]

    assert series(store_of(*odd), "inference_jobs") == {("default", "batch", "", "Other"): 9}


def test_a_job_that_is_gone_has_no_series() -> None:
    job = due("a", 5)
    store = store_of(job)
    assert series(store, "inference_job_slack_seconds") == {("ns", "a"): 5}

    store.drop_job(job.key, job.uid)

    assert [series(store, name) for name in ("inference_jobs", "inference_open_deadlines", "inference_job_slack_seconds")] == [
        {}
    ] * 3


def test_the_longest_wait_counts_from_when_the_job_lost_its_place() -> None:
    store = store_of(waits("a", ago=60), waits("b", ago=90), waits("c", ago=5, namespace="other"))

    assert series(store, "inference_longest_wait_seconds") == {("ns",): 90, ("other",): 5}


def test_slack_is_told_of_the_jobs_that_have_the_least() -> None:
    store = store_of(*(due(f"j{n}", n) for n in range(SLACK_SERIES + 10)), due("unknown", None), due("late", -7))
    found = series(store, "inference_job_slack_seconds")

    assert len(found) == SLACK_SERIES
    assert found["ns", "late"] == -7 and max(found.values()) == SLACK_SERIES - 2


def test_open_deadlines_are_counted_by_outlook() -> None:
    store = store_of(due("a", 5), due("b", -5, outlook=Outlook.AT_RISK), due("c", -9, outlook=Outlook.MISSED))

    assert series(store, "inference_open_deadlines") == {
        ("ns", "batch", "OnTime"): 1,
        ("ns", "batch", "AtRisk"): 1,
        ("ns", "batch", "Missed"): 1,
    }


def test_namespaces_beyond_the_bound_share_a_label() -> None:
    store = store_of(*(waits("j", namespace=f"ns-{n}") for n in range(NAMESPACES + 50)))
    found = series(store, "inference_jobs")

    assert len(found) == NAMESPACES + 1
    assert found[OTHERS, "batch", "Waiting", "NoFreeCapacity"] == 50


def test_workers_are_counted_by_owner_class_and_state() -> None:
    batch, service = a_job("batch"), a_job("service", serve=True)
    store = store_of(batch, service)
    for pod in (a_pod(batch), a_pod(service), a_pod(service, 2, ready=False), a_pod(service, 3, deleting=True)):
        store.put_pod(pod)

    assert series(store, "inference_workers") == {
        ("default", "batch", "cpu", "ready"): 1,
        ("default", "service", "cpu", "ready"): 1,
        ("default", "service", "cpu", "starting"): 1,
        ("default", "service", "cpu", "ending"): 1,
    }


def test_a_pool_has_its_size_and_a_model_its_load_time() -> None:
    profiles = (a_profile(load_seconds=9, observed_ago=100), a_profile(load_seconds=4, observed_ago=10, batch_size=2))
    model = a_model("m", profiles=profiles, warm_pool=WarmPool(min=1))
    store = Store()
    store.models[model.key] = model
    pod = a_pod(a_job())
    assert pod.worker is not None
    store.put_pod(replace(pod, worker=replace(pod.worker, job_uid=model.uid, pool=True)))

    assert series(store, "inference_pool_workers") == {
        ("default", "m", "starting"): 0,
        ("default", "m", "idle"): 1,
        ("default", "m", "busy"): 0,
    }
    assert series(store, "inference_model_load_seconds") == {("default", "m", "cpu"): 4}


def test_nodes_are_counted_by_state() -> None:
    store = Store()
    for node in (a_node("a"), a_node("b"), replace(a_node("c"), ready=False), replace(a_node("d"), unschedulable=True)):
        store.nodes[node.name] = node
    store.silent_nodes = frozenset({"b"})

    assert series(store, "inference_nodes") == {("ready",): 1, ("silent",): 1, ("unready",): 1, ("unschedulable",): 1}

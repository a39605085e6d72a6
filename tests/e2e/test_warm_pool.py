"""Warm pools on the real cluster: a job on a warm worker needs no pod of its own, and no kill loses or doubles its work."""

import json

import pytest

from examples.demo.cluster import wait_for
from examples.demo.steps import answers
from tests.e2e.conftest import Space
from tests.e2e.support import Manifest, a_batch, a_slow_batch, kill_leader, progress, workers


def pool(space: Space, model: str) -> list[Manifest]:
    listed = json.loads(space.kube.run("get", "pods", "-l", f"inference.myorg/model={model}", "-o", "json"))
    return [pod for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]


def ready(space: Space, model: str) -> int:
    return int(space.kube.get("inferencemodel", model).get("status", {}).get("warmPool", {}).get("ready", 0))


def keep_warm(space: Space, model: str, **spec: object) -> None:
    patch = {"spec": {"warmPool": {"claims": ["data"], "accelerator": "cpu", **spec}}}
    space.kube.run("patch", "im", model, "--type=merge", "-p", json.dumps(patch))


@pytest.fixture(scope="module")
def warm(space: Space) -> Space:
    keep_warm(space, "digits", min=1, max=2)
    keep_warm(space, "magika", min=0, max=1, idleSeconds=5)
    wait_for(lambda: ready(space, "digits") == 1, "a warm worker")
    return space


def test_a_job_on_a_warm_worker_has_no_pod_of_its_own(warm: Space) -> None:
    (worker,) = pool(warm, "digits")
    for number in range(3):
        warm.kube.apply(a_batch(f"quick-{number}"))

    for number in range(3):
        job = warm.kube.wait(f"quick-{number}", "Succeeded")
        assert job["status"]["placement"]["pod"] in {pod["metadata"]["name"] for pod in pool(warm, "digits")}
        assert not workers(warm.kube, f"quick-{number}")
        (labels, *_) = answers(warm.folder, f"quick-{number}").values()
        assert len(labels) == job["status"]["progress"]["total"]
    assert worker["metadata"]["name"] in {pod["metadata"]["name"] for pod in pool(warm, "digits")}


def test_a_job_that_asks_for_something_special_gets_its_own_pod(warm: Space) -> None:
    warm.kube.apply(a_batch("special", resources={"requests": {"cpu": "100m"}}))

    assert warm.kube.wait("special", "Succeeded")
    assert workers(warm.kube, "special")


def test_a_pool_starts_from_zero_and_goes_back_to_it(warm: Space) -> None:
    assert not pool(warm, "magika")
    warm.kube.apply(a_batch("woken", model="magika", batchSize=8, input={"uri": "pvc://data/magika/files.npy"}))

    warm.kube.wait("woken", "Succeeded")
    assert not workers(warm.kube, "woken")
    wait_for(lambda: not pool(warm, "magika"), "the pool is given back")


def test_a_job_on_another_model_is_a_colocated_model_once_its_memory_is_known(warm: Space) -> None:
    keep_warm(warm, "digits", min=1, max=2, sharing="SameNamespace")
    model = warm.kube.get("inferencemodel", "magika")
    spec = {"versions": model["spec"]["versions"]}
    warm.kube.apply({"apiVersion": model["apiVersion"], "kind": model["kind"], "metadata": {"name": "files"}, "spec": spec})
    how = {"model": "files", "batchSize": 8, "input": {"uri": "pvc://data/magika/files.npy"}}
    warm.kube.apply(a_batch("alone", **how))
    warm.kube.wait("alone", "Succeeded")
    assert workers(warm.kube, "alone")
    wait_for(lambda: "profiles" in warm.kube.get("inferencemodel", "files").get("status", {}), "what the model takes")

    warm.kube.apply(a_batch("other", **how))
    job = warm.kube.wait("other", "Succeeded")

    assert job["status"]["placement"]["pod"] in {pod["metadata"]["name"] for pod in pool(warm, "digits")}
    assert not workers(warm.kube, "other")
    alone, colocated = (next(iter(answers(warm.folder, name).values())).tolist() for name in ("alone", "other"))
    assert alone == colocated


def test_a_killed_operator_finds_the_task_again(warm: Space) -> None:
    warm.kube.apply(a_slow_batch("orphan", warm.folder))
    wait_for(lambda: progress(warm.folder, "orphan") > 0, "first chunk")
    kill_leader(warm.kube)

    job = warm.kube.wait("orphan", "Succeeded")
    assert job["status"]["attempts"] == 1
    assert not workers(warm.kube, "orphan")


def test_a_lost_warm_worker_costs_only_what_was_not_committed(warm: Space) -> None:
    warm.kube.apply(a_slow_batch("moved", warm.folder))
    wait_for(lambda: progress(warm.folder, "moved") > 0, "first chunk")
    (worker,) = pool(warm, "magika")
    warm.kube.run("delete", "pod", worker["metadata"]["name"], "--wait=false")

    job = warm.kube.wait("moved", "Succeeded")
    (first, *_) = answers(warm.folder, "moved").values()
    assert len(first) == job["status"]["progress"]["total"] == 2048
    assert job["status"]["failedAttempts"] == 0

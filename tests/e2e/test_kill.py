"""Kill -9 of the operator, of the worker's process, of its pod, at any point: the job ends once, no answer lost or doubled."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from examples.demo.cluster import wait_for
from tests.e2e.conftest import Space
from tests.e2e.support import (
    a_batch,
    a_slow_batch,
    assert_every_item_answered_once,
    has_progressed,
    kill_leader,
    kill_worker,
    progress,
    truth_of_slow_batches,
    wait_reason,
    workers,
)


@pytest.fixture(scope="module")
def truth(space: Space) -> np.ndarray:
    return truth_of_slow_batches(space.folder)


@pytest.mark.parametrize("threshold", [None, 1, 600])
def test_a_batch_survives_its_operator(threshold: int | None, space: Space, truth: np.ndarray) -> None:
    kube, name = space.kube, f"orphan-{threshold or 0}"
    kube.apply(a_slow_batch(name, space.folder))
    # From before the pod is there to well into the run; the component tests kill at every single write.
    if threshold is not None:
        wait_for(lambda: progress(space.folder, name) >= threshold and bool(workers(kube, name)), f"{threshold} items")
    kill_leader(kube)

    job = kube.wait(name, "Succeeded")

    assert job["status"]["attempts"] == 1
    assert len(workers(kube, name)) == 1
    assert_every_item_answered_once(space.folder, name, truth)


def test_a_batch_survives_its_worker_process(space: Space, truth: np.ndarray) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("struck", space.folder))
    wait_for(lambda: progress(space.folder, "struck") >= 100, "100 items")
    kill_worker(kube.get("ij", "struck")["metadata"]["uid"])

    job = kube.wait("struck", "Succeeded")

    assert job["status"]["attempts"] == 2
    assert job["status"]["failedAttempts"] == 1
    assert_every_item_answered_once(space.folder, "struck", truth)


def test_a_batch_survives_its_pod(space: Space, truth: np.ndarray) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("preempted", space.folder))
    wait_for(lambda: progress(space.folder, "preempted") >= 100, "100 items")
    (pod,) = workers(kube, "preempted")
    kube.run("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")

    job = kube.wait("preempted", "Succeeded")

    # Somebody else's deletion is no fault of the work.
    assert job["status"]["failedAttempts"] == 0
    assert_every_item_answered_once(space.folder, "preempted", truth)


def test_a_worker_that_always_dies_is_given_up_with_its_last_words(space: Space) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("hopeless", space.folder, maxAttempts=2))
    uid = kube.get("ij", "hopeless")["metadata"]["uid"]
    for attempt in (1, 2):
        wait_reason(kube, "hopeless", "Running")
        wait_for(partial(has_progressed, space.folder, "hopeless", least=attempt), f"attempt {attempt} works")
        kill_worker(uid)
        if attempt == 1:
            wait_for(lambda: kube.get("ij", "hopeless")["status"].get("failedAttempts") == 1, "a failure is counted")

    job = kube.wait("hopeless", "Succeeded=False")
    message = next(c["message"] for c in job["status"]["conditions"] if c["type"] == "Stalled")
    assert "2 of 2 attempts failed" in message
    assert "exit code 137" in message


def test_a_serving_job_replaces_a_killed_worker(space: Space) -> None:
    from tests.e2e.support import a_job

    kube = space.kube
    kube.apply(a_job("guarded", serve={"minReplicas": 2}))
    job = kube.wait("guarded", "Ready")
    kill_worker(job["metadata"]["uid"])

    wait_for(lambda: kube.get("ij", "guarded")["status"]["attempts"] >= 3, "a third worker")
    kube.run("wait", "ij/guarded", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s")


def test_a_plain_batch_is_written_at_most_five_times(space: Space) -> None:
    import subprocess
    import sys

    from examples.demo.cluster import ROOT

    kube = space.kube
    kube.apply(a_batch("counted"))
    kube.wait("counted", "Succeeded")
    status = subprocess.run(
        [sys.executable, "-m", "dev.cluster", "status", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    audit = Path(json.loads(status.stdout)["auditLog"])
    (pod,) = workers(kube, "counted")
    ours = {"counted", pod["metadata"]["name"]}
    writes = []
    for line in audit.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef", {})
        created = json.dumps(event.get("responseObject", {}).get("metadata", {}).get("name")) if event["verb"] == "create" else ""
        if (
            event["verb"] in ("create", "update", "patch", "delete")
            and event["user"]["username"].startswith("system:serviceaccount:inference-system:")
            and reference.get("namespace") == space.name
            and (reference.get("name") in ours or pod["metadata"]["name"] in created)
        ):
            writes.append((event["verb"], reference["resource"], reference.get("subresource", "")))

    assert 0 < len(writes) <= 5, writes

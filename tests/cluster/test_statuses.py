"""Statuses as the real operator writes them: what `kubectl wait`, kstatus and the API server make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.client import jobs, models, pods
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import LATER, a_batch, a_job, a_model, condition, reason
from tests.cluster.operators import FAILURE, PATIENCE_SECONDS, PROBLEM, SUCCESS, Installed, until, writes_of
from tests.kstatus import kstatus

if TYPE_CHECKING:
    import subprocess

    from tests.cluster.conftest import Cluster


@pytest.fixture
def space(cluster: Cluster, installed: Installed) -> str:
    """A namespace under the restricted Pod Security level, with a model: what is admitted here is admitted anywhere."""
    name = make_namespace(cluster.client, **{"pod-security.kubernetes.io/enforce": "restricted"})
    cluster.client.create(models(name), a_model())
    return name


def test_a_batch_that_succeeds(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_batch(deadline=LATER))
    waiting = _wait(cluster, space, "condition=Succeeded")
    ready = _wait(cluster, space, "condition=Ready")
    assert kstatus(installed.wait_reason(space, "Starting")) == "InProgress"

    installed.play(space, SUCCESS)
    job = installed.wait_reason(space, "Succeeded")

    assert kstatus(job) == "Current"
    assert (waiting.wait(timeout=PATIENCE_SECONDS), ready.wait(timeout=PATIENCE_SECONDS)) == (0, 0)
    status = job["status"]
    assert (status["phase"], status["attempts"], status["deadline"]["outlook"]) == ("Succeeded", 1, "Met")
    assert status["progress"] == {"total": 2, "completed": 2, "failed": 0}
    assert status["output"]["data"] == SUCCESS.output
    assert cluster.client.get(f"{models(space)}/digits")["status"]["profiles"][0]["itemsPerSecond"] == 100


def test_a_batch_that_fails_for_good(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_batch())
    waiting = _wait(cluster, space, "condition=Stalled")

    installed.play(space, FAILURE)
    job = installed.wait_reason(space, "ModelNotFound", kind="Stalled")

    assert kstatus(job) == "Failed"
    assert waiting.wait(timeout=PATIENCE_SECONDS) == 0
    assert condition(job, "Succeeded")["status"] == "False"
    assert "there is no such file" in condition(job, "Stalled")["message"]


def test_a_batch_that_is_tried_again(installed: Installed, cluster: Cluster, space: str) -> None:
    cluster.client.create(jobs(space), a_batch())
    installed.play(space, PROBLEM)
    assert kstatus(installed.wait_reason(space, "Starting", seconds=10)) == "InProgress"

    installed.play(space, SUCCESS, number=2)
    status = installed.wait_reason(space, "Succeeded")["status"]

    assert (status["attempts"], status["failedAttempts"]) == (2, 1)


def test_a_job_that_serves(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_job(deadline=LATER))
    waiting = _wait(cluster, space, "condition=Ready")

    installed.run(installed.worker(space))
    job = installed.wait_reason(space, "Serving")

    assert kstatus(job) == "Current"
    assert waiting.wait(timeout=PATIENCE_SECONDS) == 0
    scale = cluster.client.get(f"{jobs(space)}/job/scale")
    assert (scale["status"]["replicas"], scale["status"]["selector"]) == (1, f"inference.myorg/job-uid={job['metadata']['uid']}")
    chosen = cluster.client.get(f"{pods(space)}?labelSelector={scale['status']['selector']}")["items"]
    assert len(chosen) == 1


def test_a_suspended_job_is_where_its_user_wants_it(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_batch(suspend=True))
    job = installed.wait_reason(space, "Suspended", kind="Suspended")
    assert kstatus(job) == "Current"

    cluster.client.merge(f"{jobs(space)}/job", {"spec": {"suspend": False}})
    installed.play(space, SUCCESS)

    job = installed.wait_reason(space, "Succeeded")
    assert (kstatus(job), condition(job, "Suspended")) == ("Current", {})


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (a_batch(model="nobody"), "ModelUnknown"),
        (a_batch(modelVersion="7"), "ModelVersionUnknown"),
        (a_batch(resources={"requests": {"cpu": "4711"}}), "NoNodeFits"),
        (a_job(nodeSelector={"zone": "moon"}), "NoNodeFits"),
    ],
    ids=["model", "version", "too large", "no such node"],
)
def test_a_job_that_waits_is_in_progress_and_says_why(
    cluster: Cluster, installed: Installed, space: str, job: dict, why: str
) -> None:
    cluster.client.create(jobs(space), job)

    found = installed.wait_reason(space, why)

    assert kstatus(found) == "InProgress"
    assert condition(found, "Ready")["message"]


def test_a_quota_is_told_in_the_servers_words_and_got_over(cluster: Cluster, installed: Installed, space: str) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/pods": "0"}}, "status": {"hard": {"count/pods": "0"}}}
    path = f"/api/v1/namespaces/{space}/resourcequotas"
    cluster.client.create(path, quota)
    # No quota controller runs here: what it would set is set.
    cluster.client.merge(f"{path}/none/status", {"status": {"hard": {"count/pods": "0"}, "used": {"count/pods": "0"}}})
    cluster.client.create(jobs(space), a_batch())

    job = installed.wait_reason(space, "QuotaExceeded")
    assert "exceeded quota: none" in condition(job, "Placed")["message"]
    cluster.client.delete(f"{path}/none")
    installed.play(space, SUCCESS)
    installed.wait_reason(space, "Succeeded")


def test_kubectl_wait_goes_by_the_spec_of_now(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_job())
    installed.run(installed.worker(space))
    installed.wait_reason(space, "Serving")

    cluster.client.merge(f"{jobs(space)}/job", {"spec": {"priority": 5}})

    assert _wait(cluster, space, "condition=Ready").wait(timeout=PATIENCE_SECONDS) == 0
    job = installed.job(space)
    assert job["status"]["observedGeneration"] == job["metadata"]["generation"] == 2


def test_kubectl_wait_still_sees_success_after_a_change_to_a_finished_job(
    cluster: Cluster, installed: Installed, space: str
) -> None:
    cluster.client.create(jobs(space), a_batch())
    installed.play(space, SUCCESS)
    installed.wait_reason(space, "Succeeded")

    cluster.client.merge(f"{jobs(space)}/job", {"spec": {"ttlSecondsAfterFinished": 86_400}})
    until(lambda: installed.job(space)["status"]["observedGeneration"] == 2, "the new generation")

    assert cluster.kubectl("wait", "--for=condition=Succeeded", "ij/job", "-n", space, "--timeout=60s", check=False).returncode == 0


def test_a_service_that_ended_when_it_was_told_to_is_current(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_job(serve={"until": "2026-01-01T00:00:00Z"}))

    job = installed.wait_reason(space, "Ended", kind="Succeeded")

    assert kstatus(job) == "Current"


def test_a_model_with_a_very_long_file_name_gets_a_status(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_batch(model=f"pvc://data/{'m' * 300}.onnx"))

    until(lambda: reason(installed.job(space)), "a status")


@pytest.mark.parametrize("limits", [{"memory": "256Mi"}, {"cpu": "250m"}], ids=["memory", "cpu"])
def test_a_job_that_sets_limits_alone_gets_a_pod(
    cluster: Cluster, installed: Installed, space: str, limits: dict[str, str]
) -> None:
    cluster.client.create(jobs(space), a_batch(resources={"limits": limits}))

    job = until(lambda: installed.job(space) if reason(installed.job(space)) else None, "an answer")

    assert reason(job) == "Starting", condition(job, "Ready")


@pytest.mark.parametrize("name", ["j" * 253, "a.b.c", "0-starts-with-a-digit", "j" + "-" * 60 + "j"])
def test_every_name_that_the_api_takes_gets_workers(cluster: Cluster, installed: Installed, space: str, name: str) -> None:
    cluster.client.create(jobs(space), a_job(name))

    found = until(lambda: cluster.client.get(pods(space))["items"], "a pod")

    assert len(found) == 1
    assert len(cluster.client.get(f"/api/v1/namespaces/{space}/services")["items"]) == 1
    installed.run(found[0])
    installed.wait_reason(space, "Serving", name=name)


def test_a_worker_pod_in_a_restricted_namespace_is_admitted_without_a_warning(
    cluster: Cluster, installed: Installed, space: str
) -> None:
    cluster.client.create(
        jobs(space),
        a_batch(
            input={"uri": "pvc://in/data.npy"},
            output={"uri": "pvc://out/parts"},
            template={"env": [{"name": "APP_A", "value": "1"}]},
        ),
    )
    pod = installed.worker(space)

    assert {v["name"]: "persistentVolumeClaim" in v for v in pod["spec"]["volumes"]} == {
        "tmp": False,
        "claim-0": True,
        "claim-1": True,
        "claim-2": True,
    }
    # The same pod again by hand: kubectl would print what the admission warns of.
    copy = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "copy", "labels": {"a": "b"}}, "spec": pod["spec"]}
    assert cluster.client.call("POST", pods(space), copy, dryRun="All").ok
    relabelled = cluster.kubectl(
        "label", "ns", space, "--overwrite", "--dry-run=server", "pod-security.kubernetes.io/enforce=restricted"
    )
    assert "violate" not in relabelled.stderr


def test_what_others_write_into_a_status_is_no_reason_to_write_for_ever(cluster: Cluster, installed: Installed, space: str) -> None:
    path = f"{jobs(space)}/job/status"
    cluster.client.create(jobs(space), a_batch(suspend=True))
    installed.wait_reason(space, "Suspended", kind="Suspended")
    stamp = {"status": "True", "reason": "Seen", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    audited = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "metadata": {"name": "job", "namespace": space}}
    theirs = {**audited, "status": {"conditions": [{"type": "Audited", **stamp}]}}
    assert cluster.client.apply(path, theirs, manager="auditor").ok
    cluster.client.merge(path, {"status": {"deadline": {"time": LATER, "outlook": "OnTime"}}})

    until(lambda: "deadline" not in installed.job(space)["status"], "a field that the job has not goes")
    # Whoever comes later has been looked at: by then the first would have been written again.
    cluster.client.create(jobs(space), a_batch("later", suspend=True))
    installed.wait_reason(space, "Suspended", name="later", kind="Suspended")
    assert condition(installed.job(space), "Audited")["reason"] == "Seen"
    assert writes_of(cluster)[space, "job"] <= 5


def test_pods_and_service_go_with_their_job(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_job())
    installed.worker(space)
    until(lambda: cluster.client.get(f"/api/v1/namespaces/{space}/services")["items"], "the Service")

    cluster.kubectl("delete", "ij/job", "-n", space, "--timeout=60s")

    until(lambda: not cluster.client.get(pods(space))["items"], "the garbage collector")
    until(lambda: not cluster.client.get(f"/api/v1/namespaces/{space}/services")["items"], "the garbage collector")


def _wait(cluster: Cluster, space: str, what: str) -> subprocess.Popen[str]:
    """`kubectl wait` as a user's script runs it: behind the apply, since it fails at once for what is not there."""
    return cluster.start_kubectl("wait", f"--for={what}", "ij/job", "-n", space, "--timeout=60s")

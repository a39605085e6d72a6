"""What users do to jobs: suspend, delete, change, scale, wait; long names, equal names, time to live."""

import hashlib
import json

import numpy as np
import pytest

from examples.demo.cluster import wait_for
from examples.demo.steps import answers
from tests.e2e.conftest import Space
from tests.e2e.support import a_batch, a_job, a_slow_batch, condition, progress, reason, wait_reason, workers
from tests.kstatus import kstatus
from tests.outputs import committed_chunks


def test_a_suspended_batch_goes_on_where_it_was(space: Space) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("pausing", space.folder))
    wait_for(lambda: progress(space.folder, "pausing") > 0, "first chunk")

    kube.run("patch", "ij", "pausing", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    suspended = kube.wait("pausing", "Suspended")
    wait_for(lambda: not [p for p in workers(kube, "pausing") if p["status"]["phase"] == "Running"], "no worker")
    before = progress(space.folder, "pausing")
    assert kstatus(suspended) == "Current"
    assert 0 < before < 2048

    kube.run("patch", "ij", "pausing", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    job = kube.wait("pausing", "Succeeded")
    first, *_ = answers(space.folder, "pausing").values()
    lines = committed_chunks(space.folder / "out" / "pausing")
    assert len(first) == 2048
    assert {line["attempt"] for line in lines if line["end"] <= before} == {1}
    assert job["status"]["failedAttempts"] == 0


def test_a_deleted_job_takes_its_worker_with_it(space: Space) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("doomed", space.folder))
    wait_for(lambda: bool(workers(kube, "doomed")), "a worker")

    kube.run("delete", "ij", "doomed", "--timeout=60s")

    wait_for(lambda: not workers(kube, "doomed"), "the worker is gone")


def test_a_changed_spec_is_what_runs(space: Space) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("changing", space.folder))
    wait_for(lambda: progress(space.folder, "changing") > 0, "first chunk")

    kube.apply(a_slow_batch("changing", space.folder, batchSize=4, input={"uri": "pvc://data/magika/files.npy"}))

    job = kube.wait("changing", "Succeeded")
    first, *_ = answers(space.folder, "changing").values()
    assert len(first) == 512
    assert job["status"]["failedAttempts"] == 0
    assert job["status"]["observedGeneration"] == 2


def test_a_finished_job_goes_when_its_time_to_live_is_up(space: Space) -> None:
    kube = space.kube
    kube.apply(a_batch("brief", ttlSecondsAfterFinished=1))

    wait_for(lambda: not kube.run("get", "ij", "brief", "--ignore-not-found"), "the job is gone")


@pytest.mark.parametrize("name", ["x" + "y" * 251 + "z", "dotted.name." + "n" * 230])
def test_a_name_at_the_limit_works(name: str, space: Space) -> None:
    kube = space.kube
    kube.apply(a_batch(name, output={"uri": f"pvc://data/out/long-{name[:6]}"}), a_job(f"s{name[1:]}", serve={}))

    kube.wait(name, "Succeeded")
    kube.wait(f"s{name[1:]}", "Ready")


def test_two_jobs_of_one_name_in_two_namespaces_do_not_meet(space: Space, other_space: Space) -> None:
    for one in (space, other_space):
        one.kube.apply(a_batch("twin"), a_job("twins", serve={}))

    for one in (space, other_space):
        one.kube.wait("twin", "Succeeded")
        job = one.kube.wait("twins", "Ready")
        assert f".{one.name}.svc" in job["status"]["endpoint"]
        assert len(workers(one.kube, "twins")) == 1


def test_a_re_created_job_deletes_no_finished_answers(space: Space) -> None:
    kube = space.kube
    kube.apply(a_batch("again"))
    kube.wait("again", "Succeeded")
    manifest = space.folder / "out" / "again" / "manifest.json"
    before = manifest.read_bytes()
    kube.run("delete", "ij", "again")
    kube.apply(a_batch("again"))

    job = kube.wait("again", "Succeeded")
    assert job["status"]["progress"]["completed"] == 599
    assert manifest.read_bytes() == before

    kube.run("delete", "ij", "again")
    kube.apply(a_batch("again", input={"uri": "pvc://data/digits/heldout.npz", "allowNonFinite": True}))
    refused = kube.wait("again", "Stalled")
    assert reason(refused) == "OutputConflict"
    assert len(answers(space.folder, "again")["label"]) == 599


def test_a_firm_deadline_stops_the_work_and_keeps_what_is_done(space: Space) -> None:
    from datetime import UTC, datetime, timedelta

    kube = space.kube
    due = (datetime.now(UTC) + timedelta(seconds=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    # No profile at this model URI, so that the job is let in and the clock decides.
    kube.apply(
        a_slow_batch("cut", space.folder, repeat=16, model="pvc://data/magika/model.onnx", deadline=due, deadlinePolicy="Firm")
    )

    job = kube.wait("cut", "Stalled")
    assert reason(job) == "DeadlineExceeded"
    assert job["status"]["deadline"]["outlook"] == "Missed"
    wait_for(lambda: all(p["status"]["phase"] != "Running" for p in workers(kube, "cut")), "the worker has stopped")
    assert 0 < progress(space.folder, "cut") < 8192


def test_gpus_that_are_all_taken_are_waited_for_and_then_had(space: Space) -> None:
    kube = space.kube
    # Whatever other tests left on the GPUs, four replicas take all that is there or wait for it.
    kube.apply(a_job("hog", accelerator="gpu", serve={"minReplicas": 4}))
    kube.wait("hog", "Ready")
    kube.apply(a_batch("patient", accelerator="gpu"))

    job = wait_reason(kube, "patient", "NoFreeCapacity")
    assert "nvidia.com/gpu" in condition(job, "Placed")["message"]
    assert kstatus(job) == "InProgress"

    kube.run("delete", "ij", "hog")
    kube.wait("patient", "Succeeded")


def test_scaling_moves_workers_and_scale_reads_them(space: Space) -> None:
    kube = space.kube
    kube.apply(a_job("scaled", serve={"minReplicas": 1, "maxReplicas": 3}))
    kube.wait("scaled", "Ready")

    kube.run("scale", "ij", "scaled", "--replicas=3")
    kube.run("wait", "ij/scaled", "--for=jsonpath={.status.readyReplicas}=3", "--timeout=60s")
    scale = json.loads(kube.run("get", "--raw", f"/apis/inference.myorg/v1/namespaces/{space.name}/inferencejobs/scaled/scale"))
    assert scale["status"]["replicas"] == 3
    assert scale["status"]["selector"].startswith("inference.myorg/job-uid=")

    kube.run("scale", "ij", "scaled", "--replicas=1")
    kube.run("wait", "ij/scaled", "--for=jsonpath={.status.readyReplicas}=1", "--timeout=60s")


def test_a_serving_job_that_is_suspended_gives_its_workers_back(space: Space) -> None:
    kube = space.kube
    kube.apply(a_job("resting", serve={}))
    kube.wait("resting", "Ready")

    kube.run("patch", "ij", "resting", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    job = kube.wait("resting", "Suspended")
    wait_for(lambda: not workers(kube, "resting"), "no worker")
    assert kstatus(job) == "Current"

    kube.run("patch", "ij", "resting", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    kube.wait("resting", "Ready")


def test_kstatus_reads_success_and_failure(space: Space) -> None:
    kube = space.kube
    kube.apply(a_batch("fine"), a_batch("broken", input={"uri": "pvc://data/absent.npy"}))

    assert kstatus(kube.wait("fine", "Succeeded")) == "Current"
    assert kstatus(kube.wait("broken", "Succeeded=False")) == "Failed"


def test_a_model_comes_over_http_when_its_digest_is_right(space: Space) -> None:
    kube = space.kube
    image = kube.get("pod", workers(kube, "fine")[0]["metadata"]["name"])["spec"]["containers"][0]["image"]
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "files", "labels": {"app": "files"}},
            "spec": {
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": "files",
                        "image": image,
                        "command": ["python3", "-m", "http.server", "8080", "--directory", "/data"],
                        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "files"},
            "spec": {"selector": {"app": "files"}, "ports": [{"port": 8080}]},
        },
    )
    kube.run("wait", "pod/files", "--for=condition=Ready", "--timeout=60s")
    digest = f"sha256:{hashlib.sha256((space.folder / 'digits' / 'model.onnx').read_bytes()).hexdigest()}"
    url = f"http://files.{space.name}.svc.cluster.local:8080/digits/model.onnx"
    kube.apply(
        a_batch("fetched", model=url, modelDigest=digest),
        a_batch("swapped", model=url, modelDigest="sha256:" + "1" * 64),
        a_batch("absent", model=f"{url}.none", modelDigest=digest),
    )

    assert kube.wait("fetched", "Succeeded")["status"]["model"]["verified"] is True
    assert reason(kube.wait("swapped", "Stalled")) == "ModelDigestMismatch"
    assert reason(kube.wait("absent", "Stalled")) == "ModelNotFound"


def test_inline_answers_come_back_in_the_status(space: Space) -> None:
    kube = space.kube
    pixels = np.load(space.folder / "digits" / "heldout.npz")["pixels"][:2]
    data = "\n".join(json.dumps({"pixels": row.tolist()}) for row in pixels)
    kube.apply({**a_job("inline"), "spec": {"model": "digits", "accelerator": "cpu", "batchSize": 2, "input": {"data": data}}})

    job = kube.wait("inline", "Succeeded")
    told = [json.loads(line)["label"] for line in job["status"]["output"]["data"].splitlines()]
    assert told == np.load(space.folder / "digits" / "labels.npy")[:2].tolist()

"""The stand-in for kubelets and workers: what it says of a pod, and where a next attempt goes on."""

import asyncio

import pytest

from bench.plane.objects import Work
from bench.plane.simulated_kubelets import _ended, _running, _SimulatedPod
from inference_operator.api.names import LABEL_JOB, LABEL_JOB_UID, LABEL_MANAGED_BY, MANAGED_BY
from inference_operator.state.objects import PodPhase
from inference_operator.state.parse_pods import parse_pod

WORK = Work({"cpu": 10.0, "gpu": 2.0}, 100)


def a_pod(*, ours: bool = True) -> dict:
    mine = {LABEL_JOB: "digits", LABEL_JOB_UID: "job-uid", LABEL_MANAGED_BY: MANAGED_BY}
    labels = mine if ours else {"batch.kubernetes.io/job-name": "digits"}
    meta = {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": labels}
    owner = {
        "apiVersion": "inference.myorg/v1" if ours else "batch/v1",
        "uid": "job-uid",
        "kind": "InferenceJob" if ours else "Job",
        "controller": True,
    }
    return {"metadata": meta | {"ownerReferences": [owner]}, "spec": {"nodeName": "cpu-0", "containers": []}}


def a_simulated_pod(*, resumed: int = 0, ours: bool = True) -> _SimulatedPod:
    return _SimulatedPod(a_pod(ours=ours), WORK, "cpu", resumed, stop=asyncio.Event())


def test_a_next_attempt_has_the_rest_to_do() -> None:
    pod = a_simulated_pod(resumed=40)

    assert pod.seconds == pytest.approx(6.0)
    assert [pod.done_after(seconds) for seconds in (0.0, 3.0, 6.0, 60.0)] == [40, 70, 100, 100]


@pytest.mark.parametrize("ours", [True, False])
def test_a_run_knows_its_job_on_both_sides(*, ours: bool) -> None:
    assert (a_simulated_pod(ours=ours).job, a_simulated_pod(ours=ours).owner, a_simulated_pod(ours=ours).ours) == (
        "digits",
        "job-uid",
        ours,
    )


def test_the_operator_reads_what_is_simulated() -> None:
    pod = a_simulated_pod()
    running = parse_pod({**a_pod(), "status": _running(100.0)})
    ended = parse_pod({**a_pod(), "status": _ended(pod, "Succeeded", 100, 100.0, 110.0)})

    assert (running.phase, running.ready) == (PodPhase.RUNNING, True)
    assert ended.phase is PodPhase.SUCCEEDED
    assert ended.report is not None and ended.report.progress is not None
    assert (ended.report.outcome, ended.report.progress.completed) == ("Succeeded", 100)
    assert ended.report.model is not None and ended.report.model.items_per_second == pytest.approx(10.0)


def test_a_stopped_run_is_drained_with_what_it_had() -> None:
    ended = parse_pod({**a_pod(), "status": _ended(a_simulated_pod(resumed=10), "Drained", 55, 100.0, 104.5)})

    assert ended.phase is PodPhase.FAILED
    assert ended.report is not None and ended.report.progress is not None
    assert (ended.report.outcome, ended.report.progress.completed, ended.report.progress.resumed) == ("Drained", 55, 10)

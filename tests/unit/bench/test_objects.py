"""The objects of the loads are what the operator can read, and mean the same on both sides."""

from datetime import UTC, datetime

import msgspec
import pytest

from bench.plane.deadlines import TICK_SECONDS, delayed
from bench.plane.kills import doubled
from bench.plane.kueue import PRIORITIES, bucket
from bench.plane.objects import ANNOTATION_WORK, Work, batch_job, inference_job, model, node, rooms
from bench.plane.simulated_kubelets import PodRun
from bench.plane.stage import outcome
from bench.scheduling.workload import generate
from inference_operator.scheduling.estimate import Assumptions, estimate
from inference_operator.state.parse import parse_job, parse_model, parse_node
from tests.builders import a_subject

WORK = Work({"gpu": 2.0, "cpu": 7.5}, 100)
META = {"namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}


def test_an_inference_job_is_valid_and_its_deadline_keeps_its_microseconds() -> None:
    deadline = datetime(2030, 1, 1, 0, 0, 1, 250_000, tzinfo=UTC)
    job = parse_job(with_meta(inference_job("a", WORK, model="m", deadline=deadline)))

    assert job.invalid is None
    assert job.spec is not None and job.spec.deadline == deadline


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_the_operator_reads_from_the_profile_what_the_kubelets_will_take(device: str) -> None:
    body, status = model("m", WORK)
    read = parse_model(with_meta({**body, "status": status["status"]}))

    found = estimate(
        read, a_subject(None), accelerator=device, batch_size=1, items=100, serving=False, assumed=Assumptions(9.0, 9.0)
    )

    assert found.measured
    assert found.total_seconds == pytest.approx(WORK.seconds[device])


def test_both_sides_tell_the_kubelets_the_same() -> None:
    ours = inference_job("a", WORK, model="m")["spec"]["template"]["annotations"]
    theirs = batch_job("a", WORK, requests={"cpu": "1"})["spec"]["template"]["metadata"]["annotations"]

    assert ours == theirs
    assert msgspec.json.decode(ours[ANNOTATION_WORK], type=Work) == WORK


def test_a_node_is_ready_and_has_room() -> None:
    _, body = node(rooms(1, device="gpu", cpus=0, gpus=2)[0])
    read = parse_node(with_meta(body))

    assert read.ready
    assert (read.allocatable["nvidia.com/gpu"], read.allocatable["cpu"]) == (2, 0)


def test_earlier_deadlines_get_the_more_urgent_classes() -> None:
    found = [bucket(deadline, 100.0) for deadline in (0.0, 4.9, 5.0, 99.9, 100.0)]

    assert found == [0, 0, 1, PRIORITIES - 1, PRIORITIES - 1]


def test_a_delayed_job_takes_longer_than_is_believed() -> None:
    job = generate(0, count=1)[0]
    late = delayed(job, 2 * TICK_SECONDS)

    assert (late.on_gpu, late.on_cpu) == (job.on_gpu + 2, job.on_cpu + 2)
    assert (late.believed_gpu, late.believed_cpu) == (job.believed_gpu, job.believed_cpu)


def test_one_job_that_runs_twice_at_once_is_doubled_and_two_jobs_are_not() -> None:
    pod_runs = [a_run("a", 0, 5), a_run("b", 1, 6), a_run("a", 5, 6)]

    assert doubled(pod_runs) == 0
    assert doubled([*pod_runs, a_run("b", 2, 3)]) == 1


@pytest.mark.parametrize(
    ("kind", "truth", "expected"),
    [("Complete", "True", "Succeeded"), ("Failed", "True", "Failed"), ("Succeeded", "True", "Succeeded"),
     ("Succeeded", "False", "Failed"), ("Succeeded", "Unknown", None), ("SuccessCriteriaMet", "True", None)],
)  # fmt: skip
def test_how_a_job_of_either_kind_ended(kind: str, truth: str, expected: str | None) -> None:
    assert outcome({"status": {"conditions": [{"type": kind, "status": truth}]}}) == expected


def test_a_job_without_status_has_not_ended() -> None:
    assert outcome({}) is None


def a_run(job: str, started: float, ended: float) -> PodRun:
    return PodRun(f"{job}-{started}", job, "cpu", ended - started, started, ended, 0.0, "Succeeded")


def with_meta(body: dict) -> dict:
    return {**body, "metadata": {**META, **body["metadata"]}}

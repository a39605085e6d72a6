"""The README's first command, step by step."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.demo import steps
from examples.demo.cluster import Kubectl
from tests.e2e.conftest import BUILT


@pytest.fixture(scope="module")
def folder(kube: Kubectl) -> Iterator[Path]:
    kube.delete("inferencejobs", "--all")
    folder = steps.prepare(kube, BUILT)
    # A job that is created again gets its finished answers, without a run to measure.
    for output in (folder / "out").iterdir():
        shutil.rmtree(output, ignore_errors=True)
    yield folder
    kube.delete("inferencejobs", "--all")


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.__name__)
def test_the_demo_step_gives_right_answers(step: Callable[[Kubectl, Path], steps.Row], kube: Kubectl, folder: Path) -> None:
    row = step(kube, folder)

    assert row.cells[0] == row.job


def test_a_finished_batch_explains_itself(kube: Kubectl, folder: Path) -> None:
    status = kube.get("inferencejob", "digits-batch")["status"]

    assert status["deadline"]["outlook"] == "Met"
    assert status["deadline"]["slackSeconds"] > 0
    assert status["placement"]["node"] == "cpu-1"
    assert status["placement"]["executionProvider"] == "CPUExecutionProvider"
    cost = status["placement"]["cost"]
    terms = ("latency", "latencySeconds"), ("energy", "energyJoules"), ("switch", "switchSeconds")
    assert abs(cost["total"] - sum(cost[f"{weight}Weight"] * cost[term] for weight, term in terms)) <= 0.001
    assert all(a["reason"] for a in status["placement"]["alternatives"])
    assert {a["node"] for a in status["placement"]["alternatives"]} == {"gpu-1"}
    assert 0 < status["latency"]["p50"] <= status["latency"]["p95"] <= status["latency"]["p99"]
    assert status["latency"]["count"] == status["progress"]["completed"] == status["progress"]["total"] == 599
    assert status["model"]["verified"] is True


def test_a_gpu_job_says_that_it_computes_on_the_cpu(kube: Kubectl, folder: Path) -> None:
    placement = kube.get("inferencejob", "lane-gpu")["status"]["placement"]

    assert (placement["accelerator"], placement["node"]) == ("gpu", "gpu-1")
    assert placement["executionProvider"] == "CPUExecutionProvider"


def test_a_late_serving_job_reports_missed(kube: Kubectl, folder: Path) -> None:
    deadline = kube.get("inferencejob", "lane-detection-001")["status"]["deadline"]

    assert deadline["outlook"] == "Missed"
    assert deadline["slackSeconds"] < 0


def test_an_impossible_deadline_is_told_with_the_earliest_possible_one(kube: Kubectl, folder: Path) -> None:
    job = kube.get("inferencejob", "too-late")

    assert "set deadline to" in next(c["message"] for c in job["status"]["conditions"] if c["type"] == "Stalled")
    assert "placement" not in job["status"]

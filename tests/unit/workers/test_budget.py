"""The PodDisruptionBudget of a service: there while several workers are wanted, and never of what is somebody else's."""

from dataclasses import replace

import pytest

from inference_operator.state.objects import Budget, Key
from inference_operator.state.parse import parse_budget
from inference_operator.workers.actions import ApplyBudget, DeleteBudget
from inference_operator.workers.budget import plan_budget
from tests.builders import a_job, observed

JOB = a_job(serve=True)
KEY = Key(JOB.key.namespace, f"{JOB.key.name}-workers")


def a_budget(least: int | None) -> Budget:
    return Budget(KEY, "b", JOB.uid, least)


@pytest.mark.parametrize(("wanted", "least"), [(2, 1), (5, 4)])
def test_all_workers_but_one_stay(wanted: int, least: int) -> None:
    (action,) = plan_budget(observed(JOB), wanted)

    assert isinstance(action, ApplyBudget) and action.uid is None
    assert action.manifest["spec"]["minAvailable"] == least
    assert action.manifest["spec"]["selector"] == {"matchLabels": {"inference.myorg/job-uid": JOB.uid}}
    made = parse_budget({**action.manifest, "metadata": {**action.manifest["metadata"], "uid": "b"}})
    assert made == a_budget(least)
    assert plan_budget(replace(observed(JOB), budget=made), wanted) == ()


@pytest.mark.parametrize(("wanted", "unplaced", "least"), [(5, 2, 2), (3, 1, 1), (3, 2, 1), (2, 1, 1), (2, 2, 1)])
def test_workers_without_a_place_hold_no_drain_back_and_the_last_one_does(wanted: int, unplaced: int, least: int) -> None:
    (action,) = plan_budget(observed(JOB), wanted, unplaced)

    assert isinstance(action, ApplyBudget)
    assert action.manifest["spec"]["minAvailable"] == least


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_worker_holds_no_drain_back(wanted: int) -> None:
    assert plan_budget(observed(JOB), wanted) == ()
    (action,) = plan_budget(replace(observed(JOB), budget=a_budget(1)), wanted)
    assert isinstance(action, DeleteBudget) and action.uid == "b"


@pytest.mark.parametrize("least", [None, 0, 3])
def test_what_somebody_changed_is_changed_back(least: int | None) -> None:
    (action,) = plan_budget(replace(observed(JOB), budget=a_budget(least)), 2)

    assert isinstance(action, ApplyBudget) and action.uid == "b"


def test_a_budget_of_somebody_else_is_none_of_ours() -> None:
    assert parse_budget({"metadata": {"name": "x", "namespace": "d", "uid": "u"}, "spec": {"minAvailable": 1}}) is None

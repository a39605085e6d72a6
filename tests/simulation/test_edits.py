"""One rule for edits of what has ended: a failed job runs anew with its new spec, whatever it failed of."""

from typing import Any

import pytest

from tests.simulation.cluster import Script
from tests.simulation.world import World


def a_world(*outcomes: str, **spec: Any) -> World:
    world = World(scripts={"job": Script(work=5.0, outcomes=outcomes)})
    world.node("cpu-1")
    world.model()
    world.job("job", **spec)
    return world


FAILURES = {
    "its input": "InputInvalid",
    "its model's digest": "ModelDigestMismatch",
    "its memory": "OutOfMemory",
    "its output": "OutputConflict",
}


@pytest.mark.parametrize("what", FAILURES)
def test_an_edit_of_a_failed_batch_runs_it_anew(what: str) -> None:
    world = a_world(FAILURES[what], "Succeeded", maxAttempts=1)
    world.change("job", at=60, batchSize=2)
    world.run(until=150)

    status = world.status("job")
    assert (status["phase"], world.created("job")) == ("Succeeded", 2)
    assert all(condition["observedGeneration"] == 2 for condition in status["conditions"])


def test_a_job_that_ran_anew_and_fails_again_has_all_its_attempts() -> None:
    world = a_world("WorkerFailed", maxAttempts=2)
    world.change("job", at=200, batchSize=2)
    world.run(until=600)

    assert (world.status("job")["phase"], world.created("job"), world.status("job")["failedAttempts"]) == ("Failed", 4, 2)


def test_a_later_deadline_reopens_a_batch_that_its_deadline_has_stopped() -> None:
    world = World(scripts={"job": Script(work=60.0)})
    world.node("cpu-1")
    world.model()
    world.job("job", deadline_at=30, deadlinePolicy="Firm")
    world.change("job", at=60, deadlinePolicy="Soft")
    world.run(until=300)

    assert world.status("job")["phase"] == "Succeeded"


def test_the_time_to_live_may_be_edited_and_runs_nothing() -> None:
    world = a_world("InputInvalid", "Succeeded")
    world.change("job", at=60, ttlSecondsAfterFinished=3600)
    world.run(until=150)

    status = world.status("job")
    assert (status["reason"], world.created("job"), status["observedGeneration"]) == ("InputInvalid", 1, 2)


def test_an_edit_to_what_can_not_run_is_told_of_the_new_spec() -> None:
    world = a_world("InputInvalid")
    world.change("job", at=60, model="unknown")
    world.run(until=150)

    status = world.status("job")
    assert (status["reason"], status["observedGeneration"], status["failedAttempts"]) == ("ModelUnknown", 2, 0)


def test_a_service_that_is_over_serves_again_when_its_end_is_moved() -> None:
    world = World(scripts={})
    world.node("cpu-1")
    world.model()
    world.job("job", batch=False, serve={"until": "2026-04-02T12:00:30Z"})
    world.change("job", at=60, serve={"until": "2030-01-01T00:00:00Z"})
    world.run(until=150)

    assert world.status("job")["phase"] == "Serving"

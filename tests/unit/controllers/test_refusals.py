"""What the API server refuses: for what the object is, which only a change helps, or for what a policy or a quota says now."""

from dataclasses import replace

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.resources import Resources
from inference_operator.controllers.apply import is_invalid
from inference_operator.errors import RefusedError
from inference_operator.settings import Settings
from inference_operator.state.request import job_request
from inference_operator.state.store import Store
from inference_operator.workers.creation import create_retry_time, is_held_up, told
from tests.builders import NOW, a_create_failure, a_job

INVALID = (
    'Pod "x" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'
)
POLICY = "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"


@pytest.mark.parametrize(
    ("status", "message", "invalid"),
    [
        (422, INVALID, True),
        (400, 'Pod in version "v1" cannot be handled as a Pod', True),
        (413, "limit is 3145728", True),
        (422, POLICY, False),
        (400, 'admission webhook "w" denied the request: not today', False),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest"', False),
        (403, 'pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2', False),
    ],
)
def test_only_what_no_policy_could_let_in_is_invalid(status: int, message: str, invalid: object) -> None:
    assert is_invalid(RefusedError(status, "Invalid", message)) is invalid


def test_what_is_invalid_is_tried_again_once_in_five_minutes_and_no_sooner_however_often() -> None:
    failures = [a_create_failure("no", reason=Reason.POD_INVALID, count=count) for count in (0, 5)]

    assert {(create_retry_time(failure, Settings()) - failure.time).total_seconds() for failure in failures} == {300}


def test_what_was_refused_at_a_time_that_is_still_to_come_is_tried_now() -> None:
    """The API server's clock was an hour ahead for a moment, and nothing was made for that hour."""
    held_up = [is_held_up(a_create_failure(ago=ago), Settings(), NOW) for ago in (0.1, -0.1, -3600.0)]

    assert held_up == [True, True, False]


def test_an_edit_of_the_spec_is_tried_at_once_and_other_news_are_not() -> None:
    job = a_job()
    store = Store()
    store.put_job(job)
    store.create_failures[job_request(job.key)] = a_create_failure("no", reason=Reason.POD_INVALID)

    store.put_job(replace(job, resource_version="2", labels={"team": "a"}))
    assert store.create_failures
    assert job.spec is not None
    store.put_job(
        replace(job, resource_version="3", generation=2, spec=replace(job.spec, resources=Resources(requests={"cpu": "1"})))
    )
    assert not store.create_failures


def test_a_runtime_class_that_is_missing_is_told_with_the_class_that_sets_it() -> None:
    """The job had not named one: its accelerator class had."""
    missing = 'pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    failure = replace(a_create_failure(missing, reason=Reason.POD_REFUSED), accelerator="l4")

    assert "accelerators.l4.runtimeClassName in the chart's values" in told(failure)
    assert told(replace(failure, message=POLICY)) == POLICY

"""`kubectl scale` beyond what can be is answered in a condition, not in silence."""

import pytest

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import Serve
from inference_operator.jobs.bounds import bounded
from inference_operator.jobs.outcome import ACCEPTED
from inference_operator.state.objects import Job
from tests.builders import a_job

READY = UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SERVING, "all well")


def told(job: Job) -> UndatedCondition:
    assert job.spec is not None
    accepted, ready = bounded((ACCEPTED, READY), job.spec)
    assert ready == READY
    return accepted


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (a_job(serve=Serve(max_replicas=4), replicas=9), "replicas is 9, above serve.maxReplicas 4; raise serve.maxReplicas"),
        (a_job(serve=Serve(min_replicas=3), replicas=2), "replicas is 2, below serve.minReplicas 3; lower serve.minReplicas"),
        (a_job(serve=True, replicas=0), "replicas is 0, below serve.minReplicas 1; lower serve.minReplicas"),
        (a_job(replicas=3), "replicas is 3, but a batch runs one worker; split the input"),
        (a_job(replicas=0), "replicas is 0, but a batch runs one worker"),
    ],
)
def test_a_number_that_can_not_be_is_told(job: Job, words: str) -> None:
    found = told(job)

    assert (found.status, found.reason) == (Truth.TRUE, Reason.REPLICAS_LIMITED)
    assert found.message.startswith(f"{ACCEPTED.message}; {words}")


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        a_job(serve=True),
        a_job(serve=True, replicas=7),
        a_job(serve=Serve(min_replicas=0), replicas=0),
        a_job(serve=Serve(min_replicas=2, max_replicas=4), replicas=4),
        # What nobody asked for: one is the default.
        a_job(serve=Serve(min_replicas=2)),
    ],
)
def test_a_number_within_bounds_is_not_mentioned(job: Job) -> None:
    assert told(job) == ACCEPTED

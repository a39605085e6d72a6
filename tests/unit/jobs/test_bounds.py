"""`kubectl scale` beyond what can be is answered in a condition, not in silence."""

from dataclasses import replace

import msgspec
import pytest

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition, dated, find
from inference_operator.api.job import Serve
from inference_operator.jobs.bounds import bounded
from inference_operator.jobs.outcome import ACCEPTED
from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.state.objects import Job
from tests.builders import NOW, SETTINGS, a_job, no_room, observed, whole
from tests.unit.jobs.situation import ended
from tests.unit.scheduling.support import decide, status_of, wanted

NO_LIMITS = Limits()
READY = UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SERVING, "all well")


def told(job: Job, limits: Limits = NO_LIMITS) -> UndatedCondition:
    assert job.spec is not None
    accepted, ready = bounded((ACCEPTED, READY), job.spec, job.key.namespace, limits)
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


@pytest.mark.parametrize(("replicas", "reason"), [(3, Reason.REPLICAS_LIMITED), (0, Reason.REPLICAS_LIMITED), (1, Reason.ACCEPTED)])
def test_a_batch_that_is_scaled_after_its_end_says_that_nothing_comes_of_it(replicas: int, reason: Reason) -> None:
    job = ended(a_job())
    (accepted,) = dated((ACCEPTED,), before=(), generation=1, now=NOW)
    spec = a_job(replicas=replicas).spec
    scaled = replace(job, spec=spec, generation=2, status=replace(job.status, conditions=[*job.status.conditions, accepted]))
    status = status_of(decide(observed(scaled)))

    found = find(status.conditions, ConditionType.ACCEPTED)
    assert found is not None and (found.reason, found.observed_generation) == (reason, 2)
    assert ("the job has ended" in found.message) == (reason is Reason.REPLICAS_LIMITED)


def test_a_service_that_has_ended_says_what_starts_workers_again() -> None:
    over = a_job(serve=Serve(until=whole(NOW)), replicas=5)

    assert "whatever replicas is" in " ".join(each.message for each in status_of(decide(observed(over))).conditions)


def test_a_priority_above_the_namespaces_cap_is_told_and_not_silently_lowered() -> None:
    found = told(a_job(priority=1000), Limits(max_priority=100))

    assert (found.status, found.reason) == (Truth.TRUE, Reason.PRIORITY_LIMITED)
    assert "priority is 1000, but jobs of namespace default have 100 at most, and so has this one" in found.message
    assert "set priority to 100, or ask the administrator to raise maxPriority" in found.message


def test_a_priority_within_the_cap_is_nothing_to_tell() -> None:
    assert told(a_job(priority=100), Limits(max_priority=100)) == ACCEPTED


def test_replicas_and_priority_are_both_told_where_both_are_limited() -> None:
    found = told(a_job(priority=7, replicas=3), Limits(max_priority=5))

    assert found.reason is Reason.REPLICAS_LIMITED
    assert "replicas is 3" in found.message and "priority is 7" in found.message


def test_a_limited_priority_stands_in_the_status_of_the_job() -> None:
    settings = msgspec.structs.replace(SETTINGS, namespace_limits=NamespaceLimits(overrides={"default": Limits(max_priority=10)}))
    seen = observed(a_job(priority=50))
    status = status_of(decide(seen, no_room, settings=settings))

    accepted = find(status.conditions, ConditionType.ACCEPTED)
    assert accepted is not None and accepted.reason == Reason.PRIORITY_LIMITED.value
    assert (request := wanted(seen, settings=settings)) is not None and request.priority == 10
    # So it is one of the slack of services, too.
    assert request.slack is not None

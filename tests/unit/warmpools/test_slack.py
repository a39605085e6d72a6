"""What a service lends of its workers: nothing while its target is near, one batch a worker, and a cautious share of the rest."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.job import InferenceJobSpec, Input, Serve, Slack
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus, SlackPlacement
from inference_operator.api.resources import Resources
from inference_operator.api.storage import Storage
from inference_operator.scheduling.slack_types import ServiceSlack
from inference_operator.state.load import Load, Recommendation, ScalingMetrics
from inference_operator.state.objects import Job, PodPhase
from inference_operator.warmpools.slack import Lender, lender, lent, slack_task, taken_back
from inference_operator.workers.template_hash import template_placement
from tests.builders import NOW, SETTINGS, a_job, a_load, a_model, a_pod, observed, resolved_of, some_scaling_metrics, whole

MODEL = a_model()
SERVE = Serve(latency_target_milliseconds=50, slack=Slack(claims=["data"]))
SERVICE = a_job("web", model="m", serve=SERVE, replicas=2, batch_size=8)
PODS = tuple(a_pod(SERVICE, number, model=MODEL) for number in (1, 2))


def a_lender(job: Job = SERVICE, *, is_whole: bool = True) -> Lender | None:
    return lender(resolved_of(observed(job, model=MODEL)), PODS, is_whole=is_whole)


def the_lender(*, is_whole: bool = True) -> Lender:
    found = a_lender(is_whole=is_whole)
    assert found is not None
    return found


def under(load: Load | None, *, taken: Any = (), is_whole: bool = True, **more: Any) -> ServiceSlack:
    metrics = some_scaling_metrics(load, ready=2, **more) if load is not None else None
    return lent(the_lender(is_whole=is_whole), metrics, taken)


def changed(**spec: Any) -> Job:
    assert SERVICE.spec is not None
    return replace(SERVICE, spec=replace(SERVICE.spec, **spec))


def test_a_service_at_half_load_lends_half_of_the_rest() -> None:
    found = under(a_load(0.01, busy=0.8))

    assert [(one.pod, one.share) for one in found.workers] == [(PODS[0].key, 0.3), (PODS[1].key, 0.3)]
    assert dict(found.mounts) == {"data": True} and not found.closed


def test_a_worker_that_has_a_batch_is_not_lent_again() -> None:
    assert [one.pod for one in under(a_load(0.01), taken={PODS[0].key}).workers] == [PODS[1].key]


@pytest.mark.parametrize(
    "spec",
    [
        {"serve": None},
        {"serve": Serve(latency_target_milliseconds=50)},
        {"serve": Serve(slack=Slack())},
        {"suspend": True},
    ],
    ids=["no serve", "not said", "no target", "suspended"],
)
def test_only_a_service_that_says_so_lends(spec: dict[str, Any]) -> None:
    assert a_lender(changed(**spec)) is None


CLOSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"load": None}, "its load is not known yet"),
    "a short window": ({"load": a_load(0.01, seconds=9.0)}, "its load is not known yet"),
    "silent workers": ({"load": a_load(0.01), "measured": 1}, "not all of its workers say how they stand"),
    "rolls out": ({"load": a_load(0.01), "is_whole": False}, "not all of its workers answer, or it rolls out"),
    "near the target": ({"load": a_load(0.045)}, "its p95 latency of 45 ms is too near to its target of 50 ms"),
    "asks for more": ({"load": a_load(0.01), "recommendation": Recommendation(3)}, "its load asks for 3 workers, and it has 2"),
    "busy": ({"load": a_load(0.01, busy=1.7)}, "requests take 85% of its workers' time"),
    "piling up": ({"load": a_load(0.01, busy=1.0, demand=1.9)}, "requests take 95% of its workers' time"),
}


@pytest.mark.parametrize("why", CLOSED)
def test_a_service_whose_target_would_be_at_risk_lends_nothing(why: str) -> None:
    how, words = CLOSED[why]
    found = under(**how)

    assert (found.closed, found.workers) == (words, ())


@given(
    st.floats(0, 4, allow_nan=False),
    st.floats(0, 4, allow_nan=False),
    st.none() | st.floats(0.0001, 0.3),
    st.floats(0, 60),
    st.integers(0, 2),
)
def test_whatever_the_load_no_target_is_at_risk_by_what_is_lent(
    busy: float, demand: float, p95: float | None, seconds: float, measured: int
) -> None:
    load = a_load(p95, busy=busy, demand=demand, seconds=seconds) if p95 is not None else Load(seconds, busy=busy, demand=demand)
    metrics = some_scaling_metrics(load, ready=2, measured=measured)
    found = lent(the_lender(), metrics, ())

    for worker in found.workers:
        assert 0 < worker.share <= 0.5 * (1 - max(busy, demand) / 2) + 1e-6
        assert p95 is None or p95 <= 0.8 * 0.05
        assert measured == 2
        # What may begin is not given back by the same look.
        assert taken_back(0.05, metrics) is None
    assert bool(found.workers) != bool(found.closed)


BACK: dict[str, tuple[ScalingMetrics | None, str | None]] = {
    "on target": (some_scaling_metrics(a_load(0.045)), None),
    "over the target": (some_scaling_metrics(a_load(0.06)), "its p95 latency is 60 ms, and its target 50 ms"),
    "a few slow ones": (some_scaling_metrics(a_load(0.06, count=19)), None),
    "asks for more": (
        some_scaling_metrics(a_load(0.01), recommendation=Recommendation(2)),
        "its load asks for 2 workers, and it has 1",
    ),
    "busy": (some_scaling_metrics(a_load(0.01, busy=0.95)), "requests take 95% of its workers' time"),
    "unknown": (None, None),
}


@pytest.mark.parametrize("why", BACK)
def test_when_a_service_takes_its_slack_back(why: str) -> None:
    metrics, words = BACK[why]

    assert taken_back(0.05, metrics) == words


def barred(status: InferenceJobStatus | None = None, failed: int = 0, **spec: Any) -> str:
    batch = a_job("batch", model="m", items=10, status=status, **spec)
    task = slack_task(resolved_of(observed(batch, model=MODEL)), failed, SETTINGS)
    assert task is not None
    return task.barred


def in_slack(reason: str) -> InferenceJobStatus:
    placement = replace(template_placement("cpu"), slack=SlackPlacement(service="web", share=0.2))
    attempt = AttemptStatus(number=1, pod="web-1", outcome=AttemptOutcome.DISRUPTED, reason=reason, end_time=whole(NOW))
    return InferenceJobStatus(attempts=1, placement=placement, last_attempt=attempt)


def test_which_batches_run_in_no_slack() -> None:
    assert not barred()
    assert "worker of its own" in barred(resources=Resources(requests={"cpu": "2"}))
    stored = Input(uri="s3://rows/x.npy", storage=Storage(aws_role_arn="arn:aws:iam::123456789012:role/in"))
    assert "input.storage" in barred(input=stored)
    assert "has failed" in barred(failed=1)
    assert "made room 9 times" in barred(InferenceJobStatus(preemptions=9))
    # A second service must not end by what may have ended the first.
    assert "ended under the attempt before" in barred(in_slack("WorkerLost"))
    assert not barred(in_slack("Terminated"))


def test_a_service_itself_asks_for_no_slack() -> None:
    assert slack_task(resolved_of(observed(SERVICE, model=MODEL)), 0, SETTINGS) is None


def test_a_worker_that_does_not_answer_is_not_lent() -> None:
    silent = replace(PODS[0], phase=PodPhase.PENDING, address=None)
    found = lender(resolved_of(observed(SERVICE, model=MODEL)), (silent,), is_whole=True)

    assert found is not None and not found.slack.workers


def test_the_spec_of_a_service_names_the_claims_of_its_batches() -> None:
    assert isinstance(SERVICE.spec, InferenceJobSpec)
    assert resolved_of(observed(SERVICE, model=MODEL)).claims == {"data": True}

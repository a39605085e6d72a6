"""The end of the worker's container is the end of the attempt, whatever runs on beside it (kubernetes/kubernetes#25908)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from inference_operator.api.conditions import ConditionType, Reason, find, is_true
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus
from inference_operator.jobs.plan import plan
from inference_operator.jobs.state import job_state
from inference_operator.state.objects import Job, Pod, PodPhase, PodProblem
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import Action, DeletePod, WriteStatus
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, SETTINGS, TOKENS, a_job, a_pod, a_report, observed

PROXY = ("istio-proxy",)
PROBLEM = PodProblem("", "", "istio-init")
RUNNING = InferenceJobStatus(
    attempts=1, last_attempt=AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.RUNNING), start_time=NOW - timedelta(seconds=8)
)
OUT_OF_MEMORY = a_report("Failed", reason=WorkerReason.OUT_OF_MEMORY, message="no memory")


def planned(seen: Observed) -> tuple[Action, ...]:
    return plan(seen, job_state(seen, SETTINGS, NOW), None, SETTINGS, TOKENS, NOW).actions


def told(actions: tuple[Action, ...]) -> InferenceJobStatus:
    (status,) = [action.status for action in actions if isinstance(action, WriteStatus)]
    return status


def deleted(actions: tuple[Action, ...]) -> list[str]:
    return [action.uid for action in actions if isinstance(action, DeletePod)]


def after(job: Job, actions: tuple[Action, ...]) -> Job:
    return replace(job, status=told(actions))


@pytest.mark.parametrize("report", [a_report(), OUT_OF_MEMORY])
def test_a_batch_ends_with_its_worker_and_its_pod_goes_once_the_status_tells_it(report: object) -> None:
    job = a_job(items=10, max_attempts=1, status=RUNNING)
    pod = a_pod(job, report=report, lingering=PROXY)  # type: ignore[arg-type]

    first = planned(observed(job, pod))
    assert deleted(first) == [], "with the pod its last words would be gone, should the operator die in between"
    assert is_true(told(first).conditions, ConditionType.SUCCEEDED) == (report is not OUT_OF_MEMORY)

    assert deleted(planned(observed(after(job, first), pod))) == [pod.uid]


def test_a_failed_attempt_frees_its_place_before_the_next_one() -> None:
    job = a_job(items=10, status=RUNNING)
    pod = a_pod(job, report=OUT_OF_MEMORY, lingering=PROXY)

    first = planned(observed(job, pod))
    status = told(first)
    assert status.last_attempt is not None and status.last_attempt.outcome is AttemptOutcome.FAILED
    assert status.failed_attempts == 1

    assert deleted(planned(observed(after(job, first), pod))) == [pod.uid]


def test_a_worker_that_ends_beside_nothing_else_is_left_to_its_kubelet() -> None:
    job = a_job(items=10, status=RUNNING)
    pod = a_pod(job, report=a_report())
    pod = replace(pod, ready=False)

    first = planned(observed(job, pod))
    assert is_true(told(first).conditions, ConditionType.SUCCEEDED)
    assert deleted(planned(observed(after(job, first), pod))) == [], "its log would go with it"


def test_a_batch_runs_while_its_worker_is_ready_though_a_proxy_is_not() -> None:
    job = a_job(items=10, status=RUNNING)
    pod = replace(a_pod(job, ready=False), worker_ready=True)

    ready = find(told(planned(observed(job, pod))).conditions, ConditionType.READY)
    assert ready is not None and ready.reason == Reason.RUNNING


def test_a_service_answers_only_where_the_whole_pod_is_ready() -> None:
    job = a_job(serve=True)
    pod = replace(a_pod(job, ready=False), worker_ready=True)

    assert told(planned(observed(job, pod))).ready_replicas == 0


def failed_worker(job: Job, *, ended_ago: float) -> Pod:
    return a_pod(job, report=OUT_OF_MEMORY, lingering=PROXY, ended_ago=ended_ago)


def test_a_service_worker_that_failed_frees_its_place_when_the_next_one_may_start() -> None:
    job = a_job(serve=True)
    fresh, old = failed_worker(job, ended_ago=0.5), failed_worker(job, ended_ago=600)

    assert deleted(planned(observed(job, fresh))) == []
    assert deleted(planned(observed(job, old))) == [old.uid]


def test_a_pod_with_a_proxy_that_can_not_start_says_whose_fault_it_is() -> None:
    job = a_job(items=10, status=RUNNING)
    pod = a_pod(job, phase=PodPhase.FAILED)
    pod = replace(pod, exit_code=None, problem=replace(PROBLEM, reason="Error", message="no iptables"))

    status = told(planned(observed(job, pod)))
    assert status.last_attempt is not None and status.last_attempt.message is not None
    assert status.last_attempt.message == "container istio-init failed before the worker could start: Error: no iptables"

"""Attempts of a batch: judged alike by everyone who looks, each failure counted once, disruptions not at all."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.conditions import Reason
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus
from inference_operator.settings import Settings
from inference_operator.state.objects import Pod, PodPhase, PodProblem
from inference_operator.state.runner import own_attempt
from inference_operator.workers.attempts import Attempts, attempts, backoff_seconds, retry_time
from inference_protocol.messages import TerminationReport
from inference_protocol.reasons import PERMANENT, WorkerReason
from tests.builders import NOW, SETTINGS, a_job, a_pod, a_report, observed, resolved_of, whole
from tests.unit.scheduling.support import after, decide, in_seconds, status_of

FAILED, SUCCEEDED, RUNNING = PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.RUNNING
UNLOADED = TerminationReport("Drained", "told to stop before the model was loaded")
"""What a worker says that its startup probe, or whoever deletes it, ends while it loads."""

BROKEN = a_report("Failed", reason=WorkerReason.INTERNAL)


def judged(*pods: Pod, status: InferenceJobStatus | None = None) -> Attempts:
    job = a_job(status=status)
    return attempts(observed(job, *pods), resolved_of(observed(job)).revisions.combined, NOW)


def ended(state: Attempts) -> tuple[str | None, str | None, int]:
    return (state.ending.outcome if state.ending else None, state.ending.reason if state.ending else None, state.failed)


def remembering(
    number: int, outcome: AttemptOutcome = AttemptOutcome.RUNNING, *, failed: int = 0, reason: str = "WorkerFailed"
) -> InferenceJobStatus:
    last = AttemptStatus(number=number, pod="p", outcome=outcome, reason=reason, end_time=whole(NOW - timedelta(seconds=1)))
    return InferenceJobStatus(attempts=number, failed_attempts=failed, last_attempt=last)


def test_before_the_first_attempt_nothing_has_happened() -> None:
    assert judged() == Attempts(0, 0, None, None, None)


def test_a_living_pod_is_an_attempt_under_way() -> None:
    pod = a_pod(a_job())
    assert judged(pod) == Attempts(1, 0, own_attempt(pod), None, None)


# How a pod ends.


def gone(phase: PodPhase = FAILED, **how: Any) -> Pod:
    return a_pod(a_job(), phase=phase, **how)


def with_problem(reason: str, **how: Any) -> Pod:
    return gone(problem=PodProblem(reason, ""), **how)


OVER_LIMIT = PodProblem("Evicted", 'Usage of EmptyDir volume "tmp" exceeds the limit "2Gi".', over_limit=True)

ENDINGS = {
    "it is done": (gone(SUCCEEDED, report=a_report()), "Succeeded", "Succeeded", 0),
    "it failed": (gone(report=BROKEN, exit_code=1), "Failed", "WorkerFailed", 1),
    "it failed and gave no reason": (gone(report=a_report("Failed"), exit_code=1), "Failed", "WorkerFailed", 1),
    "its input is bad": (gone(report=a_report("Failed", reason=WorkerReason.INPUT_INVALID)), "Failed", "InputInvalid", 1),
    "another worker has its output": (
        gone(report=a_report("Failed", reason=WorkerReason.OUTPUT_CLAIMED), exit_code=1),
        "Disrupted",
        "OutputClaimed",
        0,
    ),
    "it was drained": (gone(SUCCEEDED, report=a_report("Drained")), "Disrupted", "Terminated", 0),
    "its model took too long to load": (gone(SUCCEEDED, report=UNLOADED), "Failed", "WorkerFailed", 1),
    "somebody deletes it while it loads": (gone(SUCCEEDED, report=UNLOADED, deleting=True), "Disrupted", "Terminated", 0),
    "its node shuts down while it loads": (with_problem("NodeShutdown", report=UNLOADED), "Disrupted", "Terminated", 0),
    "it took too much memory": (with_problem("OOMKilled", exit_code=137), "Failed", "OutOfMemory", 1),
    "its node evicted it": (with_problem("Evicted"), "Disrupted", "WorkerLost", 0),
    "it used more disk than it may": (gone(problem=OVER_LIMIT), "Failed", "WorkerFailed", 1),
    "it used more disk than it may, and stopped in time": (
        gone(SUCCEEDED, problem=OVER_LIMIT, report=a_report("Drained")),
        "Failed",
        "WorkerFailed",
        1,
    ),
    "its node shut down": (with_problem("NodeShutdown"), "Disrupted", "WorkerLost", 0),
    "its node shut down, and it ended in time": (
        gone(SUCCEEDED, exit_code=0, problem=PodProblem("Terminated", "")),
        "Disrupted",
        "WorkerLost",
        0,
    ),
    "it is done although it was told to stop": (gone(SUCCEEDED, report=a_report(), deleting=True), "Succeeded", "Succeeded", 0),
    "its node died and came back": (with_problem("Unknown"), "Disrupted", "WorkerLost", 0),
    "its node came back without its containers": (with_problem("ContainerStatusUnknown"), "Disrupted", "WorkerLost", 0),
    "its node would not take it": (with_problem("UnexpectedAdmissionError"), "Disrupted", "WorkerLost", 0),
    "it crashed": (with_problem("Error", exit_code=139), "Failed", "WorkerFailed", 1),
    "it ended well and said nothing": (gone(SUCCEEDED, exit_code=0), "Failed", "WorkerFailed", 1),
    "somebody deletes it": (gone(RUNNING, deleting=True), "Disrupted", "Terminated", 0),
    "the spec has changed": (gone(RUNNING, revision="old"), "Disrupted", "Terminated", 0),
    "it was killed after it was told to stop": (
        with_problem("Error", exit_code=137, deleting=True),
        "Disrupted",
        "Terminated",
        0,
    ),
    "it finished what is no longer asked for": (gone(SUCCEEDED, report=a_report(), revision="old"), "Disrupted", "Terminated", 0),
}


def test_a_worker_without_its_provider_ends_with_the_name_of_the_class_that_is_to_be_mended() -> None:
    """The worker knows its providers alone, and whoever reads its words does not know whose image to change."""
    lacking = TerminationReport("Failed", "x" * 4000, WorkerReason.PROVIDER_UNAVAILABLE)
    ending = judged(a_pod(a_job(), phase=FAILED, accelerator="gpu", report=lacking)).ending

    assert ending is not None and ending.permanent and ending.message.startswith("x")
    assert "accelerator class gpu" in ending.message and "accelerators.gpu.image" in ending.message
    assert len(ending.message) <= 4096, "as much as a status takes"


@pytest.mark.parametrize("how", list(ENDINGS))
def test_how_an_attempt_ends(how: str) -> None:
    pod, outcome, reason, failed = ENDINGS[how]

    assert ended(judged(pod)) == (outcome, reason, failed)


@pytest.mark.parametrize("phase", [PodPhase.PENDING, RUNNING, PodPhase.UNKNOWN])
def test_a_report_counts_only_once_the_worker_has_ended_whatever_its_pod_is(phase: PodPhase) -> None:
    """kubernetes/kubernetes#25908: what is beside the worker may go on for ever."""
    pod = a_pod(a_job(), phase=phase, report=a_report())

    assert judged(replace(pod, exit_code=None)).ending is None
    assert judged(pod).succeeded


def test_the_newest_attempt_decides() -> None:
    job = a_job()
    old, new = a_pod(job, 1, phase=FAILED, report=BROKEN), a_pod(job, 2)

    for pods in ((old, new), (new, old)):
        state = judged(*pods)
        assert (state.number, state.newest, state.ending) == (2, own_attempt(new), None)


# Pods that are gone.


def test_a_vanished_pod_is_a_disruption() -> None:
    state = judged(status=remembering(1))

    assert ended(state) == ("Disrupted", "WorkerLost", 0)
    assert (state.number, state.newest, state.ended) == (1, None, NOW)


def test_an_older_pod_does_not_stand_for_the_vanished_one() -> None:
    state = judged(a_pod(a_job(), 1, phase=FAILED, report=BROKEN), status=remembering(2, failed=1))

    assert ended(state) == ("Disrupted", "WorkerLost", 1)
    assert state.number == 2


def test_a_status_that_was_never_written_is_made_up_for_by_the_pod() -> None:
    assert judged(a_pod(a_job(), 3)).number == 3


def test_what_was_remembered_of_an_ended_attempt_stands_though_the_pod_is_gone() -> None:
    state = judged(status=remembering(2, AttemptOutcome.FAILED, failed=2))

    assert ended(state) == ("Failed", "WorkerFailed", 2)
    assert state.ended == whole(NOW - timedelta(seconds=1))


def test_a_remembered_success_is_never_taken_back() -> None:
    assert judged(status=remembering(1, AttemptOutcome.SUCCEEDED, reason="Succeeded")).succeeded
    assert judged(a_pod(a_job(), deleting=True), status=remembering(1, AttemptOutcome.SUCCEEDED, reason="Succeeded")).succeeded


def test_a_reason_of_a_newer_operator_is_read_as_a_plain_failure() -> None:
    state = judged(status=remembering(1, AttemptOutcome.FAILED, failed=1, reason="FlewAway"))

    assert ended(state) == ("Failed", "WorkerFailed", 1)


def test_a_worker_on_a_node_out_of_reach_is_disrupted_until_it_is_known_to_have_ended() -> None:
    job = a_job()
    pod, done = a_pod(job), a_pod(job, phase=SUCCEEDED, report=a_report())
    seen, ended_there = observed(job, pod, lost=[pod]), observed(job, done, lost=[done])

    assert ended(attempts(seen, resolved_of(seen).revisions.combined, NOW)) == ("Disrupted", "WorkerLost", 0)
    assert attempts(ended_there, resolved_of(seen).revisions.combined, NOW).succeeded


# Counting.


@given(st.integers(1, 6))
def test_a_failure_counts_once_however_often_it_is_looked_at(looks: int) -> None:
    job = a_job(max_attempts=10)
    seen = observed(job, a_pod(job, phase=FAILED, report=BROKEN, exit_code=1))

    for _ in range(looks):
        seen = after(seen, decide(seen))

    assert seen.job.status.failed_attempts == 1
    assert seen.job.status.attempts == 1


def test_failures_add_up_over_attempts() -> None:
    job = a_job(max_attempts=10, status=remembering(1, AttemptOutcome.FAILED, failed=1))
    seen = observed(job, a_pod(job, 2, phase=FAILED, report=BROKEN, exit_code=1))

    assert status_of(decide(seen)).failed_attempts == 2


@given(st.lists(st.sampled_from(["Failed", "Drained"]), min_size=1, max_size=8))
def test_only_failures_count(outcomes: list[str]) -> None:
    job = a_job(max_attempts=100, status=InferenceJobStatus(observed_generation=1))
    seen = observed(job)
    for number, outcome in enumerate(outcomes, start=1):
        report = a_report("Failed") if outcome == "Failed" else a_report("Drained")
        seen = observed(seen.job, a_pod(job, number, phase=FAILED, report=report))
        seen = after(seen, decide(seen))

    assert seen.job.status.failed_attempts == outcomes.count("Failed")
    assert seen.job.status.attempts == len(outcomes)


# When to try again.


def test_backoff_doubles_up_to_its_limit() -> None:
    settings = Settings(backoff_seconds=2.0, backoff_limit_seconds=30.0)

    assert [backoff_seconds(n, settings) for n in (0, 1, 2, 3, 4, 5, 6, 10_000)] == [0, 2, 4, 8, 16, 30, 30, 30]
    assert [backoff_seconds(n, settings, permanent=True) for n in (0, 1, 5, 8, 9, 10_000)] == [0, 2, 32, 256, 300, 300]


def test_a_failure_is_tried_again_after_its_backoff() -> None:
    pod = a_pod(a_job(), phase=FAILED, report=BROKEN, ended_ago=1)
    state = judged(pod)

    assert pod.ended is not None
    assert retry_time(state, SETTINGS) == pod.ended + timedelta(seconds=2)


def test_a_node_whose_clock_is_ahead_puts_no_attempt_off() -> None:
    """A container's times are its node's: one that was an hour ahead put the next attempt off for an hour."""
    state = judged(a_pod(a_job(), phase=FAILED, report=BROKEN, ended_ago=-3600))

    assert state.ended == NOW
    assert retry_time(state, SETTINGS) == NOW + timedelta(seconds=2)


def test_an_end_at_a_time_that_is_still_to_come_puts_no_attempt_off() -> None:
    """The API server's clock was an hour ahead for a moment, and the job waited for that hour."""
    told = AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.FAILED, reason="Internal", end_time=in_seconds(3600))
    state = judged(status=InferenceJobStatus(attempts=1, failed_attempts=1, last_attempt=told))

    assert retry_time(state, SETTINGS) is None


def test_a_disruption_is_tried_again_at_once() -> None:
    retry = retry_time(judged(a_pod(a_job(), phase=FAILED, problem=PodProblem("Evicted", ""), ended_ago=1)), SETTINGS)

    assert retry is not None and retry <= NOW


def test_there_is_nothing_to_try_again_before_an_end() -> None:
    assert retry_time(judged(), SETTINGS) is None
    assert retry_time(judged(a_pod(a_job())), SETTINGS) is None


def test_disruption_after_disruption_is_tried_again_ever_later() -> None:
    status = InferenceJobStatus(attempts=20, failed_attempts=0, last_attempt=remembering(20, AttemptOutcome.DISRUPTED).last_attempt)
    retry = retry_time(judged(status=status), SETTINGS)

    assert retry is not None and retry > in_seconds(1)


@pytest.mark.parametrize("reason", WorkerReason)
def test_what_would_fail_again_is_permanent(reason: WorkerReason) -> None:
    state = judged(a_pod(a_job(), phase=FAILED, report=a_report("Failed", reason=reason)))

    assert state.ending is not None
    assert state.ending.permanent == (reason in PERMANENT)
    assert isinstance(state.ending.reason, WorkerReason | Reason)

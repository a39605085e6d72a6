"""An output that a later job of this name has claimed, which the API server has not: taken over once, and then a person's matter."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from inference_operator.api.job_status import AttemptOutcome
from inference_operator.api.schema import rfc3339
from inference_operator.state.objects import Job, Pod, PodPhase
from inference_operator.workers.actions import CreatePod
from inference_operator.workers.ending import Ending
from inference_operator.workers.output_claims import claims_since, judge
from inference_protocol.messages import Rival, TerminationReport
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, a_job, a_model, a_pod, a_report, observed, placed_on, whole
from tests.simulation.cluster import config_of
from tests.unit.scheduling.support import after, decide, status_of, wanted

JOB, MODEL = a_job(), a_model()
LATER = Rival("uid-of-a-later-job", rfc3339(NOW - timedelta(seconds=60)))


def claimed(rival: Rival | None) -> TerminationReport:
    told = a_report("Failed", reason=WorkerReason.OUTPUT_CLAIMED, message="attempt 1 of job demo/job (uid other) has claimed 'out'")
    return msgspec.structs.replace(told, rival=rival)


def taken_over(job: Job = JOB) -> Job:
    return replace(job, status=replace(job.status, output_claim_time=whole(NOW)))


def judged(job: Job, rival: Rival | None) -> tuple[AttemptOutcome, bool, str]:
    report = claimed(rival)
    found = judge(job, Ending(AttemptOutcome.DISRUPTED, WorkerReason.OUTPUT_CLAIMED, report.message), report, NOW)
    return found.ending.outcome, found.takes_over, found.ending.message


def test_a_later_job_that_the_api_server_does_not_have_is_outlived() -> None:
    outcome, takes_over, message = judged(JOB, LATER)

    assert (outcome, takes_over) == (AttemptOutcome.DISRUPTED, True)
    assert "has claimed 'out'; this cluster doesn't have that job any more" in message


@pytest.mark.parametrize("rival", [None, Rival(JOB.uid, rfc3339(NOW))])
def test_a_later_attempt_of_the_job_itself_goes_on(rival: Rival | None) -> None:
    outcome, takes_over, message = judged(JOB, rival)

    assert (outcome, takes_over) == (AttemptOutcome.DISRUPTED, False) and message.endswith("has claimed 'out'")


@pytest.mark.parametrize(
    ("job", "rival"),
    [
        (taken_over(), LATER),
        (JOB, Rival("another", rfc3339(NOW + timedelta(seconds=5)))),
        (JOB, Rival("another", "of no calendar")),
    ],
    ids=["it took over before", "a claim of the future", "a claim that is no time"],
)
def test_who_can_not_be_outlived_is_a_persons_matter(job: Job, rival: Rival) -> None:
    outcome, takes_over, message = judged(job, rival)

    assert (outcome, takes_over) == (AttemptOutcome.FAILED, False)
    assert "find out which one does, and set another output.uri" in message


def test_attempts_claim_as_of_the_jobs_creation_or_of_its_takeover() -> None:
    assert claims_since(JOB) == JOB.created and claims_since(taken_over()) == whole(NOW)


def ended() -> Pod:
    return a_pod(JOB, phase=PodPhase.FAILED, exit_code=1, report=claimed(LATER), model=MODEL)


def test_the_next_attempt_waits_for_the_status_and_claims_by_it() -> None:
    seen = observed(JOB, ended(), model=MODEL)
    # No attempt claims anew before the API server has said, by a write to this very job, that it has it.
    assert wanted(seen) is None
    done = decide(seen)
    status = status_of(done)
    assert (status.output_claim_time, status.failed_attempts) == (whole(NOW), 0)
    assert status.last_attempt is not None and status.last_attempt.reason == "OutputClaimed"

    seen = after(seen, done)
    seen = after(seen, decide(seen))
    done = decide(seen, lambda request: placed_on(request, "node-1"))
    (pod,) = [action for action in done.actions if isinstance(action, CreatePod)]
    assert config_of(pod.manifest).created == rfc3339(NOW) > LATER.created
    assert status_of(done).output_claim_time == whole(NOW)


def test_one_that_finds_a_later_claim_again_is_a_failed_attempt() -> None:
    status = status_of(decide(observed(taken_over(), ended(), model=MODEL)))

    assert status.failed_attempts == 1 and status.output_claim_time == whole(NOW)

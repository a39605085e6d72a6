"""The life of a batch in a queue of Kueue's, look by look."""

from dataclasses import replace
from datetime import datetime

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus
from inference_operator.api.model import WarmPool
from inference_operator.api.template import PodTemplate
from inference_operator.state.kueue import KueueApi, Workload
from inference_operator.state.objects import Job, PodPhase
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import (
    CreatePod,
    CreateWorkload,
    DeletePod,
    DeleteWorkload,
    EmitEvent,
    PatchWorkload,
    Plan,
    WriteStatus,
)
from tests.builders import NOW, a_create_failure, a_job, a_model, a_pod, a_reading, a_report, observed, resolved_of
from tests.kueues import QUEUED, admitted, evicted, kueue, made_of, says, waiting
from tests.unit.jobs.situation import LOOKED, ended, on
from tests.unit.scheduling.support import Scheduler, after, decide, facts, in_seconds, kinds, status_of, wanted

JOB = a_job(queue_name="team", status=LOOKED)
RUNS = InferenceJobStatus(
    observed_generation=1, attempts=1, last_attempt=AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.RUNNING)
)
RUNNING = replace(JOB, status=RUNS)


def seen(workload: Workload | None = None, *, job: Job = JOB, runs: bool = False) -> Observed:
    """A batch and its Workload, which was made of it as it is."""
    plain = observed(job, kueue=kueue())
    given = replace(workload, revision=made_of(resolved_of(plain, QUEUED))) if workload is not None else None
    return observed(job, *((a_pod(job),) if runs else ()), kueue=kueue(given))


def look(at: Observed, scheduler: Scheduler | None = None, *, now: datetime = NOW) -> Plan:
    return decide(at, scheduler, now=now, settings=QUEUED)


def patches(done: Plan) -> list[str]:
    return [action.why for action in done.actions if isinstance(action, PatchWorkload)]


def placed(done: Plan, at: Observed) -> tuple[str, str]:
    return facts(status_of(done, at).conditions)["Placed"]


# It waits.


def test_a_new_batch_is_queued_before_anything_is_placed() -> None:
    at = seen()
    done = look(at)

    assert kinds(done) == ("CreateWorkload", "WriteStatus")
    assert wanted(at, settings=QUEUED) is None
    assert status_of(done).phase == "Waiting"
    assert placed(done, at) == ("False", "WaitingForQuota")


def test_it_is_queued_once() -> None:
    at = seen()
    at = after(at, look(at))
    again = look(at)

    assert not [action for action in again.actions if isinstance(action, CreateWorkload)]
    assert look(after(at, again)).actions == ()


def test_it_waits_with_kueues_words() -> None:
    at = seen(waiting(JOB, "insufficient unused quota for nvidia.com/gpu in flavor gpu, 1 more needed"))
    done = look(at)

    assert wanted(at, settings=QUEUED) is None
    assert status_of(done).reason == "WaitingForQuota"
    (ready,) = [c for c in status_of(done).conditions if c.type == "Ready"]
    assert ready.message == "insufficient unused quota for nvidia.com/gpu in flavor gpu, 1 more needed"


def test_a_deadline_that_passes_in_the_queue_is_missed() -> None:
    at = seen(waiting(JOB), job=a_job(queue_name="team", deadline_in=60, status=LOOKED))

    assert look(at).recheck == in_seconds(61)
    due = status_of(look(at, now=in_seconds(61))).deadline
    assert due is not None and due.outlook == "Missed"


def test_a_refused_workload_is_told_and_tried_again() -> None:
    failure = a_create_failure("denied by a webhook", reason=Reason.WORKLOAD_REFUSED)
    at = replace(seen(), create_failure=failure)
    done = look(at)

    assert kinds(done) == ("WriteStatus",)
    assert placed(done, at) == ("False", "WorkloadRefused")
    assert done.recheck == in_seconds(2)
    assert "CreateWorkload" in kinds(look(at, now=in_seconds(3)))


@pytest.mark.parametrize(
    ("settings_of", "api", "words"),
    [
        (False, KueueApi.DISABLED, "set kueue.enabled in the chart"),
        (True, KueueApi.MISSING, "this cluster has no Kueue that serves kueue.x-k8s.io/v1beta2 and may be read: install Kueue"),
    ],
)
def test_where_nobody_queues_it_says_so(*, settings_of: bool, api: KueueApi, words: str) -> None:
    at = observed(JOB, kueue=kueue(api=api))
    done = look(at) if settings_of else decide(at)

    assert kinds(done) == ("WriteStatus",)
    assert facts(status_of(done).conditions)["Accepted"] == ("False", "QueueUnavailable")
    assert words in " ".join(c.message for c in status_of(done).conditions)


def test_what_runs_goes_on_where_kueue_is_away() -> None:
    at = observed(RUNNING, a_pod(RUNNING), kueue=kueue(api=KueueApi.MISSING))

    assert not [a for a in look(at).actions if not isinstance(a, WriteStatus | EmitEvent)]


# It runs.


def test_an_admitted_batch_asks_for_a_place_on_the_nodes_of_its_flavors() -> None:
    request = wanted(seen(admitted(JOB)), settings=QUEUED)

    assert request is not None
    (option,) = request.options
    assert option.requirements.node_selector == (("zone", "a"),)
    assert (request.pool, request.colocated, request.slack) == (None, None, None)


def test_it_gets_a_worker_of_its_own_though_its_model_has_a_pool() -> None:
    pool = a_model("m", warm_pool=WarmPool(min=1))
    queued, plain = a_job(model="m", queue_name="team"), a_job(model="m")
    of_queued = wanted(observed(queued, model=pool, kueue=kueue(admitted(queued))), settings=QUEUED)
    of_plain = wanted(observed(plain, model=pool), settings=QUEUED)

    assert of_plain is not None and of_plain.pool is not None
    assert of_queued is not None and of_queued.pool is None


def test_the_worker_starts_on_those_nodes() -> None:
    at = seen(admitted(JOB))
    done = look(at, on("n"))
    (creation,) = [a for a in done.actions if isinstance(a, CreatePod)]

    assert kinds(done) == ("CreatePod", "WriteStatus")
    assert creation.manifest["spec"]["nodeSelector"]["zone"] == "a"


def test_an_admission_puts_no_attempt_out_of_date() -> None:
    at = seen(admitted(RUNNING, says("PodsReady")), job=RUNNING, runs=True)

    assert not [a for a in look(at).actions if isinstance(a, DeletePod | PatchWorkload)]


def test_kueue_is_told_that_the_worker_runs() -> None:
    at = seen(admitted(RUNNING), job=RUNNING, runs=True)
    done = look(at)

    assert patches(done) == ["its worker runs"]
    assert patches(look(after(at, done))) == []


# It is evicted.


def test_an_eviction_is_told_then_done_then_answered() -> None:
    at = seen(evicted(RUNNING, "preempted to accommodate a workload"), job=RUNNING, runs=True)

    told = look(at)
    status = status_of(told)
    assert kinds(told) == ("WriteStatus",)
    assert status.last_attempt is not None
    assert (status.last_attempt.outcome, status.last_attempt.reason) == ("Disrupted", "Preempted")
    assert (status.failed_attempts, status.preemptions, status.last_preemption) == (0, 1, None)
    assert "evicted by Kueue: preempted to accommodate a workload" in status.conditions[1].message
    assert "Preempted" in [a.reason for a in told.actions if isinstance(a, EmitEvent)]

    at = after(at, told)
    stopped = look(at)
    assert [type(a) for a in stopped.actions if not isinstance(a, WriteStatus)] == [DeletePod]
    at = after(at, stopped)
    assert patches(look(at)) == []

    at = replace(at, pods=())
    given = look(at)
    assert patches(given) == ["what was evicted has stopped"]
    at = after(at, given)
    assert at.kueue.workload is not None and not at.kueue.workload.reserved
    assert wanted(at, settings=QUEUED) is None
    assert placed(look(at), at) == ("False", "WaitingForQuota")


def test_it_goes_on_where_it_was_once_it_is_admitted_again() -> None:
    status = replace(
        RUNS, last_attempt=AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.DISRUPTED, reason="Preempted", end_time=NOW)
    )
    at = seen(admitted(JOB), job=replace(JOB, status=status))
    done = look(at, on("n"))

    assert status_of(done).attempts == 2
    assert status_of(done).failed_attempts == 0


def test_a_workload_that_vanishes_under_an_attempt_is_an_eviction() -> None:
    at = seen(None, job=RUNNING, runs=True)
    done = look(at)

    assert kinds(done) == ("WriteStatus",)
    told = status_of(done).last_attempt
    assert told is not None and "its Workload is gone" in (told.message or "")
    # No other is made while the worker holds its place.
    at = after(at, done)
    assert "CreateWorkload" not in kinds(look(at))
    assert "CreateWorkload" in kinds(look(replace(at, pods=())))


def test_an_eviction_before_a_worker_is_there_is_answered_at_once() -> None:
    assert patches(look(seen(evicted(JOB)))) == ["what was evicted has stopped"]


def test_work_that_is_done_is_done_though_it_is_evicted() -> None:
    pod = a_pod(RUNNING, phase=PodPhase.SUCCEEDED, report=a_report())
    at = replace(seen(evicted(RUNNING), job=RUNNING), pods=(pod,))

    assert status_of(look(at)).phase == "Succeeded"


def test_a_batch_that_may_not_run_gives_its_quota_back_all_the_same() -> None:
    job = replace(RUNNING, spec=a_job(model="unknown", queue_name="team").spec)
    at = observed(job, a_pod(RUNNING), kueue=kueue(evicted(RUNNING)))
    done = look(at)

    assert [type(a) for a in done.actions if isinstance(a, DeletePod | PatchWorkload)] == [DeletePod]
    assert patches(look(replace(at, pods=()))) == ["what was evicted has stopped"]


def test_what_somebody_took_out_of_the_queue_is_left_there() -> None:
    at = seen(waiting(JOB, active=False))
    done = look(at)

    assert kinds(done) == ("WriteStatus",)
    assert placed(done, at) == ("False", "WorkloadInactive")


# It changes.


def test_a_suspended_batch_leaves_the_queue_and_comes_back() -> None:
    stopped = a_job(queue_name="team", suspend=True, status=LOOKED)
    at = seen(waiting(JOB), job=stopped)
    done = look(at)
    assert patches(done) == ["spec.suspend"]
    at = after(at, done)
    assert patches(look(at)) == []

    resumed = look(replace(at, job=JOB))
    assert patches(resumed) == ["it is resumed"]


def test_what_somebody_took_out_of_the_queue_is_not_put_back_by_a_resume() -> None:
    stopped = a_job(queue_name="team", suspend=True, status=LOOKED)
    inactive = waiting(JOB, active=False)

    assert patches(look(seen(inactive, job=stopped))) == []
    assert patches(look(seen(inactive))) == []


def test_a_suspended_batch_gives_its_quota_back_once_its_worker_has_stopped() -> None:
    stopped = replace(RUNNING, spec=a_job(queue_name="team", suspend=True).spec)
    out = evicted(RUNNING, "deactivated", reason="Deactivated", active=False, suspended=True)

    assert patches(look(seen(out, job=stopped, runs=True))) == []
    assert patches(look(seen(out, job=stopped))) == ["what was evicted has stopped"]


def test_a_suspended_batch_without_a_workload_gets_none() -> None:
    assert "CreateWorkload" not in kinds(look(seen(None, job=a_job(queue_name="team", suspend=True))))


def test_a_batch_that_asks_for_something_else_is_queued_anew_but_not_under_its_worker() -> None:
    job = replace(RUNNING, spec=a_job(queue_name="team", node_selector={"zone": "b"}).spec)
    old = replace(admitted(job, says("PodsReady")), revision="of before")

    assert "DeleteWorkload" not in kinds(look(observed(job, a_pod(RUNNING), kueue=kueue(old))))
    waits = observed(replace(job, status=LOOKED), kueue=kueue(replace(waiting(job), revision="of before")))
    done = look(waits)
    assert "DeleteWorkload" in kinds(done)
    assert "CreateWorkload" in kinds(look(after(waits, done)))


def test_a_batch_that_leaves_its_queue_leaves_no_workload() -> None:
    at = observed(a_job(status=LOOKED), kueue=kueue(waiting(JOB)))
    done = look(at, on("n"))

    assert [type(a) for a in done.actions if isinstance(a, CreatePod | DeleteWorkload)] == [CreatePod, DeleteWorkload]


def test_a_workload_that_somebody_has_finished_is_made_anew() -> None:
    at = seen(waiting(JOB))
    assert at.kueue.workload is not None
    finished = replace(at.kueue.workload, conditions=(says("Finished"),))

    assert "DeleteWorkload" in kinds(look(replace(at, kueue=kueue(finished))))


def test_a_changed_priority_is_passed_on_while_it_waits() -> None:
    assert patches(look(seen(waiting(JOB), job=a_job(queue_name="team", priority=5, status=LOOKED)))) == ["its priority is 5"]
    assert patches(look(seen(admitted(JOB), job=a_job(queue_name="team", priority=5, status=LOOKED)), on("n"))) == []


def test_a_priority_class_is_passed_on() -> None:
    job = a_job(queue_name="team", template=PodTemplate(priority_class_name="high"), status=LOOKED)
    at = replace(seen(job=job), kueue=kueue(None, priorities={"high": 9000}))
    (action,) = [a for a in look(at).actions if isinstance(a, CreateWorkload)]

    assert action.manifest["spec"]["priority"] == 9000


# It ends.


def test_the_end_frees_the_quota_once_the_worker_is_gone() -> None:
    job = ended(JOB)
    at = replace(seen(admitted(JOB)), job=job)

    assert patches(look(replace(at, pods=(a_pod(JOB),)))) == []
    done = look(at)
    assert patches(done) == [f"{JOB.key} has ended"]
    assert look(after(at, done)).actions == ()


def test_progress_survives_an_eviction() -> None:
    job = a_job(items=10, queue_name="team", status=RUNS)
    at = seen(evicted(job), job=job, runs=True)
    at = replace(at, readings={at.pods[0].uid: a_reading(progress=(4, 10))})

    assert status_of(look(at)).preemptions == 1

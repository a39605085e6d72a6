"""Batch jobs: what a plan must get right beyond the table of situations."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from inference_operator.api.conditions import Condition, ConditionType, Reason, Truth, find
from inference_operator.api.job import Backend, DeadlinePolicy
from inference_operator.api.job_status import (
    AttemptOutcome,
    AttemptStatus,
    InferenceJobStatus,
    ModelStatus,
    Outlook,
    ProgressStatus,
)
from inference_operator.state.finished import reopened
from inference_operator.state.objects import Job, PodPhase, PodProblem
from inference_operator.state.observed import Observed
from inference_operator.state.parse import parse_job, status_document
from inference_operator.workers.actions import CreatePod, DeletePod, WriteStatus
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import LatencySketch
from tests.builders import (
    NOW,
    OTHER_DIGEST,
    SETTINGS,
    a_create_failure,
    a_fact,
    a_job,
    a_model,
    a_pod,
    a_profile,
    a_reading,
    a_report,
    a_version,
    observed,
    whole,
)
from tests.unit.jobs.situation import LOOKED, full, on
from tests.unit.scheduling.support import after, decide, in_seconds, kinds, settled, status_of

FAILED, SUCCEEDED, PENDING = PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.PENDING


def with_pod(seen: Observed, **changes: object) -> Observed:
    """The snapshot once the kubelet has gone on with the newest pod."""
    return replace(seen, pods=(*seen.pods[:-1], replace(seen.pods[-1], **changes)))  # type: ignore[arg-type]


def messages(done: InferenceJobStatus) -> str:
    return " ".join(c.message for c in done.conditions)


# From creation to the end.


def test_a_job_that_goes_well_costs_one_pod_and_three_writes() -> None:
    done = []
    seen = observed(a_job(deadline_in=600), has_service=False)
    done += [decide(seen, on("node-1"))]
    seen = settled(after(seen, done[-1]))
    seen = with_pod(seen, phase=PodPhase.RUNNING, ready=True, node="node-1")
    done += [decide(seen)]
    seen = settled(after(seen, done[-1]))
    seen = with_pod(seen, phase=SUCCEEDED, ready=False, report=a_report(model=a_fact()), exit_code=0, ended=whole(NOW))
    done += [decide(seen)]
    seen = settled(after(seen, done[-1]))

    assert [kinds(plan) for plan in done] == [("CreatePod", "WriteStatus"), ("WriteStatus",), ("WriteStatus",)]
    assert seen.job.status.phase == "Succeeded"


def test_the_end_tells_all_there_is_to_tell() -> None:
    job = a_job(deadline_in=60, model="m", items=10, status=LOOKED)
    report = a_report(model=a_fact(provider="CUDAExecutionProvider"), total=10, completed=10)
    pod = a_pod(job, phase=SUCCEEDED, report=report, model=a_model(), accelerator="gpu", ended_ago=1)

    status = status_of(decide(observed(job, pod, model=a_model())))

    assert status.deadline is not None
    assert (status.deadline.outlook, status.deadline.slack_seconds) == (Outlook.MET, 61)
    assert status.completion_time == pod.ended
    assert status.placement is not None and status.placement.execution_provider == "CUDAExecutionProvider"
    assert status.model is not None and status.model.verified
    assert status.progress is not None and (status.progress.completed, status.progress.total) == (10, 10)
    assert status.latency is not None and status.latency.count == 10
    assert status.output is not None and status.output.uri == "pvc://data/out"
    assert status.last_attempt is not None and status.last_attempt.outcome is AttemptOutcome.SUCCEEDED


def test_latency_of_a_run_is_told_with_its_progress_and_never_alone() -> None:
    job = a_job(items=100, status=LOOKED)
    pod = a_pod(job, created_ago=100)

    def with_runs(seen: Observed, completed: int, runs: int) -> Observed:
        sketch = LatencySketch()
        for _ in range(runs):
            sketch.record(0.01)
        return replace(seen, readings={pod.uid: a_reading(progress=(completed, 100), sketch=sketch.counts)})

    first = with_runs(observed(job, pod), 50, runs=5)
    told = status_of(decide(first)).latency
    later = with_runs(settled(first), 50, runs=9)

    assert told is not None and told.count == 5
    assert status_of(decide(later), later).latency == told


def test_small_answers_come_in_place() -> None:
    job = a_job(status=LOOKED)
    status = status_of(decide(observed(job, a_pod(job, phase=SUCCEEDED, report=a_report(output='{"y": 1}')))))

    assert status.output is not None and status.output.data == '{"y": 1}'


@pytest.mark.parametrize(("ended_in", "outlook"), [(59, Outlook.MET), (60, Outlook.MET), (61, Outlook.MISSED)])
def test_what_ends_after_its_deadline_has_missed_it(ended_in: float, outlook: Outlook) -> None:
    job = a_job(deadline=whole(in_seconds(60)), status=LOOKED)
    pod = replace(a_pod(job, phase=SUCCEEDED, report=a_report()), ended=whole(in_seconds(ended_in)))
    status = status_of(decide(observed(job, pod), now=in_seconds(100)))

    assert status.deadline is not None
    assert (status.deadline.outlook, status.deadline.slack_seconds) == (outlook, 60 - ended_in)


# Attempts.


def test_the_next_attempt_has_the_next_number() -> None:
    job = a_job(status=LOOKED)
    seen = observed(job, a_pod(job, 4, phase=FAILED, report=a_report("Failed"), ended_ago=60))
    (create,) = [action for action in decide(seen, on("n")).actions if isinstance(action, CreatePod)]

    assert create.assumed.worker is not None and create.assumed.worker.number == 5
    assert create.manifest["metadata"]["name"] == create.assumed.key.name


def test_an_answer_to_an_older_spec_places_nothing() -> None:
    seen = observed(a_job(status=LOOKED))
    done = decide(seen, lambda placement_request: on("n")(replace(placement_request, revision="old")))

    assert not [action for action in done.actions if isinstance(action, CreatePod)]


def test_no_pod_is_created_while_an_older_one_lives() -> None:
    job = a_job(status=LOOKED)
    done = decide(observed(job, a_pod(job, deleting=True)), on("n"))

    assert not [action for action in done.actions if isinstance(action, CreatePod)]


def test_every_living_worker_of_a_finished_job_is_stopped_once() -> None:
    job = a_job(status=LOOKED)
    one, two = a_pod(job, 1), a_pod(job, 2, deleting=True)
    done = decide(observed(job, one, two, a_pod(job, 3, phase=SUCCEEDED, report=a_report())))

    assert [a.uid for a in done.actions if isinstance(a, DeletePod)] == [one.uid]


def test_last_words_are_kept_in_bounds() -> None:
    job = a_job(max_attempts=1, status=LOOKED)
    status = status_of(decide(observed(job, a_pod(job, phase=FAILED, report=a_report("Failed", message="x" * 10_000)))))

    assert status.last_attempt is not None and len(status.last_attempt.message or "") == 4096
    assert len(json.dumps(status_document(status))) < 64 * 1024


def test_a_retry_is_not_announced_before_it_has_a_place() -> None:
    job = a_job(status=LOOKED)
    failed = observed(job, a_pod(job, phase=FAILED, report=a_report("Failed"), ended_ago=1))
    seen = settled(failed)

    assert kinds(decide(seen, now=in_seconds(3))) == ()


# The model changes under a running batch.


def under_way() -> Observed:
    job = a_job(model="m", items=10, status=LOOKED)
    return observed(job, a_pod(job, model=a_model()), model=a_model())


def test_a_measurement_of_its_model_does_not_disturb_a_batch() -> None:
    seen = under_way()
    measured = replace(seen, model=a_model(profiles=[a_profile()]))

    assert "DeletePod" not in kinds(decide(measured))


def test_a_batch_ends_with_the_version_that_it_began_with() -> None:
    newer = a_model("m", a_version("1"), a_version("2", digest=OTHER_DIGEST))
    seen = under_way()
    ran = replace(seen.job.status, attempts=1, model=ModelStatus(name="m", version="1"))
    seen = replace(seen, model=newer, job=replace(seen.job, status=ran))

    assert "DeletePod" not in kinds(decide(seen))


def test_a_batch_does_not_start_anew_with_another_version_when_its_own_is_removed() -> None:
    seen = under_way()
    ran = replace(seen.job.status, attempts=1, model=ModelStatus(name="m", version="1"))
    done = decide(replace(seen, model=a_model("m", a_version("2")), job=replace(seen.job, status=ran)))

    assert "DeletePod" not in kinds(done)
    assert status_of(done).reason == "ModelVersionUnknown"
    assert "add it again to go on, or set modelVersion" in messages(status_of(done))


def test_a_batch_that_runs_needs_its_inference_model_no_more() -> None:
    assert "DeletePod" not in kinds(decide(replace(under_way(), model=None)))


# Deadlines.


def test_work_that_finished_in_time_is_not_lost_when_the_operator_was_away() -> None:
    job = a_job(deadline_in=-1, firm=True)
    pod = a_pod(job, phase=SUCCEEDED, report=a_report(), created_ago=60, ended_ago=30)

    assert status_of(decide(observed(job, pod))).phase == "Succeeded"


def test_work_that_has_outrun_its_estimate_is_not_said_to_be_on_time() -> None:
    job = a_job(deadline_in=60, status=LOOKED)
    status = status_of(decide(observed(job, a_pod(job, seconds=30.0, created_ago=300))))

    assert status.deadline is not None and status.deadline.outlook is not Outlook.ON_TIME


def test_its_own_pace_counts_more_than_what_placement_expected() -> None:
    job = a_job(deadline_in=100, status=LOOKED)
    pod = a_pod(job, seconds=20.0, created_ago=100)
    status = status_of(decide(observed(job, pod, readings={pod.uid: a_reading(progress=(10, 100))})))

    assert status.deadline is not None
    assert status.deadline.outlook is Outlook.AT_RISK
    assert status.deadline.slack_seconds is not None and -900 < status.deadline.slack_seconds < -700


@pytest.mark.parametrize(("total", "doubts"), [(None, 1), (9, 1), (100, 0)], ids=["not counted", "counted otherwise", "counted"])
def test_a_deadline_that_items_make_infeasible_says_that_they_may_be_wrong(total: int | None, doubts: int) -> None:
    progress = ProgressStatus(total=total, completed=0) if total is not None else None
    job = a_job(items=100, deadline_in=60, firm=True, status=replace(LOOKED, progress=progress))
    status = status_of(decide(observed(job), full(Reason.DEADLINE_INFEASIBLE, "set deadline to", final=True)))

    assert min(1, messages(status).count("correct input.items, if the input holds fewer than 100")) == doubts


def test_the_pod_of_an_older_attempt_takes_back_nothing_that_a_newer_one_has_done() -> None:
    """A suspended batch said 0 of 400: its first worker's end was still there, and the newest one's was not."""
    newest = AttemptStatus(number=2, pod="job-2", outcome=AttemptOutcome.DISRUPTED, reason="Terminated", end_time=NOW)
    before = replace(LOOKED, attempts=2, last_attempt=newest, progress=ProgressStatus(total=400, completed=76))
    job = a_job(items=400, suspend=True, status=before)
    seen = observed(job, a_pod(job, 1, phase=FAILED, report=a_report("Failed", completed=0, total=400), ended_ago=60))
    status = status_of(decide(seen))

    assert status.progress == ProgressStatus(total=400, completed=76) and status.placement is None


def test_a_job_refused_for_its_passed_deadline_has_missed_it() -> None:
    status = status_of(decide(observed(a_job(deadline_in=-1, firm=True))))

    assert status.deadline is not None and status.deadline.outlook is Outlook.MISSED


@pytest.mark.parametrize("reason", [WorkerReason.TOO_MANY_ITEMS, WorkerReason.INPUT_INVALID])
def test_a_batch_that_fails_before_its_deadline_has_no_outlook_but_missed(reason: WorkerReason) -> None:
    """It said Unknown for ever: nobody looks at a job that has ended."""
    job = a_job(deadline_in=600, status=LOOKED)
    status = status_of(decide(observed(job, a_pod(job, phase=FAILED, report=a_report("Failed", reason=reason), ended_ago=1))))

    assert status.phase == "Failed" and status.deadline is not None
    assert (status.deadline.outlook, status.deadline.slack_seconds) == (Outlook.MISSED, None)


def test_an_infeasible_deadline_is_missed() -> None:
    job = a_job(deadline_in=60, firm=True, status=LOOKED)
    status = status_of(decide(observed(job), full(Reason.DEADLINE_INFEASIBLE, "set deadline to", final=True)))

    assert status.deadline is not None and status.deadline.outlook is Outlook.MISSED


def test_a_failed_batch_that_runs_anew_may_still_meet_its_deadline() -> None:
    job = a_job(deadline_in=600, status=LOOKED)
    seen = observed(job, a_pod(job, phase=FAILED, report=a_report("Failed", reason=WorkerReason.INPUT_INVALID), ended_ago=1))
    failed = after(seen, decide(seen)).job
    edited = reopened(replace(a_job(deadline_in=600, batch_size=2), status=failed.status, generation=2))
    status = status_of(decide(observed(edited), full()))

    assert status.deadline is not None and status.deadline.outlook is Outlook.UNKNOWN


# What waits.


def test_moving_counts_are_not_written_again_and_again() -> None:
    seen = settled(observed(a_job()), full(text="waits for room: 1 of 3 nodes"))

    assert decide(seen, full(text="waits for room: 2 of 3 nodes")).actions == ()


def test_a_worker_on_its_way_out_is_named_as_what_is_waited_for() -> None:
    job = a_job(status=LOOKED)
    pod = a_pod(job, deleting=True)

    assert pod.key.name in messages(status_of(decide(observed(job, pod))))


def test_a_refused_pod_is_tried_again_only_when_its_time_has_come() -> None:
    job = a_job(status=LOOKED)
    pod = a_pod(job, phase=PENDING, problem=PodProblem("ErrImagePull", "no"), created_ago=10)
    done = decide(observed(job, pod))

    assert pod.created is not None
    assert done.recheck == pod.created + timedelta(seconds=SETTINGS.start_timeout_seconds)
    assert not [action for action in done.actions if isinstance(action, DeletePod)]


@pytest.mark.parametrize("job", [a_job(status=LOOKED), a_job(serve=True, status=LOOKED)], ids=["batch", "service"])
def test_what_the_api_server_refused_once_does_not_hide_what_the_scheduler_says(job: Job) -> None:
    long_ago = replace(observed(job), create_failure=a_create_failure(ago=3600), has_service=True)

    assert status_of(decide(long_ago, full())).reason == "NoFreeCapacity"
    assert status_of(decide(long_ago, full(Reason.DEADLINE_INFEASIBLE, "too late", final=True))).phase == "Failed"


def test_a_pod_that_could_not_start_in_all_its_time_is_a_failed_attempt() -> None:
    job = a_job(status=LOOKED)
    pod = a_pod(job, phase=PENDING, problem=PodProblem("ErrImagePull", "no"), created_ago=601)
    seen = observed(job, pod)
    seen = after(seen, decide(seen))
    seen = after(seen, decide(seen))

    assert seen.job.status.failed_attempts == 1


def test_a_pod_that_hangs_in_creation_is_given_up_too() -> None:
    job = a_job(status=LOOKED)

    assert "DeletePod" in kinds(decide(observed(job, a_pod(job, phase=PENDING, created_ago=3600))))


# After the end.


def a_refused_job() -> Observed:
    seen = observed(a_job(backend=Backend.TRITON))
    return after(seen, decide(seen))


def test_a_refused_job_runs_once_its_spec_is_as_the_refusal_said() -> None:
    seen = a_refused_job()
    assert seen.job.spec is not None
    cured = replace(seen.job, generation=2, spec=replace(seen.job.spec, backend=Backend.ONNX))

    assert "CreatePod" in kinds(decide(replace(seen, job=cured), on("n")))


def test_a_job_refused_for_its_deadline_runs_once_it_is_soft() -> None:
    seen = observed(a_job(deadline_in=-1, firm=True))
    seen = after(seen, decide(seen))
    assert seen.job.spec is not None
    cured = replace(seen.job, generation=2, spec=replace(seen.job.spec, deadline_policy=DeadlinePolicy.SOFT))

    assert "CreatePod" in kinds(decide(replace(seen, job=cured), on("n")))


def test_kubectl_wait_does_not_hang_on_a_finished_job_whose_spec_changes() -> None:
    seen = replace(a_refused_job(), job=replace(a_refused_job().job, generation=2))
    (write,) = [action for action in decide(seen).actions if isinstance(action, WriteStatus)]

    assert {c.observed_generation for c in write.status.conditions} == {2}


def test_a_finished_job_whose_status_a_newer_operator_wrote_is_not_started_again() -> None:
    done = Condition(type="Succeeded", status=Truth.TRUE, reason="Succeeded", message="", last_transition_time=NOW)
    document = status_document(InferenceJobStatus(observed_generation=1, attempts=1, conditions=[done]))
    document["progress"] = {"total": "a word of the next version"}
    meta = {"name": "job", "namespace": "default", "uid": "u", "generation": 1}
    raw = {"metadata": meta, "spec": {"model": "file:///m.onnx", "input": {"data": "{}"}}, "status": document}

    seen = observed(parse_job(raw))

    assert "CreatePod" not in kinds(decide(seen, on("n")))


def test_time_to_live_counts_from_the_end() -> None:
    job = a_job(ttl_seconds_after_finished=100, status=LOOKED)
    seen = settled(observed(job, a_pod(job, phase=SUCCEEDED, report=a_report(), ended_ago=40)))
    end = whole(NOW) - timedelta(seconds=40)

    assert decide(seen).recheck == end + timedelta(seconds=100)
    assert kinds(decide(seen, now=end + timedelta(seconds=100))) == ("DeleteJob",)


def test_a_worker_that_is_not_ready_while_it_ends_starts_nothing_again() -> None:
    job = a_job(status=replace(LOOKED, attempts=1))
    assert "attempt 1 starts on" in messages(status_of(decide(observed(job, a_pod(job, 1, ready=False)))))

    told = replace(job, status=status_of(decide(observed(job, a_pod(job, 1)))))
    ending = observed(told, a_pod(told, 1, ready=False))
    assert status_of(decide(ending), ending) == told.status
    assert "attempt 2 starts on" in messages(status_of(decide(observed(told, a_pod(told, 2, ready=False)))))


# Nodes out of reach.


def test_why_an_attempt_runs_elsewhere_is_said_while_its_node_is_out_of_reach() -> None:
    job = a_job(status=replace(LOOKED, attempts=2))
    lost, runs = a_pod(job, 1, node="node-9"), a_pod(job, 2)

    assert "attempt 2 runs on node-1; node node-9 is out of reach" in messages(
        status_of(decide(observed(job, runs, lost, lost=[lost])))
    )
    assert "out of reach" not in messages(status_of(decide(observed(job, runs))))


# Suspending.


def test_suspending_and_resuming_goes_on_with_the_next_attempt() -> None:
    job = a_job(suspend=True, status=LOOKED)
    seen = observed(job, a_pod(job))
    seen = settled(seen)
    assert seen.pods[0].deleting and seen.job.spec is not None

    gone = replace(seen, pods=(), job=replace(seen.job, generation=2, spec=replace(seen.job.spec, suspend=False)))
    done = decide(gone, on("n"))

    assert kinds(done) == ("CreatePod", "WriteStatus")
    assert (status_of(done).attempts, status_of(done).failed_attempts) == (2, 0)
    assert find(status_of(done).conditions, ConditionType.SUSPENDED) is None


# Pods gone by.


def test_a_pod_lost_and_found_missing_is_told_once() -> None:
    last = AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.RUNNING)
    seen = settled(observed(a_job(status=replace(LOOKED, attempts=1, last_attempt=last))), full())
    status = seen.job.status

    assert status.last_attempt is not None and status.last_attempt.outcome is AttemptOutcome.DISRUPTED
    assert status.last_attempt.reason == Reason.WORKER_LOST
    assert decide(seen, full(), now=in_seconds(3600)).actions == ()


@pytest.mark.parametrize("reason", [WorkerReason.MODEL_UNREACHABLE, WorkerReason.OUT_OF_MEMORY, WorkerReason.OUTPUT_UNWRITABLE])
def test_what_may_go_away_is_tried_up_to_the_last_attempt(reason: WorkerReason) -> None:
    status = replace(LOOKED, attempts=1, failed_attempts=1)
    job = a_job(max_attempts=2, status=status)
    done = status_of(decide(observed(job, a_pod(job, 2, phase=FAILED, report=a_report("Failed", reason=reason)))))

    assert done.phase == "Failed" and done.reason == reason
    assert "2 of 2 attempts failed" in messages(done)

"""Attempts on warm workers: ordered until they are heard of, ended as a pod's, stopped alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from inference_operator.api.conditions import Condition, Truth
from inference_operator.api.job import Input, Output
from inference_operator.api.job_status import AttemptOutcome
from inference_operator.scheduling.types import Assignment, Decision, Explanation, PlacementRequest
from inference_operator.state.objects import Job, PodPhase, PodProblem
from inference_operator.state.observed import Observed
from inference_operator.state.runner import HostedTask
from inference_operator.state.store import Store
from inference_operator.workers.actions import DeletePod, StartTask, StopTask, WriteStatus
from inference_protocol.messages import TaskState, TerminationReport
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, SETTINGS, a_job, a_report, cost_terms, whole
from tests.unit.scheduling.support import decide, in_seconds, kinds, rewritten, status_of, wanted
from tests.unit.warmpools.pool_support import a_hosted_job, a_pooled_model, a_store, a_task, a_worker, hosting

MODEL = a_pooled_model(min=1)
HOST = a_worker(MODEL)
JOB = a_hosted_job(MODEL, HOST)


def hosted(need: PlacementRequest) -> Decision:
    """The scheduler gives the warm worker."""
    return Decision(need.uid, need.revision, (Assignment("cpu", "node-1", HOST.key),), explanations=(Explanation(cost_terms()),))


def seen(task: TaskState | None = None, job: Job = JOB, **warm_worker: Any) -> Observed:
    return hosting(job, MODEL, replace(HOST, **warm_worker), task)


# Ordered.


def test_a_place_on_a_warm_worker_is_written_and_no_pod_is_made() -> None:
    done = decide(hosting(a_job(model="m", items=10), MODEL, HOST), hosted)
    status = status_of(done)

    assert kinds(done) == ("WriteStatus",)
    assert status.last_attempt is not None
    assert (status.attempts, status.last_attempt.pod, status.last_attempt.outcome) == (1, HOST.key.name, "Running")
    assert status.placement is not None
    assert (status.placement.pod, status.placement.node) == (HOST.key.name, "node-1")


def test_what_was_never_heard_of_is_ordered() -> None:
    (start,) = [action for action in decide(seen()).actions if isinstance(action, StartTask)]

    assert (start.warm_worker, start.address) == (HOST.key, HOST.address)
    assert (start.order.uid, start.order.attempt) == (JOB.uid, 1)
    assert start.order.revision == a_task(JOB, MODEL).revision


@pytest.mark.parametrize("state", ["Queued", "Running"])
def test_what_was_heard_of_is_not_ordered_again(state: Any) -> None:
    assert "StartTask" not in kinds(decide(seen(a_task(JOB, MODEL, state=state))))


def test_a_worker_without_an_address_is_ordered_nothing_yet() -> None:
    done = decide(seen(phase=PodPhase.PENDING, ready=False, address=None))

    assert not [action for action in done.actions if isinstance(action, StartTask | StopTask | DeletePod)]


def test_an_attempt_under_way_wants_no_other_place() -> None:
    assert wanted(seen()) is None
    assert wanted(seen(a_task(JOB, MODEL))) is None


# Ended.

ENDINGS: dict[str, tuple[TerminationReport | None, dict[str, Any], str, str, int]] = {
    "it is done": (a_report(), {}, "Succeeded", "Succeeded", 0),
    "it failed": (a_report("Failed", reason=WorkerReason.INTERNAL), {}, "Failed", "WorkerFailed", 1),
    "its input is bad": (a_report("Failed", reason=WorkerReason.INPUT_INVALID), {}, "Failed", "InputInvalid", 1),
    "it was drained": (a_report("Drained"), {}, "Disrupted", "Terminated", 0),
    "it was done before the worker went": (a_report(), {"deleting": True}, "Succeeded", "Succeeded", 0),
    "its worker is deleted": (None, {"deleting": True}, "Disrupted", "Terminated", 0),
    "its worker took too much memory": (
        None, {"phase": PodPhase.FAILED, "problem": PodProblem("OOMKilled", "")}, "Failed", "OutOfMemory", 1,
    ),
    "its worker was evicted": (None, {"phase": PodPhase.FAILED, "problem": PodProblem("Evicted", "")}, "Disrupted", "WorkerLost", 0),
    "its worker was drained": (None, {"phase": PodPhase.SUCCEEDED, "report": a_report("Drained")}, "Disrupted", "Terminated", 0),
}  # fmt: skip


@pytest.mark.parametrize("how", ENDINGS)
def test_how_an_attempt_ends(how: str) -> None:
    report, warm_worker, outcome, reason, failed = ENDINGS[how]
    done = decide(seen(a_task(JOB, MODEL, report=report), **warm_worker))
    status = status_of(done)

    assert status.last_attempt is not None
    assert (status.last_attempt.outcome, status.last_attempt.reason, status.failed_attempts) == (outcome, reason, failed)
    assert "DeletePod" not in kinds(done)


@pytest.mark.parametrize("report", [None, a_report("Failed", reason=WorkerReason.INTERNAL)], ids=["no word", "last words"])
def test_the_end_of_a_worker_that_ran_another_task_is_no_failure(report: Any) -> None:
    found = seen(a_task(JOB, MODEL, state="Queued"), phase=PodPhase.FAILED, report=report)
    assert found.hosted is not None
    waited = replace(found.hosted, runner=HostedTask(found.hosted.pod, None, waited=True), revision=None)
    status = status_of(decide(replace(found, hosted=waited)))

    assert status.last_attempt is not None
    assert (status.last_attempt.outcome, status.last_attempt.reason, status.failed_attempts) == ("Disrupted", "WorkerLost", 0)


def test_a_worker_that_is_gone_has_lost_the_attempt_and_the_next_follows_at_once() -> None:
    gone = hosting(JOB, MODEL, None, a_task(JOB, MODEL))
    status = status_of(decide(gone))

    assert status.last_attempt is not None
    assert (status.last_attempt.outcome, status.last_attempt.reason) == ("Disrupted", "WorkerLost")
    assert wanted(gone) is not None


def test_a_worker_out_of_reach_has_lost_the_attempt_and_nobody_tries_to_tell_it() -> None:
    lost = hosting(JOB, MODEL, HOST, a_task(JOB, MODEL), node_lost=True)
    done = decide(lost, hosted)

    assert kinds(done) == ("WriteStatus",)
    assert status_of(done).attempts == 2


def test_the_next_attempt_follows_a_failure_after_its_pause() -> None:
    failed = seen(a_task(JOB, MODEL, report=a_report("Failed", reason=WorkerReason.INTERNAL)))

    assert wanted(failed) is None
    assert wanted(failed, now=in_seconds(SETTINGS.backoff_seconds)) is not None


# Stopped: the task, and never the worker.


def stops(done: Any) -> list[StopTask]:
    assert not [action for action in done.actions if isinstance(action, DeletePod)]
    return [action for action in done.actions if isinstance(action, StopTask)]


def test_a_changed_spec_stops_the_task() -> None:
    (stop,) = stops(decide(seen(a_task(JOB, MODEL, of="old"))))

    assert (stop.warm_worker, stop.address, stop.uid, stop.attempt) == (HOST.key, HOST.address, JOB.uid, 1)


def test_a_suspended_jobs_task_is_stopped() -> None:
    job = a_hosted_job(MODEL, HOST, suspend=True)

    assert len(stops(decide(seen(a_task(job, MODEL), job)))) == 1


def test_a_firm_deadline_stops_the_task() -> None:
    job = a_hosted_job(MODEL, HOST, deadline_in=1, firm=True)

    assert len(stops(decide(seen(a_task(job, MODEL), job), now=in_seconds(1)))) == 1


def finished(job: Job) -> Job:
    then = whole(NOW - timedelta(seconds=60))
    done = Condition(
        type="Succeeded", status=Truth.FALSE, reason="Failed", message="", last_transition_time=then, observed_generation=1
    )
    return replace(job, status=replace(job.status, conditions=[done], start_time=then, completion_time=then))


def test_a_finished_jobs_task_is_stopped_before_the_job_is_deleted() -> None:
    job = finished(a_hosted_job(MODEL, HOST, ttl_seconds_after_finished=5))

    assert kinds(decide(seen(a_task(job, MODEL), job))) == ("StopTask", "DeleteJob")


# The same again, as the store has it: what was done shows at the next look.


class Life:
    """A job on a store, looked at as the reconciler does; `stopped` and `ordered` count what reaches the worker."""

    def __init__(self, job: Job) -> None:
        self.store: Store = a_store(MODEL, HOST)
        self.store.put_job(job)
        self.key = job.key
        self.writes = self.stopped = self.ordered = 0

    @property
    def job(self) -> Job:
        return self.store.jobs[self.key]

    @property
    def seen(self) -> Observed:
        found = self.store.observe(self.key)
        assert found is not None
        return found

    def look(self) -> bool:
        """Whether there was anything to do."""
        done = decide(self.seen, hosted)
        for action in done.actions:
            match action:
                case WriteStatus():
                    self.writes += 1
                    version = str(int(self.job.resource_version) + 1)
                    self.store.put_job(replace(rewritten(self.job, action.status), resource_version=version))
                case StartTask():
                    self.ordered += 1
                    self.hear(a_task(self.job, MODEL, attempt=action.order.attempt))
                case StopTask():
                    self.stopped += 1
                    self.store.task_index.mark_stopping(action.uid, action.attempt)
        return bool(done.actions)

    def rest(self) -> None:
        for _ in range(6):
            if not self.look():
                return
        raise AssertionError("it never comes to rest")

    def hear(self, task: TaskState) -> None:
        self.store.task_index.put_task(task, NOW)

    def change(self, **spec: Any) -> None:
        assert self.job.spec is not None
        version = str(int(self.job.resource_version) + 1)
        self.store.put_job(replace(self.job, spec=replace(self.job.spec, **spec), resource_version=version))


def begun(**spec: Any) -> Life:
    life = Life(a_job(model="m", **{"items": 10, **spec}))
    life.rest()
    assert life.ordered == 1
    return life


def test_a_short_job_costs_two_writes() -> None:
    life = begun()
    assert life.writes == 1
    life.hear(a_task(life.job, MODEL, report=a_report()))
    life.rest()

    assert life.writes == 2
    assert life.job.status.phase == "Succeeded"
    assert life.ordered == 1


@pytest.mark.parametrize("what", [{"suspend": True}, {"batch_size": 2}], ids=["suspend", "spec"])
def test_a_task_is_told_to_stop_once(what: dict[str, Any]) -> None:
    life = begun()
    life.change(**what)
    life.rest()

    assert life.stopped == 1
    assert life.job.status.attempts == 1


def test_a_new_revision_starts_when_the_old_task_has_ended() -> None:
    life = begun()
    old = a_task(life.job, MODEL)
    life.change(batch_size=2)
    life.rest()
    assert wanted(life.seen) is None
    life.hear(replace_report(old))
    life.rest()

    assert (life.ordered, life.job.status.attempts, life.job.status.failed_attempts) == (2, 2, 0)


def replace_report(task: TaskState) -> TaskState:
    return TaskState(task.uid, task.attempt, task.revision, "Ended", report=a_report("Drained", completed=4))


def test_a_suspended_job_goes_on_after_its_task_has_ended() -> None:
    life = begun()
    life.change(suspend=True)
    life.rest()
    life.change(suspend=False)
    life.rest()
    assert life.job.status.attempts == 1
    life.hear(a_task(life.job, MODEL, report=a_report("Drained", completed=4)))
    life.rest()

    assert (life.job.status.attempts, life.job.status.failed_attempts, life.stopped) == (2, 0, 1)


def cut_short(after: float = 0.0) -> Job:
    """A job whose attempt was cut short so many seconds after its worker was made."""
    job = a_hosted_job(MODEL, HOST)
    assert job.status.last_attempt is not None and HOST.created is not None
    end = HOST.created + timedelta(seconds=after)
    last = replace(job.status.last_attempt, outcome=AttemptOutcome.DISRUPTED, reason="Terminated", end_time=end)
    return replace(job, status=replace(job.status, last_attempt=last))


def test_who_has_not_heard_how_a_stopped_task_stands_asks_its_worker_before_the_next_attempt() -> None:
    seen = hosting(cut_short(), MODEL, HOST)

    assert wanted(seen) is None
    assert kinds(decide(seen)) == ("StopTask", "WriteStatus")


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed", "Drained"])
def test_once_the_worker_has_said_that_it_has_ended_the_next_attempt_follows(outcome: Any) -> None:
    job = cut_short()
    report = a_report(outcome, reason=WorkerReason.INTERNAL if outcome == "Failed" else None)

    assert wanted(hosting(job, MODEL, HOST, a_task(job, MODEL, report=report))) is not None


def test_a_worker_that_came_later_under_the_same_name_is_not_asked() -> None:
    seen = hosting(cut_short(after=-1.0), MODEL, HOST)

    assert wanted(seen) is not None
    assert "StopTask" not in kinds(decide(seen))


def test_a_worker_that_says_that_its_task_is_stopping_is_not_told_to_stop_it() -> None:
    task = msgspec.structs.replace(a_task(JOB, MODEL), stopping=True)
    done = decide(seen(task))

    assert "StopTask" not in kinds(done)
    assert wanted(seen(task)) is None
    last = status_of(done).last_attempt
    assert last is not None
    assert last.outcome is AttemptOutcome.DISRUPTED


def test_an_order_that_was_given_before_the_spec_changed_is_given_anew() -> None:
    life = Life(a_job(model="m", items=10))
    life.look()
    life.change(input=Input(uri="pvc://data/other.npy", items=10), output=Output(uri="pvc://data/out"))
    life.rest()

    assert (life.ordered, life.stopped, life.job.status.attempts) == (1, 0, 1)
    assert life.job.status.last_attempt is not None
    assert life.job.status.last_attempt.outcome is AttemptOutcome.RUNNING

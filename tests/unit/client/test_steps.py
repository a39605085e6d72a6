"""What the client asks for, request by request, against a script of answers."""

from collections.abc import Generator, Iterable
from itertools import combinations
from typing import Any

import msgspec
import pytest

from inference_client import steps
from inference_client.api import InferenceJob
from inference_client.calls import JOBS, Call, Pause
from inference_client.errors import (
    AlreadyExistsError,
    ClientError,
    ExpiredError,
    ForbiddenError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
    UnreadableError,
    WaitTimeoutError,
    refusal,
)
from inference_client.job_state import Goal, cause, failed
from inference_client.result import result_of
from tests.kstatus import kstatus
from tests.unit.client.objects import Raw, a_job, a_service, condition, ended_badly, succeeded, waiting


class Script:
    """Answers in turn, and a clock that moves by a second with each."""

    def __init__(self, *answers: Raw | ClientError) -> None:
        self.answers = list(answers)
        self.calls: list[Any] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def run(self, made: Generator[Call | Pause, Raw, Any]) -> Any:
        try:
            call = next(made)
            while True:
                self.calls.append(call)
                self.now += 1
                answer = self.answers.pop(0)
                call = made.throw(answer) if isinstance(answer, ClientError) else made.send(answer)
        except StopIteration as end:
            return end.value

    def wait(self, goal: Goal = Goal.FINISHED, timeout: float = 100) -> Any:
        return self.run(steps.wait("demo", "job", goal, timeout=timeout, clock=self.clock))


def raw(job: InferenceJob, version: str = "7") -> Raw:
    plain: Raw = msgspec.to_builtins(job)
    plain["metadata"]["resourceVersion"] = version
    return plain


def event(job: InferenceJob, kind: str = "MODIFIED", version: str = "8") -> Raw:
    return {"type": kind, "object": raw(job, version)}


RUNNING = a_job(condition("Ready", "False", "Running"), condition("Succeeded", "Unknown", "Running"))
DONE = a_job(*succeeded())
FAILED = a_job(*ended_badly("ModelDigestMismatch", "the file has another digest"))


def test_a_wait_ends_when_the_job_has_come_so_far() -> None:
    script = Script(raw(RUNNING), event(RUNNING), {}, event(DONE))

    assert script.wait().status == DONE.status
    assert [dict(call.query).get("resourceVersion") for call in script.calls] == [None, "7", "8", "8"]
    assert all(dict(call.query)["fieldSelector"] == "metadata.name=job" for call in script.calls[1:])


def test_a_wait_ends_at_once_for_a_job_that_has_failed() -> None:
    with pytest.raises(JobFailedError, match="ModelDigestMismatch: the file has another digest") as caught:
        Script(raw(FAILED)).wait()

    assert caught.value.job.status == FAILED.status


def test_a_wait_has_an_end_and_says_what_is_in_the_way() -> None:
    job = a_job(*waiting("Accepted", "ModelUnknown", "there is no InferenceModel digts"))

    with pytest.raises(WaitTimeoutError, match="not Finished after 2 s: ModelUnknown: there is no InferenceModel digts"):
        Script(raw(job), {}, {}, {}).wait(timeout=2)


def test_a_status_of_an_older_spec_is_no_end() -> None:
    old = msgspec.structs.replace(DONE, metadata=msgspec.structs.replace(DONE.metadata, generation=2))

    with pytest.raises(WaitTimeoutError):
        Script(raw(old), {}, {}, {}).wait(timeout=2)


def test_the_failure_of_an_older_spec_is_none() -> None:
    """Whoever edits a failed job and waits is not told of the old failure before the operator has seen the edit."""
    edited = msgspec.structs.replace(FAILED, metadata=msgspec.structs.replace(FAILED.metadata, generation=2))

    assert failed(edited) is None
    assert Script(raw(edited), event(DONE)).wait().status == DONE.status


def listed(*found: Raw) -> Raw:
    return {"items": list(found), "metadata": {"resourceVersion": "900"}}


def test_a_watch_that_is_too_old_is_begun_anew_from_now() -> None:
    """A job that nothing has changed for minutes is older than what the API server remembers."""
    old = ExpiredError("too old resource version: 7")
    script = Script(raw(RUNNING), old, listed(raw(RUNNING)), event(DONE))

    assert script.wait().status == DONE.status
    assert dict(script.calls[-1].query)["resourceVersion"] == "900"
    assert Script(raw(RUNNING), old, listed(raw(DONE, "9"))).wait().metadata.resource_version == "9"
    with pytest.raises(NotFoundError, match="is deleted"):
        Script(raw(RUNNING), old, listed()).wait()


def test_a_server_that_is_away_for_a_while_ends_no_wait() -> None:
    away = UnavailableError("away")
    script = Script(raw(RUNNING), away, {}, away, {}, event(DONE))

    assert script.wait().status == DONE.status
    assert [type(call) for call in script.calls[1:5]] == [Call, Pause, Call, Pause]
    with pytest.raises(UnavailableError):
        Script(raw(RUNNING), away).wait(timeout=2)


def test_a_job_that_is_deleted_meanwhile_ends_the_wait() -> None:
    with pytest.raises(NotFoundError, match="is deleted"):
        Script(raw(RUNNING), event(RUNNING, "DELETED")).wait()


STALLED = a_service(condition("Ready", "False", "ModelNotFound"), condition("Stalled", "True", "ModelNotFound", "no such file"))
READY = a_service(condition("Ready", "True", "Serving"))


def test_a_service_is_finished_when_it_is_ready_and_one_that_tries_again_has_not_failed() -> None:
    trying = a_service(*waiting("Ready", "ModelUnreachable", "the server doesn't answer"))

    assert failed(trying) is None
    assert Script(raw(trying), event(READY)).wait().status == READY.status


@pytest.mark.parametrize("goal", [Goal.FINISHED, Goal.READY, Goal.SUCCEEDED])
def test_a_wait_ends_at_once_for_a_service_that_only_a_change_can_help(goal: Goal) -> None:
    with pytest.raises(JobFailedError, match="has failed: ModelNotFound: no such file"):
        Script(raw(STALLED)).wait(goal)


def test_a_service_that_has_ended_is_never_ready_again() -> None:
    ended = a_service(condition("Succeeded", "True", "Ended", "served until noon"))

    with pytest.raises(JobFailedError, match="has ended, and can't become Ready: Ended: served until noon"):
        Script(raw(ended)).wait(Goal.READY)
    assert Script(raw(ended)).wait(Goal.SUCCEEDED).status == ended.status


def test_a_job_that_has_failed_may_still_be_suspended_and_one_that_has_succeeded_may_not() -> None:
    suspended = a_job(condition("Suspended", "True", "Suspended"))

    assert Script(raw(FAILED), event(suspended)).wait(Goal.SUSPENDED).status == suspended.status
    with pytest.raises(JobFailedError, match="can't become Suspended"):
        Script(raw(DONE)).wait(Goal.SUSPENDED)


CONDITIONS = [condition(kind, status, "X") for kind in ("Ready", "Reconciling", "Stalled") for status in ("True", "False")]


@pytest.mark.parametrize("found", [combinations(CONDITIONS, size) for size in range(4)])
def test_what_has_failed_is_what_kstatus_calls_failed(found: Iterable[tuple[Raw, ...]]) -> None:
    for conditions in found:
        service = a_service(*conditions)

        assert (failed(service) is not None) == (kstatus(raw(service)) == "Failed")


def test_a_failed_batch_is_tried_again_by_suspending_and_resuming_it() -> None:
    suspended = a_job(condition("Suspended", "True", "Suspended"))
    script = Script(raw(FAILED), raw(FAILED), raw(suspended), raw(RUNNING))

    script.run(steps.retry("demo", "job", timeout=60, clock=script.clock))

    assert [call.body for call in script.calls if call.method == "PATCH"] == [
        {"spec": {"suspend": True}},
        {"spec": {"suspend": False}},
    ]


def test_a_batch_that_has_not_failed_is_left_alone() -> None:
    script = Script(raw(RUNNING))

    with pytest.raises(ClientError, match="has not failed"):
        script.run(steps.retry("demo", "job", timeout=60, clock=script.clock))


def test_a_service_is_tried_again_by_deleting_its_failed_pods() -> None:
    script = Script(raw(a_service()), {"items": [{"metadata": {"name": "job-1"}}]}, {})

    script.run(steps.retry("demo", "job", timeout=60, clock=script.clock))

    assert (script.calls[-1].method, script.calls[-1].path) == ("DELETE", "/api/v1/namespaces/demo/pods/job-1")


def test_a_service_that_is_tried_again_is_waited_for_until_the_operator_has_seen_it() -> None:
    """Else a wait behind it would end by the failure of before."""
    starting = a_service(*waiting("Ready", "Starting", "0/2 workers ready"))
    pods = {"items": [{"metadata": {"name": "job-1"}}]}
    script = Script(raw(STALLED), pods, {}, event(STALLED), event(starting))

    assert script.run(steps.retry("demo", "job", timeout=60, clock=script.clock)).status == starting.status
    late = Script(raw(STALLED), pods, {}, {}, {})
    with pytest.raises(WaitTimeoutError, match="is not tried again after 3 s: ModelNotFound"):
        late.run(steps.retry("demo", "job", timeout=3, clock=late.clock))


def test_a_long_list_is_read_page_by_page() -> None:
    script = Script({"items": [raw(DONE)], "metadata": {"continue": "more"}}, {"items": [raw(RUNNING)]})

    found = script.run(steps.read_all(JOBS, None, InferenceJob))

    assert [one.status for one in found] == [DONE.status, RUNNING.status]
    assert dict(script.calls[1].query)["continue"] == "more"


def test_an_object_that_cannot_be_read_hides_no_other_of_a_list() -> None:
    """A newer operator may have written it, or anybody who may create jobs."""
    newer = {"metadata": {"name": "newer", "namespace": "far"}, "spec": {"model": 7}}
    found = Script({"items": [raw(DONE), newer, raw(RUNNING)]}).run(steps.read_all(JOBS, None, InferenceJob))

    assert [one.status for one in found] == [DONE.status, RUNNING.status]
    (told,) = found.unreadable
    assert (told.namespace, told.name, told.raw) == ("far", "newer", newer)
    assert "Expected `str`, got `int` - at `$.spec.model`; is the client as new as the operator?" in str(told)
    assert steps.listed([], InferenceJob).unreadable == ()
    with pytest.raises(UnreadableError):
        Script(newer).run(steps.read(JOBS, "far", "newer", InferenceJob))


def test_the_first_condition_that_is_in_the_way_is_the_cause() -> None:
    job = a_job(*waiting("Placed", "NoNodeFits", "0/2 nodes fit"))

    found = cause(job)

    assert found is not None and (found.reason, found.message) == ("NoNodeFits", "0/2 nodes fit")
    assert cause(DONE) is None


def test_a_small_result_is_read_from_the_status_and_a_large_one_is_named() -> None:
    small = a_job(
        *succeeded(),
        spec={"input": {"data": "{}"}, "output": None},
        output={"data": '{"y": 1}\n{"y": 2}'},
        progress={"total": 2, "completed": 2},
    )

    assert result_of(small).rows == ({"y": 1}, {"y": 2})
    assert result_of(DONE).uri == "pvc://data/out"


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (403, "Forbidden", ForbiddenError),
        (503, "ServiceUnavailable", UnavailableError),
    ],
)
def test_a_refusal_has_the_servers_words(code: int, reason: str, kind: type[ClientError]) -> None:
    error = refusal(code, b'{"reason": "%s", "message": "the words"}' % reason.encode())

    assert type(error) is kind and str(error) == "the words"
    assert str(refusal(502, b"<html>bad gateway</html>")).startswith("b'<html>")

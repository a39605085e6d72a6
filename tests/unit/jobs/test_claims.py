"""Claims of a job: who of its workers goes first in a roll-out, and which ended pods let a deleted claim go."""

from dataclasses import replace

import pytest

from inference_operator.api.conditions import ConditionType, find
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus
from inference_operator.jobs.plan import plan
from inference_operator.jobs.state import ServiceState, job_state
from inference_operator.state.objects import Job, Pod, PodPhase
from inference_operator.state.volumes import Claim
from inference_operator.workers.actions import DeletePod, WriteStatus
from tests.builders import NOW, SETTINGS, TOKENS, a_job, a_pod, a_report, no_room, observed
from tests.unit.jobs.situation import ended

LEAVING = {"data": Claim("u", "1", ("ReadWriteOnce",), deleting=True)}
STAYING = {"data": Claim("u", "1", ("ReadWriteOnce",), deleting=False)}


def deleted(job: Job, *pods: Pod, claims: dict[str, Claim]) -> list[str]:
    seen = observed(job, *pods, claims=claims)
    actions = plan(seen, job_state(seen, SETTINGS, NOW), None, SETTINGS, TOKENS, NOW).actions
    return [action.uid for action in actions if isinstance(action, DeletePod)]


def done(job: Job, **how: object) -> Pod:
    return replace(a_pod(job, phase=PodPhase.SUCCEEDED, report=a_report(), **how), claims=("data",))  # type: ignore[arg-type]


def test_an_ended_batch_lets_its_claim_go_and_keeps_its_log_until_then() -> None:
    told = AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.SUCCEEDED)
    job = ended(a_job(items=10), InferenceJobStatus(observed_generation=1, attempts=1, last_attempt=told))
    pod = done(job)

    assert deleted(job, pod, claims=LEAVING) == [pod.uid]
    assert deleted(job, pod, claims=STAYING) == []
    assert deleted(job, replace(pod, claims=("other",)), claims=LEAVING) == []
    assert deleted(job, replace(pod, deleting=True), claims=LEAVING) == []


def test_an_end_that_no_status_tells_is_told_before_its_pod_goes() -> None:
    running = AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.RUNNING)
    job = a_job(items=10, status=InferenceJobStatus(attempts=1, last_attempt=running, start_time=NOW))

    assert deleted(job, done(job), claims=LEAVING) == []


def test_a_worker_that_runs_keeps_its_claim() -> None:
    job = a_job(items=10)

    assert deleted(job, replace(a_pod(job), claims=("data",)), claims=LEAVING) == []


@pytest.mark.parametrize(("mode", "makes_room"), [("ReadWriteOncePod", True), ("ReadWriteOnce", False), ("ReadWriteMany", False)])
def test_a_roll_out_on_a_claim_of_one_pod_ends_however_many_workers_are_asked_for(mode: str, makes_room: object) -> None:
    """With two workers wanted and one possible, nobody would ever make room: kserve/kserve#3409."""
    job = a_job(serve=True, replicas=2, model="pvc://data/m.onnx")
    old = replace(a_pod(job, revision="old"), claims=("data",))
    seen = observed(job, old, claims={"data": Claim("u", "1", (mode,), deleting=False)})
    state = job_state(seen, SETTINGS, NOW)
    assert isinstance(state, ServiceState) and state.request is not None
    actions = plan(seen, state, no_room(state.request), SETTINGS, TOKENS, NOW).actions

    assert (old.uid in [action.uid for action in actions if isinstance(action, DeletePod)]) is makes_room


@pytest.mark.parametrize(("claims", "told"), [(LEAVING, True), (STAYING, False)])
@pytest.mark.parametrize("job", [a_job(items=10), a_job(serve=True)], ids=["batch", "service"])
def test_a_claim_that_is_deleted_under_a_worker_is_told_while_it_runs_on(job: Job, claims: dict[str, Claim], told: object) -> None:
    pod = replace(a_pod(job), claims=("data",))
    seen = observed(job, pod, claims=claims)
    actions = plan(seen, job_state(seen, SETTINGS, NOW), None, SETTINGS, TOKENS, NOW).actions
    (status,) = [action.status for action in actions if isinstance(action, WriteStatus)]
    ready = find(status.conditions, ConditionType.READY)

    assert ready is not None and ("; claim data is being deleted, so no further" in ready.message) is told
    assert not any(isinstance(action, DeletePod) for action in actions)

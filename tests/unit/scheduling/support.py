"""How the tests look at plans: as the reconciler does, with what it does carried out on the snapshot."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from inference_operator.api.conditions import Condition
from inference_operator.api.events import EventType
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.plan import plan
from inference_operator.jobs.state import job_state
from inference_operator.scheduling.types import Decision, PlacementRequest
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Pod
from inference_operator.state.observed import Observed
from inference_operator.state.parse import parse_autoscaler, parse_budget, parse_job, status_document
from inference_operator.state.parse_pods import parse_pod
from inference_operator.workers.actions import (
    Action,
    ApplyAutoscaler,
    ApplyBudget,
    CreatePod,
    CreateService,
    CreateWorkload,
    DeleteAutoscaler,
    DeleteBudget,
    DeleteJob,
    DeletePod,
    DeleteWorkload,
    EmitEvent,
    PatchWorkload,
    Plan,
    WriteModelStatus,
    WriteStatus,
)
from tests.builders import NOW, SETTINGS, TOKENS
from tests.kstatus import kstatus as verdict
from tests.kueues import created, patched

Scheduler = Callable[[PlacementRequest], Decision]


def wanted(seen: Observed, *, now: datetime = NOW, settings: Settings = SETTINGS) -> PlacementRequest | None:
    """What the job wants from the fleet."""
    return job_state(seen, settings, now).request


def decide(seen: Observed, scheduler: Scheduler | None = None, *, now: datetime = NOW, settings: Settings = SETTINGS) -> Plan:
    """One look, as in `JobReconciler.reconcile`. Without a scheduler there is no decision yet."""
    state = job_state(seen, settings, now)
    decision = scheduler(state.request) if state.request is not None and scheduler is not None else None
    return plan(seen, state, decision, settings, TOKENS, now)


def after(seen: Observed, done: Plan, *, now: datetime = NOW) -> Observed:
    """The snapshot once the plan's actions are carried out and have come back from the API server."""
    for action in done.actions:
        seen = _apply(seen, action, now)
    return seen


def _apply(seen: Observed, action: Action, now: datetime) -> Observed:
    match action:
        case WriteStatus():
            return replace(seen, job=rewritten(seen.job, action.status))
        case CreatePod():
            pod = created_pod(action, now)
            if pod.placeholder is not None:
                return replace(seen, placeholders=(*seen.placeholders, pod))
            return replace(seen, pods=(*seen.pods, pod))
        case DeletePod():
            left = tuple(pod for pod in seen.placeholders if pod.uid != action.uid)
            seen = replace(seen, placeholders=left)
            pods = tuple(replace(pod, deleting=True) if pod.uid == action.uid else pod for pod in seen.pods)
            return replace(seen, pods=pods)
        case CreateService():
            return replace(seen, has_service=True)
        case ApplyBudget():
            said = {**action.manifest, "metadata": {**action.manifest["metadata"], "uid": action.uid or "new"}}
            return replace(seen, budget=parse_budget(said))
        case DeleteBudget():
            return replace(seen, budget=None)
        case WriteModelStatus():
            assert seen.model is not None
            return replace(seen, model=replace(seen.model, status=action.status))
        case ApplyAutoscaler():
            made = parse_autoscaler({**action.manifest, "metadata": {**action.manifest["metadata"], "uid": action.uid or "new"}})
            return replace(seen, autoscalers=(*(a for a in seen.autoscalers if a.key != made.key), made))
        case DeleteAutoscaler():
            return replace(seen, autoscalers=tuple(a for a in seen.autoscalers if a.uid != action.uid))
        case CreateWorkload():
            return replace(seen, kueue=replace(seen.kueue, workload=created(action)))
        case PatchWorkload():
            assert seen.kueue.workload is not None
            return replace(seen, kueue=replace(seen.kueue, workload=patched(seen.kueue.workload, action)))
        case DeleteWorkload():
            return replace(seen, kueue=replace(seen.kueue, workload=None))
        case DeleteJob():
            return replace(seen, job=replace(seen.job, deleting=True))
        case _:
            return seen


def rewritten(job: Job, status: InferenceJobStatus) -> Job:
    """The job after its status went to the API server and came back."""
    document = json.loads(json.dumps(status_document(status)))
    meta = {"name": job.key.name, "namespace": job.key.namespace, "uid": job.uid}
    return replace(job, status=parse_job({"metadata": meta, "spec": {"model": "m"}, "status": document}).status)


def created_pod(action: CreatePod, now: datetime) -> Pod:
    """The pod as the API server would show it."""
    manifest = json.loads(json.dumps(action.manifest))
    manifest["metadata"] |= {
        "uid": f"uid-of-{manifest['metadata']['name']}",
        "resourceVersion": "9",
        "creationTimestamp": rfc3339(now),
    }
    manifest["status"] = {"phase": "Pending"}
    return parse_pod(manifest)


def settled(seen: Observed, scheduler: Scheduler | None = None, *, now: datetime = NOW, rounds: int = 2) -> Observed:
    """The snapshot once the job has nothing to say any more; fails when that takes more than `rounds` looks."""
    for _ in range(rounds):
        done = decide(seen, scheduler, now=now)
        if not done.actions:
            return seen
        seen = after(seen, done, now=now)
    left = decide(seen, scheduler, now=now).actions
    assert not left, f"still at it after {rounds} looks: {[type(action).__name__ for action in left]}"
    return seen


def status_of(done: Plan, before: Observed | None = None) -> InferenceJobStatus:
    """The status that a plan writes; the one before where it writes none."""
    written = [action.status for action in done.actions if isinstance(action, WriteStatus)]
    if not written:
        assert before is not None, "the plan writes no status"
        return before.job.status
    return written[-1]


def kinds(done: Plan) -> tuple[str, ...]:
    """The names of a plan's actions, in order; a step for the better is told by an event, which tests of events look at."""
    told = (action for action in done.actions if not (isinstance(action, EmitEvent) and action.type is EventType.NORMAL))
    return tuple(type(action).__name__ for action in told)


def facts(conditions: list[Condition]) -> dict[str, tuple[str, str]]:
    """Type to status and reason."""
    return {c.type: (c.status.value, c.reason) for c in conditions}


def in_seconds(seconds: float) -> datetime:
    """An instant from now."""
    return NOW + timedelta(seconds=seconds)


def kstatus(job: Job) -> str:
    """What kstatus says of a job."""
    deleted = {"deletionTimestamp": rfc3339(NOW)} if job.deleting else {}
    meta = {"generation": job.generation, **deleted}
    return verdict({"metadata": meta, "status": status_document(job.status)})

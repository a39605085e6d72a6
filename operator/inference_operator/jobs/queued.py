"""Batches in Kueue's queues: what is done about a job's Workload in one look.

A Workload is made before anything is placed, and lives as long as its job. It is made anew where the job asks for something else,
but never under an attempt: what runs has the quota that it was admitted with.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import ConditionType, Reason, Truth, find
from inference_operator.jobs.demand import priority
from inference_operator.jobs.outcome import Outcome, stop_all
from inference_operator.jobs.state import BatchState, Refused, ServiceState
from inference_operator.queueing import workload as workloads
from inference_operator.queueing.admission import Admission, Admitted, Evicted, Inactive, admission
from inference_operator.settings import Settings
from inference_operator.state.kueue import EVICTED, FINISHED, KueueApi, Workload
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import Action
from inference_operator.workers.creation import is_held_up
from inference_operator.workers.resolve import ResolvedJob


def queued(
    outcome: Outcome, observed: Observed, state: Refused | BatchState | ServiceState, settings: Settings, now: datetime
) -> Outcome:
    """Return what was decided about a job with what its Workload needs."""
    # A job that has ended by this is told first, and its Workload in the look after.
    if outcome.silent or outcome.ended or observed.kueue.api is not KueueApi.SERVING:
        return outcome
    return replace(outcome, actions=(*outcome.actions, *_actions(observed, state, settings, now)))


def _actions(observed: Observed, state: Refused | BatchState | ServiceState, settings: Settings, now: datetime) -> Iterator[Action]:
    workload, spec = observed.kueue.workload, observed.job.spec
    if workload is not None and workload.deleting:
        return
    if spec is not None and spec.suspend:
        if workload is not None and workload.active:
            yield workloads.suspend(workload)
        elif workload is not None and _must_give_back(workload, observed):
            yield workloads.give_back(workload, now)
        return
    if not isinstance(state, BatchState):
        # What keeps the job from running may pass: until then it keeps its place in the queue, but no quota that is wanted back.
        yield from _evicted_meanwhile(workload, observed, now)
        return
    if state.admission is None:
        if workload is not None and not _holds_place(observed):
            yield workloads.delete(workload, "the job names no queue any more")
    elif workload is None:
        if not _holds_place(observed) and not is_held_up(observed.create_failure, settings, now):
            own = priority(state.resolved, settings)
            yield workloads.create_workload(state.resolved, settings, observed.kueue.priorities, own)
    else:
        yield from _kept_up(workload, observed, state, state.resolved, settings, now)


def _evicted_meanwhile(workload: Workload | None, observed: Observed, now: datetime) -> Iterator[Action]:
    found = admission(observed.kueue, under_way=False)
    if workload is None or not isinstance(found, Evicted):
        return
    if _must_give_back(workload, observed):
        yield workloads.give_back(workload, now)
    else:
        yield from stop_all(observed, f"evicted by Kueue: {found.message}")


def _kept_up(
    workload: Workload, observed: Observed, state: BatchState, resolved: ResolvedJob, settings: Settings, now: datetime
) -> Iterator[Action]:
    """At most one change: each is of the version that was seen."""
    stopped = not _holds_place(observed)
    if workload.suspended:
        yield workloads.resume(workload)
    elif stopped and workload.holds(FINISHED):
        yield workloads.delete(workload, "it counts as finished, and its job has not ended")
    elif _must_give_back(workload, observed):
        yield workloads.give_back(workload, now)
    elif stopped and workload.revision != workloads.revision(workloads.spec(resolved, settings)):
        yield workloads.delete(workload, "the job asks for something else now")
    elif not workload.reserved:
        wanted = workloads.priority(resolved, settings, observed.kueue.priorities, priority(resolved, settings))
        changed = workloads.with_priority(workload, wanted)
        yield from (changed,) if changed is not None else ()
    elif isinstance(state.admission, Admitted) and _runs(state):
        told = workloads.ready(workload, now)
        yield from (told,) if told is not None else ()


def _must_give_back(workload: Workload, observed: Observed) -> bool:
    return workload.reserved and workload.holds(EVICTED) and not _holds_place(observed)


def _holds_place(observed: Observed) -> bool:
    """Whether a worker may still use what the quota is of."""
    return any(not attempt.terminal and attempt.pod.uid not in observed.lost for attempt in observed.attempts)


def _runs(state: BatchState) -> bool:
    tried = state.attempts
    return tried.newest is not None and tried.ending is None and tried.newest.running


def finished(observed: Observed, now: datetime) -> tuple[Action, ...]:
    """Return the end of the Workload of a job that has ended, once no worker of it is left."""
    workload = observed.kueue.workload
    if workload is None or workload.deleting or _holds_place(observed):
        return ()
    succeeded = find(observed.job.status.conditions, ConditionType.SUCCEEDED)
    failed = succeeded is not None and succeeded.status is Truth.FALSE
    told = workloads.finish(workload, observed.job, now, failed=failed)
    return (told,) if told is not None else ()


def why_not_admitted(found: Admission | None) -> tuple[Reason, str] | None:
    """Return what a batch in a queue waits for; None for one that may run."""
    match found:
        case None | Admitted():
            return None
        case Inactive(message):
            return Reason.WORKLOAD_INACTIVE, message
        case Evicted(message):
            return Reason.WAITING_FOR_QUOTA, f"evicted: {message}"
        case _:
            return Reason.WAITING_FOR_QUOTA, found.message

"""Warm pools: workers that belong to a model and take one batch after the other, so that a job on one needs no pod of its own.

A pool has as many workers as there are jobs that could use them, within its bounds. Workers over the minimum go once they have been
idle for as long as the model says. All of it follows from what is there: a new operator finds the pool as the old one left it.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import msgspec

from inference_operator.api import names
from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition, calm, dated
from inference_operator.api.instants import EARLIEST, shift
from inference_operator.api.job import Backend
from inference_operator.api.model import WarmPoolStatus
from inference_operator.scheduling.types import Assignment, Decision, Explanation, Option, PlacementRequest, PoolDemand
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Pod, Worker
from inference_operator.state.observed import PoolObserved
from inference_operator.state.request import pool_request
from inference_operator.state.runner import is_running
from inference_operator.state.volumes import deleting
from inference_operator.warmpools.credentials import Tokens
from inference_operator.warmpools.eligibility import Pool, pool_config
from inference_operator.warmpools.pool_state import Fault, PoolState
from inference_operator.workers.actions import Action, CreatePod, DeletePod, Plan, StopTask, WriteModelStatus
from inference_operator.workers.creation import assumed, placement_at
from inference_operator.workers.options import mounts_of, nodes_of, options, worker_resources
from inference_operator.workers.pod import pool_pod
from inference_operator.workers.pod_problems import problem_of
from inference_operator.workers.pod_template import template_on
from inference_operator.workers.triton import pod_amounts

_MESSAGE_LENGTH = 4096


def pool_placement_request(
    observed: PoolObserved, state: PoolState, demand: PoolDemand, settings: Settings, now: datetime
) -> PlacementRequest | None:
    """The workers that a pool wants placed now. They are as urgent as the most urgent job that waits for them."""
    pool = state.pool
    if pool is None or not _wants_workers(state, now):
        return None
    return PlacementRequest(
        key=pool_request(observed.model.key),
        uid=observed.model.uid,
        revision=pool.revisions.combined,
        workers=state.missing,
        options=_options(pool, observed, settings),
        created=EARLIEST,
        priority=demand.priority,
        holds=True,
        beside=nodes_of(state.current),
        failed_on=nodes_of(pod for pod in observed.pods if _never_started(pod, state)),
    )


def _wants_workers(state: PoolState, now: datetime) -> bool:
    return state.missing > 0 and (state.retry is None or state.retry <= now)


def _never_started(pod: Pod, state: PoolState) -> bool:
    """Whether it is given up, or was and is not gone yet, or was turned away by its node."""
    ended = pod.deleting or any(pod is one for one in state.failed)
    return (ended and pod.started is None) or any(pod is one for one, _ in state.given_up)


def _options(pool: Pool, observed: PoolObserved, settings: Settings) -> tuple[Option, ...]:
    like = pool.like
    mounts = mounts_of(pool.model.key.namespace, pool.mounts, observed.volumes, observed.claims)
    return options(like.job, like.spec, pool.model, like.source, like.backend, settings, mounts)


def plan_pool(
    observed: PoolObserved,
    state: PoolState,
    decision: Decision | None,
    settings: Settings,
    tokens: Tokens,
    now: datetime,
) -> Plan:
    """Return the workers to make and to let go, and the pool's status."""
    actions: list[Action] = []
    pool = state.pool
    if decision is not None and pool is not None and _is_of(decision, pool):
        taken = max((p.number for p in observed.pods), default=0)
        for offset, (given, why) in enumerate(decision.explained[: state.missing], start=1):
            actions.append(_create(pool, given, why, number=taken + offset, settings=settings, tokens=tokens, now=now))
    over = _over(observed, pool, state) if pool is not None else frozenset()
    gone = [(p, cause) for p in (*state.stale, *state.current) if (cause := _why_let_go(p, observed, state, over)) is not None]
    actions.extend(DeletePod(p.key, p.uid, cause) for p, cause in gone)
    if decision is not None or not _wants_workers(state, now):
        # Nothing but the pod tells the scheduler where its successor should not go.
        actions.extend(DeletePod(p.key, p.uid, ending.message) for p, ending in state.given_up)
    # The newest that failed keeps the last words, and the first tells with it how many did; others only fill the list.
    pausing = state.retry is not None and state.retry > now
    kept = tuple(
        p
        for p in (*state.failed[:1], *state.failed[-1:])
        if (pausing or not p.lingering) and not deleting(p.claims, observed.claims)
    )
    actions.extend(DeletePod(p.key, p.uid, "ended") for p in state.ended if p not in kept)
    status = _status(observed, state, decision, now)
    if status != observed.model.status.warm_pool:
        model = observed.model
        written = replace(model.status, warm_pool=status)
        actions.append(WriteModelStatus(model.key, model.uid, written, model.resource_version))
    # At the end, since a worker that does not answer ends the plan.
    actions.extend(_stop_orphaned_tasks(observed))
    return Plan(tuple(actions), _recheck(observed, state, now))


def _is_of(decision: Decision, pool: Pool) -> bool:
    return (decision.uid, decision.revision) == (pool.model.uid, pool.revisions.combined)


def _stop_orphaned_tasks(observed: PoolObserved) -> list[StopTask]:
    """Others wait for a worker that does what nobody waits for."""
    warm_workers = {pod.key: pod for pod in observed.live}
    found = (
        (warm_worker, task)
        for key, task in observed.orphaned_tasks
        if (warm_worker := warm_workers.get(key)) is not None and warm_worker.address is not None
    )
    return [
        StopTask(warm_worker.key, warm_worker.address or "", *task, "its job is gone, or has gone on elsewhere")
        for warm_worker, task in found
    ]


def _why_let_go(pod: Pod, observed: PoolObserved, state: PoolState, over: frozenset[str]) -> str | None:
    """Why a worker without tasks is not kept; None when it is."""
    if observed.tasks.get(pod.key):
        return None
    if state.pool is None:
        return "the model has no warm pool any more"
    if pod in state.stale:
        return "the model or its pool has changed"
    return f"idle for {observed.idle_seconds[pod.uid]:.0f} s" if pod.uid in over else None


def _over(observed: PoolObserved, pool: Pool, state: PoolState) -> frozenset[str]:
    """Uids of the workers that were idle for long enough, the newest first, as far as there are more than could be used."""
    free = (p for p in sorted(state.current, key=lambda p: p.number)[pool.spec.min :] if not observed.tasks.get(p.key))
    idle = [p.uid for p in free if observed.idle_seconds.get(p.uid, -1.0) >= pool.spec.idle_seconds]
    return frozenset(idle[::-1][: max(0, len(state.current) - state.wanted)])


def _recheck(observed: PoolObserved, state: PoolState, now: datetime) -> datetime | None:
    """When to look again though nothing happens to the pool: at a retry, or once a worker answered or idled for long enough.

    The end of a task is no event of its pool, so one that is over its minimum is looked at while all are busy too.
    """
    times = [at for at in (state.retry, state.settles, state.gives_up) if at is not None and at > now]
    pool = state.pool
    if pool is not None and len(state.current) > pool.spec.min:
        waits = [_still_to_wait(p, observed, pool.spec.idle_seconds) for p in state.current]
        times.append(shift(now, min(waits) + 1.0))
    return min(times, default=None)


def _still_to_wait(pod: Pod, observed: PoolObserved, idle_seconds: float) -> float:
    idle = 0.0 if observed.tasks.get(pod.key) else observed.idle_seconds.get(pod.uid, 0.0)
    return max(idle_seconds - idle, 0.0)


def _status(observed: PoolObserved, state: PoolState, decision: Decision | None, now: datetime) -> WarmPoolStatus | None:
    if state.pool is None and state.refusal is None:
        return None
    before = observed.model.status.warm_pool
    told = before.conditions if before is not None else []
    if not _is_undecided(state, decision):
        fresh = dated(_ready(state, decision), before=told, generation=observed.model.generation, now=now)
        told = [calm(condition, told) for condition in fresh]
    return WarmPoolStatus(workers=len(state.current), ready=state.ready, conditions=told)


def _ready(state: PoolState, decision: Decision | None) -> Iterator[UndatedCondition]:
    """Whether workers take tasks. Nothing is said while they only start, or none is wanted: it would cost a write for nothing."""
    fault = _why_not_more(state, decision)
    if fault is not None:
        yield UndatedCondition(ConditionType.READY, Truth.FALSE, fault.reason, fault.message[:_MESSAGE_LENGTH])
    elif state.ready:
        yield UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SERVING, "warm workers take tasks")


def _is_undecided(state: PoolState, decision: Decision | None) -> bool:
    """Whether the scheduler has yet to say if there is room. It answers within milliseconds; until then, what was told stands."""
    return decision is None and state.missing > 0 and state.refusal is None and state.fault is None


def _why_not_more(state: PoolState, decision: Decision | None) -> Fault | None:
    """Why there are not as many workers as wanted; None when there are, or will be soon."""
    if state.refusal is not None:
        return Fault(state.refusal.reason, state.refusal.message)
    if state.fault is not None:
        return state.fault
    if state.missing and decision is not None and decision.pending is not None and not decision.assignments:
        return Fault(decision.pending.reason, decision.pending.message)
    problems = (problem_of(p) for p in state.current if not is_running(p))
    return next((Fault(*problem) for problem in problems if problem is not None), None)


def _create(
    pool: Pool, given: Assignment, why: Explanation, number: int, settings: Settings, tokens: Tokens, now: datetime
) -> CreatePod:
    model, like = pool.model, pool.like
    name = names.pod_name(model.key.name, model.uid, number)
    placement = placement_at(given, why, name, now)
    of_class, revision = settings.accelerators[given.accelerator], pool.revisions.by_class[given.accelerator]
    resources = worker_resources(like.spec, model, given.accelerator, of_class)
    pod = Key(model.key.namespace, name)
    config = pool_config(like, given.accelerator, number=number, settings=settings)
    config = msgspec.structs.replace(config, task_token_digest=tokens.digest(pod))
    manifest = pool_pod(
        model,
        like.job,
        like.spec,
        config,
        resources,
        placement,
        number=number,
        revision=revision,
        mounts=pool.mounts,
        settings=settings,
    )
    worker = Worker(model.uid, number, revision, given.accelerator, placement, pool=True)
    requests = pod_amounts(resources, template_on(like.spec, of_class), with_sidecar=like.backend is Backend.TRITON)
    return CreatePod(manifest, assumed(pod, requests, worker, tuple(pool.mounts), now), f"warm worker {number} of {model.key}")

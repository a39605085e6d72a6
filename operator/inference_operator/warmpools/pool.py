"""Warm pools: workers that belong to a model and take one batch after the other, so that a job on one needs no pod of its own.

A pool has as many workers as there are jobs that could use them, within its bounds. Workers over the minimum go once they have been
idle for as long as the model says. All of it follows from what is there: a new operator finds the pool as the old one left it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from inference_operator.api import names
from inference_operator.api.instants import EARLIEST, shift
from inference_operator.api.job import AttemptOutcome, Backend
from inference_operator.api.model import Sharing, WarmPoolStatus
from inference_operator.api.quantity import parse_quantity
from inference_operator.jobs.replicas import PERMANENT_RETRY_SECONDS
from inference_operator.scheduling.types import Assignment, Decision, Explanation, Offer, PlacementRequest, PoolDemand, WarmWorker
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Model, Pod, PoolObserved, Worker
from inference_operator.state.pool_key import pool_key
from inference_operator.warmpools.credentials import Tokens
from inference_operator.warmpools.eligibility import Pool, offer_of, refusal_of
from inference_operator.workers.actions import Action, CreatePod, DeletePod, Plan, StopTask, WriteModelStatus
from inference_operator.workers.attempts import backoff_seconds, ending_of, is_running
from inference_operator.workers.creation import assumed, placement_at
from inference_operator.workers.options import nodes_of, options, worker_resources
from inference_operator.workers.pod import pool_pod, worker_config
from inference_operator.workers.pod_problems import problem_of
from inference_operator.workers.triton import pod_amounts


@dataclass(frozen=True, slots=True)
class PoolState:
    """How a pool's workers stand. `stale` ones have an older revision; they end what they do and go.

    `failed` are the ended ones that failed in a row, by number: none once one answers that came after them. `fault` says what is
    wrong, for as long as jobs should stay away for it, and `retry` when the next worker is tried.
    """

    wanted: int
    current: tuple[Pod, ...]
    stale: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    failed: tuple[Pod, ...]
    fault: str | None
    retry: datetime | None

    @property
    def ready(self) -> int:
        """Workers that answer."""
        return sum(is_running(pod) for pod in self.current)

    @property
    def missing(self) -> int:
        """Workers that have still to be placed."""
        return max(0, self.wanted - len(self.current))


def pool_state(observed: PoolObserved, pool: Pool | None, demand: PoolDemand, settings: Settings, now: datetime) -> PoolState:
    """Judge a pool by what is observed of it. Without a pool, all its workers are stale."""
    live = [p for p in observed.pods if not p.terminal and not p.deleting and p.uid not in observed.lost]
    current = tuple(p for p in live if pool is not None and p.worker is not None and p.worker.revision == pool.revision)
    ended = tuple(sorted((p for p in observed.pods if p.terminal and not p.deleting), key=lambda p: p.number))
    busy = demand.count + sum(observed.tasks.values())
    wanted = min(max(pool.spec.min, busy), pool.spec.max) if pool is not None else 0
    stale = tuple(p for p in live if p not in current)
    failed = _failed(ended, current, pool) if pool is not None else ()
    state = PoolState(wanted, current, stale, ended, failed, None, None)
    if pool is None or not (faults := [*_failure(failed, pool.revision, settings), *_refusal(observed, settings)]):
        return state
    retry, fault = max(faults)
    # What is more than the minimum is tried by the next job, which would stay away from a pool that says it is at fault.
    over = retry <= now and state.ready >= pool.spec.min
    return replace(state, fault=None if over else fault, retry=retry)


def _failed(ended: Sequence[Pod], current: Sequence[Pod], pool: Pool) -> tuple[Pod, ...]:
    endings = ((p, ending_of(p, pool.revision)) for p in ended)
    failed = tuple(p for p, ending in endings if ending is not None and ending.outcome is AttemptOutcome.FAILED)
    newest = max((p.number for p in failed), default=0)
    return () if any(is_running(p) and p.number > newest for p in current) else failed


def _failure(failed: Sequence[Pod], revision: str, settings: Settings) -> Iterator[tuple[datetime, str]]:
    """When the next is tried after those that failed, and what the newest failed of."""
    ending = ending_of(failed[-1], revision) if failed else None
    if ending is None:
        return
    first, newest = failed[0], failed[-1]
    # The first and the newest are kept: their numbers tell how many there were.
    wait = PERMANENT_RETRY_SECONDS if ending.permanent else backoff_seconds(1 + newest.number - first.number, settings)
    yield shift(newest.ended or newest.created or EARLIEST, wait), f"{ending.reason}: {ending.message}"


def _refusal(observed: PoolObserved, settings: Settings) -> Iterator[tuple[datetime, str]]:
    """When the API server is asked again after it has refused, and what it said."""
    if (create_failure := observed.create_failure) is not None:
        yield shift(create_failure.time, settings.backoff_limit_seconds), f"{create_failure.reason}: {create_failure.message}"


def pool_request(
    observed: PoolObserved, pool: Pool | None, state: PoolState, demand: PoolDemand, settings: Settings, now: datetime
) -> PlacementRequest | None:
    """The workers that a pool wants placed now. They are as urgent as the most urgent job that waits for them."""
    if pool is None or not state.missing or (state.retry is not None and state.retry > now):
        return None
    return PlacementRequest(
        key=pool_key(observed.model.key),
        uid=observed.model.uid,
        revision=pool.revision,
        slots=state.missing,
        options=options(replace(pool.like, volumes=observed.volumes), settings, pool.mounts),
        created=EARLIEST,
        priority=demand.priority,
        holds=True,
        beside=nodes_of(state.current),
    )


def plan_pool(
    observed: PoolObserved,
    pool: Pool | None,
    state: PoolState,
    decision: Decision | None,
    settings: Settings,
    tokens: Tokens,
    now: datetime,
) -> Plan:
    """Workers to make and to let go, and the pool's status."""
    actions: list[Action] = []
    if decision is not None and pool is not None and (decision.uid, decision.revision) == (observed.model.uid, pool.revision):
        taken = max((p.number for p in observed.pods), default=0)
        for offset, (given, why) in enumerate(decision.explained[: state.missing], start=1):
            actions.append(
                _create(observed.model, pool, given, why, number=taken + offset, settings=settings, tokens=tokens, now=now)
            )
    over = _over(observed, pool, state) if pool is not None else frozenset()
    gone = [
        (p, cause) for p in (*state.stale, *state.current) if (cause := _why_let_go(p, observed, pool, state, over)) is not None
    ]
    actions.extend(DeletePod(p.key, p.uid, cause) for p, cause in gone)
    # The newest that failed keeps the last words, and the first tells with it how many did; others only fill the list.
    kept = (*state.failed[:1], *state.failed[-1:])
    actions.extend(DeletePod(p.key, p.uid, "ended") for p in state.ended if p not in kept)
    status = _status(observed, pool, state, decision, settings)
    if status != observed.model.status.warm_pool:
        model = observed.model
        written = replace(model.status, warm_pool=status)
        actions.append(WriteModelStatus(model.key, model.uid, written, model.resource_version))
    # At the end, since a worker that does not answer ends the plan.
    actions.extend(_stop_orphaned_tasks(observed))
    return Plan(tuple(actions), _recheck(observed, pool, state, now))


def _stop_orphaned_tasks(observed: PoolObserved) -> list[StopTask]:
    """Others wait for a worker that does what nobody waits for."""
    warm_workers = {pod.key: pod for pod in observed.pods if not pod.terminal and not pod.deleting and pod.uid not in observed.lost}
    found = (
        (warm_worker, task)
        for key, task in observed.orphaned_tasks
        if (warm_worker := warm_workers.get(key)) is not None and warm_worker.address is not None
    )
    return [
        StopTask(warm_worker.key, warm_worker.address or "", *task, "its job is gone, or has gone on elsewhere")
        for warm_worker, task in found
    ]


def _why_let_go(pod: Pod, observed: PoolObserved, pool: Pool | None, state: PoolState, over: frozenset[str]) -> str | None:
    """Why a worker without tasks is not kept; None when it is."""
    if observed.tasks.get(pod.key):
        return None
    if pool is None:
        return "the model has no warm pool any more"
    if pod in state.stale:
        return "the model or its pool has changed"
    return f"idle for {observed.idle_seconds[pod.uid]:.0f} s" if pod.uid in over else None


def _over(observed: PoolObserved, pool: Pool, state: PoolState) -> frozenset[str]:
    """Uids of the workers that were idle for long enough, the newest first, as far as there are more than could be used."""
    free = (p for p in sorted(state.current, key=lambda p: p.number)[pool.spec.min :] if not observed.tasks.get(p.key))
    idle = [p.uid for p in free if observed.idle_seconds.get(p.uid, -1.0) >= pool.spec.idle_seconds]
    return frozenset(idle[::-1][: max(0, len(state.current) - state.wanted)])


def _recheck(observed: PoolObserved, pool: Pool | None, state: PoolState, now: datetime) -> datetime | None:
    """When to look again though nothing happens to the pool: at a retry, or when a worker will have been idle for long enough.

    The end of a task is no event of its pool, so one that is over its minimum is looked at while all are busy too.
    """
    times = [state.retry] if state.retry is not None and state.retry > now else []
    if pool is not None and len(state.current) > pool.spec.min:
        waits = [_still_to_wait(p, observed, pool.spec.idle_seconds) for p in state.current]
        times.append(shift(now, min(waits) + 1.0))
    return min(times, default=None)


def _still_to_wait(pod: Pod, observed: PoolObserved, idle_seconds: float) -> float:
    idle = 0.0 if observed.tasks.get(pod.key) else observed.idle_seconds.get(pod.uid, 0.0)
    return max(idle_seconds - idle, 0.0)


def _status(
    observed: PoolObserved, pool: Pool | None, state: PoolState, decision: Decision | None, settings: Settings
) -> WarmPoolStatus | None:
    if pool is None:
        refused = refusal_of(observed.model, settings)
        return WarmPoolStatus(message=f"{refused.reason}: {refused.message}"[:4096]) if refused is not None else None
    message = _why_not_more(state, decision)
    before = observed.model.status.warm_pool
    if message is not None and before is not None and before.message is not None:
        # Counts in the words move all the time; while the reason stands, so do they.
        message = before.message if before.message.split(":")[0] == message.split(":")[0] else message
    return WarmPoolStatus(workers=len(state.current), ready=state.ready, message=message[:4096] if message is not None else None)


def _why_not_more(state: PoolState, decision: Decision | None) -> str | None:
    """Why there are not as many workers as wanted; None when there are, or will be soon."""
    if state.fault is not None:
        return state.fault
    if state.missing and decision is not None and decision.pending is not None and not decision.assignments:
        return f"{decision.pending.reason}: {decision.pending.message}"
    problems = (problem_of(p) for p in state.current if not is_running(p))
    return next((f"{t[0]}: {t[1]}" for t in problems if t is not None), None)


def _create(
    model: Model, pool: Pool, given: Assignment, why: Explanation, number: int, settings: Settings, tokens: Tokens, now: datetime
) -> CreatePod:
    name = names.pod_name(model.key.name, model.uid, number)
    placement = placement_at(given, why, name, now)
    of_class = settings.accelerators[given.accelerator]
    resources = worker_resources(pool.like, given.accelerator, of_class)
    pod = Key(model.key.namespace, name)
    config = worker_config(pool.like.job, pool.source, of_class, number=number, settings=settings, backend=pool.backend)
    config = msgspec.structs.replace(config, task_token_digest=tokens.digest(pod))
    manifest = pool_pod(
        model,
        pool.like.job,
        config,
        resources,
        placement,
        number=number,
        revision=pool.revision,
        mounts=pool.mounts,
        settings=settings,
    )
    worker = Worker(model.uid, number, pool.revision, given.accelerator, placement, pool=True)
    requests = pod_amounts(resources, with_sidecar=pool.backend is Backend.TRITON)
    return CreatePod(manifest, assumed(pod, requests, worker, now), f"warm worker {number} of {model.key}")


def warm_workers(
    observed: PoolObserved,
    pool: Pool,
    state: PoolState,
    demand: PoolDemand,
    settings: Settings,
    now: datetime,
    *,
    blocked: bool = False,
) -> tuple[WarmWorker, ...]:
    """The pool's workers as places for tasks: those that answer, those that start, and those it could add unless `blocked`."""
    found = []
    key = pool_key(observed.model.key)
    # Made anew in every pass: pools without co-located models are not asked what room they have.
    open_ = () if pool.spec.sharing is Sharing.NONE else settings.accelerators
    offers = {name: offer_of(pool, name, _memory_bytes(pool, name, settings)) for name in open_}
    starts = {o.accelerator: o.estimate.load_seconds for o in options(pool.like, settings)}
    for pod in state.current:
        if pod.worker is None:
            continue
        load = starts.get(pod.worker.accelerator, settings.assumed_load_seconds)
        ready = is_running(pod) and pod.address is not None
        since = (now - pod.created).total_seconds() if pod.created is not None else 0.0
        wait = observed.busy_seconds.get(pod.key, 0.0) if ready else max(load - since, 0.1 * load)
        where = pod.node or (pod.worker.placement.node if pod.worker.placement is not None else "")
        found.append(
            WarmWorker(
                key,
                pod.key,
                where,
                pod.worker.accelerator,
                wait,
                observed.tasks.get(pod.key, 0),
                ready,
                _on_its_device(offers.get(pod.worker.accelerator), observed.device_free_bytes.get(pod.key, 0)),
                observed.colocated.get(pod.key, frozenset()),
            )
        )
    if state.fault is None and not blocked:
        for accelerator, load in starts.items():
            extra = range(pool.spec.max - len(state.current))
            found.extend(WarmWorker(key, None, "", accelerator, load, 0, ready=False) for _ in extra[: demand.count])
    return tuple(found)


def _on_its_device(offer: Offer | None, free_bytes: int) -> Offer | None:
    """The offer of one worker, by what that says its device has left; nothing, where it has none or does not say."""
    return replace(offer, memory=offer.memory._replace(device=free_bytes)) if offer is not None and free_bytes else offer


def _memory_bytes(pool: Pool, accelerator: str, settings: Settings) -> int | None:
    """The memory that a pool's workers may use: their limit, else what is kept for them; None where neither is said."""
    resources = worker_resources(pool.like, accelerator, settings.accelerators[accelerator])
    size = resources.limits.get("memory") or resources.requests.get("memory")
    return parse_quantity(size) if size is not None else None

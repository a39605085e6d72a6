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
from inference_operator.api.model import Guests, WarmPoolStatus
from inference_operator.api.quantity import parse_quantity
from inference_operator.jobs.replicas import PERMANENT_RETRY_SECONDS
from inference_operator.scheduling.types import Answer, Assignment, Demand, Host, Need, Offer
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
from inference_operator.workers.pod_problems import trouble_of
from inference_operator.workers.triton import pod_amounts


@dataclass(frozen=True, slots=True)
class Standing:
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


def standing(observed: PoolObserved, pool: Pool | None, demand: Demand, settings: Settings, now: datetime) -> Standing:
    """Judge a pool by what is observed of it. Without a pool, all its workers are stale."""
    live = [p for p in observed.pods if not p.terminal and not p.deleting and p.uid not in observed.lost]
    current = tuple(p for p in live if pool is not None and p.worker is not None and p.worker.revision == pool.revision)
    ended = tuple(sorted((p for p in observed.pods if p.terminal and not p.deleting), key=lambda p: p.number))
    busy = demand.count + sum(observed.lodgers.values())
    wanted = min(max(pool.spec.min, busy), pool.spec.max) if pool is not None else 0
    stale = tuple(p for p in live if p not in current)
    failed = _failed(ended, current, pool) if pool is not None else ()
    stand = Standing(wanted, current, stale, ended, failed, None, None)
    if pool is None or not (faults := [*_failure(failed, pool.revision, settings), *_refusal(observed, settings)]):
        return stand
    retry, fault = max(faults)
    # What is more than the minimum is tried by the next job, which would stay away from a pool that says it is at fault.
    over = retry <= now and stand.ready >= pool.spec.min
    return replace(stand, fault=None if over else fault, retry=retry)


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
    if (setback := observed.setback) is not None:
        yield shift(setback.time, settings.backoff_limit_seconds), f"{setback.reason}: {setback.message}"


def pool_need(
    observed: PoolObserved, pool: Pool | None, stand: Standing, demand: Demand, settings: Settings, now: datetime
) -> Need | None:
    """The workers that a pool wants placed now. They are as urgent as the most urgent job that waits for them."""
    if pool is None or not stand.missing or (stand.retry is not None and stand.retry > now):
        return None
    return Need(
        key=pool_key(observed.model.key),
        uid=observed.model.uid,
        revision=pool.revision,
        slots=stand.missing,
        options=options(replace(pool.like, volumes=observed.volumes), settings, pool.mounts),
        created=EARLIEST,
        priority=demand.priority,
        holds=True,
        beside=nodes_of(stand.current),
    )


def plan_pool(
    observed: PoolObserved,
    pool: Pool | None,
    stand: Standing,
    answer: Answer | None,
    settings: Settings,
    tokens: Tokens,
    now: datetime,
) -> Plan:
    """Workers to make and to let go, and the pool's status."""
    actions: list[Action] = []
    if answer is not None and pool is not None and (answer.uid, answer.revision) == (observed.model.uid, pool.revision):
        taken = max((p.number for p in observed.pods), default=0)
        for offset, given in enumerate(answer.assignments[: stand.missing], start=1):
            actions.append(_create(observed.model, pool, given, number=taken + offset, settings=settings, tokens=tokens, now=now))
    over = _over(observed, pool, stand) if pool is not None else frozenset()
    gone = [(p, why) for p in (*stand.stale, *stand.current) if (why := _why_let_go(p, observed, pool, stand, over)) is not None]
    actions.extend(DeletePod(p.key, p.uid, why) for p, why in gone)
    # The newest that failed keeps the last words, and the first tells with it how many did; others only fill the list.
    kept = (*stand.failed[:1], *stand.failed[-1:])
    actions.extend(DeletePod(p.key, p.uid, "ended") for p in stand.ended if p not in kept)
    status = _status(observed, pool, stand, answer, settings)
    if status != observed.model.status.warm_pool:
        model = observed.model
        written = replace(model.status, warm_pool=status)
        actions.append(WriteModelStatus(model.key, model.uid, written, model.resource_version))
    # At the end, since a worker that does not answer ends the plan.
    actions.extend(_stop_strays(observed))
    return Plan(tuple(actions), _recheck(observed, pool, stand, now))


def _stop_strays(observed: PoolObserved) -> list[StopTask]:
    """Others wait for a worker that does what nobody waits for."""
    hosts = {pod.key: pod for pod in observed.pods if not pod.terminal and not pod.deleting and pod.uid not in observed.lost}
    found = ((host, task) for key, task in observed.strays if (host := hosts.get(key)) is not None and host.address is not None)
    return [StopTask(host.key, host.address or "", *task, "its job is gone, or has gone on elsewhere") for host, task in found]


def _why_let_go(pod: Pod, observed: PoolObserved, pool: Pool | None, stand: Standing, over: frozenset[str]) -> str | None:
    """Why a worker without tasks is not kept; None when it is."""
    if observed.lodgers.get(pod.key):
        return None
    if pool is None:
        return "the model has no warm pool any more"
    if pod in stand.stale:
        return "the model or its pool has changed"
    return f"idle for {observed.idle_seconds[pod.uid]:.0f} s" if pod.uid in over else None


def _over(observed: PoolObserved, pool: Pool, stand: Standing) -> frozenset[str]:
    """Uids of the workers that were idle for long enough, the newest first, as far as there are more than could be used."""
    free = (p for p in sorted(stand.current, key=lambda p: p.number)[pool.spec.min :] if not observed.lodgers.get(p.key))
    idle = [p.uid for p in free if observed.idle_seconds.get(p.uid, -1.0) >= pool.spec.idle_seconds]
    return frozenset(idle[::-1][: max(0, len(stand.current) - stand.wanted)])


def _recheck(observed: PoolObserved, pool: Pool | None, stand: Standing, now: datetime) -> datetime | None:
    """When to look again though nothing happens to the pool: at a retry, or when a worker will have been idle for long enough.

    The end of a task is no event of its pool, so one that is over its minimum is looked at while all are busy too.
    """
    times = [stand.retry] if stand.retry is not None and stand.retry > now else []
    if pool is not None and len(stand.current) > pool.spec.min:
        waits = [_still_to_wait(p, observed, pool.spec.idle_seconds) for p in stand.current]
        times.append(shift(now, min(waits) + 1.0))
    return min(times, default=None)


def _still_to_wait(pod: Pod, observed: PoolObserved, idle_seconds: float) -> float:
    idle = 0.0 if observed.lodgers.get(pod.key) else observed.idle_seconds.get(pod.uid, 0.0)
    return max(idle_seconds - idle, 0.0)


def _status(
    observed: PoolObserved, pool: Pool | None, stand: Standing, answer: Answer | None, settings: Settings
) -> WarmPoolStatus | None:
    if pool is None:
        refused = refusal_of(observed.model, settings)
        return WarmPoolStatus(message=f"{refused.reason}: {refused.message}"[:4096]) if refused is not None else None
    message = _why_not_more(stand, answer)
    before = observed.model.status.warm_pool
    if message is not None and before is not None and before.message is not None:
        # Counts in the words move all the time; while the reason stands, so do they.
        message = before.message if before.message.split(":")[0] == message.split(":")[0] else message
    return WarmPoolStatus(workers=len(stand.current), ready=stand.ready, message=message[:4096] if message is not None else None)


def _why_not_more(stand: Standing, answer: Answer | None) -> str | None:
    """Why there are not as many workers as wanted; None when there are, or will be soon."""
    if stand.fault is not None:
        return stand.fault
    if stand.missing and answer is not None and answer.obstacle is not None and not answer.assignments:
        return f"{answer.obstacle.reason}: {answer.obstacle.message}"
    troubles = (trouble_of(p) for p in stand.current if not is_running(p))
    return next((f"{t[0]}: {t[1]}" for t in troubles if t is not None), None)


def _create(
    model: Model, pool: Pool, given: Assignment, number: int, settings: Settings, tokens: Tokens, now: datetime
) -> CreatePod:
    name = names.pod_name(model.key.name, model.uid, number)
    placement = placement_at(given, name, now)
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


def hosts(
    observed: PoolObserved,
    pool: Pool,
    stand: Standing,
    demand: Demand,
    settings: Settings,
    now: datetime,
    *,
    blocked: bool = False,
) -> tuple[Host, ...]:
    """The pool's workers as places for tasks: those that answer, those that start, and those it could add unless `blocked`."""
    found = []
    key = pool_key(observed.model.key)
    # Made anew in every pass: pools without guests are not asked what room they have.
    open_ = () if pool.spec.guests is Guests.NONE else settings.accelerators
    offers = {name: offer_of(pool, name, _memory_bytes(pool, name, settings)) for name in open_}
    starts = {o.accelerator: o.estimate.load_seconds for o in options(pool.like, settings)}
    for pod in stand.current:
        if pod.worker is None:
            continue
        load = starts.get(pod.worker.accelerator, settings.assumed_load_seconds)
        ready = is_running(pod) and pod.address is not None
        since = (now - pod.created).total_seconds() if pod.created is not None else 0.0
        wait = observed.busy_seconds.get(pod.key, 0.0) if ready else max(load - since, 0.1 * load)
        where = pod.node or (pod.worker.placement.node if pod.worker.placement is not None else "")
        found.append(
            Host(
                key,
                pod.key,
                where,
                pod.worker.accelerator,
                wait,
                observed.lodgers.get(pod.key, 0),
                ready,
                _on_its_device(offers.get(pod.worker.accelerator), observed.device_free_bytes.get(pod.key, 0)),
                observed.guests.get(pod.key, frozenset()),
            )
        )
    if stand.fault is None and not blocked:
        for accelerator, load in starts.items():
            extra = range(pool.spec.max - len(stand.current))
            found.extend(Host(key, None, "", accelerator, load, 0, ready=False) for _ in extra[: demand.count])
    return tuple(found)


def _on_its_device(offer: Offer | None, free_bytes: int) -> Offer | None:
    """The offer of one worker, by what that says its device has left; nothing, where it has none or does not say."""
    return replace(offer, memory=offer.memory._replace(device=free_bytes)) if offer is not None and free_bytes else offer


def _memory_bytes(pool: Pool, accelerator: str, settings: Settings) -> int | None:
    """The memory that a pool's workers may use: their limit, else what is kept for them; None where neither is said."""
    resources = worker_resources(pool.like, accelerator, settings.accelerators[accelerator])
    size = resources.limits.get("memory") or resources.requests.get("memory")
    return parse_quantity(size) if size is not None else None

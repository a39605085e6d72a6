"""Warm pools: workers that belong to a model and take one batch after the other, so that a job on one needs no pod of its own.

A pool has as many workers as there are jobs that could use them, within its bounds. Workers over the minimum go once they have been
idle for as long as the model says. All of it follows from what is there: a new operator finds the pool as the old one left it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from inference_operator.decisions.actions import Action, CreatePod, DeletePod, Plan, WriteModelStatus
from inference_operator.decisions.attempts import Ending, backoff_seconds, ending_of, is_running
from inference_operator.decisions.backend import chosen
from inference_operator.decisions.creation import assumed, placement_at
from inference_operator.decisions.fleet import Answer, Assignment, Demand, Host, Need
from inference_operator.decisions.lodging import Pool, offer_of, pool_key
from inference_operator.decisions.need import nodes_of, options, worker_resources
from inference_operator.decisions.replicas import PERMANENT_RETRY_SECONDS
from inference_operator.decisions.trouble import trouble_of
from inference_operator.domain import names
from inference_operator.domain.cluster import Key, Model, Pod, PoolObserved, Worker
from inference_operator.domain.credentials import Tokens
from inference_operator.domain.instants import EARLIEST, shift
from inference_operator.domain.job import AttemptOutcome, Backend
from inference_operator.domain.model import WarmPoolStatus
from inference_operator.domain.quantity import parse_quantity
from inference_operator.domain.resources import amounts
from inference_operator.manifests.worker import pool_pod, worker_config
from inference_operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pool's workers stand. `stale` ones have an older revision; they end what they do and go."""

    wanted: int
    current: tuple[Pod, ...]
    stale: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    fault: Ending | None
    retry: datetime | None

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
    fault, retry = _fault(ended, current, pool, settings, now)
    return Standing(wanted, current, tuple(p for p in live if p not in current), ended, fault, retry)


def _fault(
    ended: Sequence[Pod], current: Sequence[Pod], pool: Pool | None, settings: Settings, now: datetime
) -> tuple[Ending | None, datetime | None]:
    """What the newest workers failed of, and when the next is tried; nothing once one answers that came after them."""
    faults = [(p, e) for p in ended if pool is not None and (e := ending_of(p, pool.revision)) is not None]
    failed = [(p, e) for p, e in faults if e.outcome is AttemptOutcome.FAILED]
    if not failed:
        return None, None
    newest, ending = failed[-1]
    if any(is_running(p) and p.number > newest.number for p in current):
        return None, None
    wait = PERMANENT_RETRY_SECONDS if ending.permanent else backoff_seconds(len(failed), settings)
    return ending, shift(newest.ended or now, wait)


def pool_need(
    observed: PoolObserved, pool: Pool | None, stand: Standing, demand: Demand, settings: Settings, now: datetime
) -> Need | None:
    """The workers that a pool wants placed now. They are as urgent as the most urgent job that waits for them."""
    if pool is None or not stand.missing or (stand.retry is not None and stand.retry > now):
        return None
    if observed.setback is not None and shift(observed.setback.time, settings.backoff_limit_seconds) > now:
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
    # The newest ended worker keeps the last words; older ones only fill the list.
    last = stand.ended[-1:] if stand.fault is not None else ()
    actions.extend(DeletePod(p.key, p.uid, "ended") for p in stand.ended if p not in last)
    status = _status(observed, pool, stand, answer)
    if status != observed.model.status.warm_pool:
        model = observed.model
        written = replace(model.status, warm_pool=status)
        actions.append(WriteModelStatus(model.key, model.uid, written, model.resource_version))
    return Plan(tuple(actions), _recheck(observed, pool, stand, now))


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


def _status(observed: PoolObserved, pool: Pool | None, stand: Standing, answer: Answer | None) -> WarmPoolStatus | None:
    if pool is None:
        return None
    ready = sum(is_running(p) for p in stand.current)
    message = None
    if stand.fault is not None:
        message = f"{stand.fault.reason}: {stand.fault.message}"
    elif observed.setback is not None and stand.missing:
        message = f"{observed.setback.reason}: {observed.setback.message}"
    elif stand.missing and answer is not None and answer.obstacle is not None and not answer.assignments:
        message = f"{answer.obstacle.reason}: {answer.obstacle.message}"
    else:
        troubles = (trouble_of(p) for p in stand.current if not is_running(p))
        message = next((f"{t[0]}: {t[1]}" for t in troubles if t is not None), None)
    before = observed.model.status.warm_pool
    if message is not None and before is not None and before.message is not None:
        # Counts in the words move all the time; while the reason stands, so do they.
        message = before.message if before.message.split(":")[0] == message.split(":")[0] else message
    return WarmPoolStatus(workers=len(stand.current), ready=ready, message=message[:4096] if message is not None else None)


def _create(
    model: Model, pool: Pool, given: Assignment, number: int, settings: Settings, tokens: Tokens, now: datetime
) -> CreatePod:
    name = names.pod_name(model.key.name, model.uid, number)
    placement = placement_at(given, name, now)
    of_class = settings.accelerators[given.accelerator]
    resources = worker_resources(pool.like, given.accelerator, of_class)
    pod = Key(model.key.namespace, name)
    backend = chosen(Backend.AUTO, pool.source.format).backend
    config = worker_config(pool.like.job, pool.source, of_class, number=number, settings=settings, backend=backend)
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
    requests = amounts({**resources.limits, **resources.requests})
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
    offers = {name: offer_of(pool, name, _memory_bytes(pool, name, settings)) for name in settings.accelerators}
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
                offers.get(pod.worker.accelerator),
                observed.guests.get(pod.key, frozenset()),
            )
        )
    if stand.fault is None and not blocked:
        for accelerator, load in starts.items():
            extra = range(pool.spec.max - len(stand.current))
            found.extend(Host(key, None, "", accelerator, load, 0, ready=False) for _ in extra[: demand.count])
    return tuple(found)


def _memory_bytes(pool: Pool, accelerator: str, settings: Settings) -> int | None:
    """The memory that a pool's workers may use: their limit, else what is kept for them; None where neither is said."""
    resources = worker_resources(pool.like, accelerator, settings.accelerators[accelerator])
    size = resources.limits.get("memory") or resources.requests.get("memory")
    return parse_quantity(size) if size is not None else None

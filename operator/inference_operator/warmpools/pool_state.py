"""How a model's warm workers stand, and how many there should be."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from inference_operator.api.conditions import AnyReason, Reason
from inference_operator.api.instants import shift
from inference_operator.api.model import most_workers
from inference_operator.scheduling.types import PoolDemand
from inference_operator.settings import Settings
from inference_operator.state.objects import Pod
from inference_operator.state.observed import PoolObserved
from inference_operator.state.runner import is_running, own_attempt
from inference_operator.warmpools.eligibility import Pool, resolve_pool
from inference_operator.workers.attempts import (
    PERMANENT_RETRY_SECONDS,
    backoff_seconds,
    ended_at,
    ending_of,
    holds_back,
    not_started,
    settles,
)
from inference_operator.workers.creation import told
from inference_operator.workers.ending import Ending
from inference_operator.workers.resolve import Refusal


class Fault(NamedTuple):
    """What is wrong with a pool."""

    reason: AnyReason
    message: str


@dataclass(frozen=True, slots=True)
class PoolState:
    """How a pool's workers stand. `pool` is None for a model without one, and where a `refusal` says why it has none.

    `stale` workers have an older revision; they end what they do and go. `failed` are the ended ones that failed in a row or were
    turned away by their nodes, by number: none once one that came after them has answered for long enough, which is when it
    `settles`. `fault` says what is wrong, for as long as jobs should stay away for it, and `retry` when the next worker is tried.
    """

    pool: Pool | None
    refusal: Refusal | None
    wanted: int
    current: tuple[Pod, ...]
    stale: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    failed: tuple[Pod, ...]
    fault: Fault | None
    retry: datetime | None
    settles: datetime | None = None
    # When the next worker that can't start gives its place back, and those that do so now, with how they end.
    gives_up: datetime | None = None
    given_up: tuple[tuple[Pod, Ending], ...] = ()

    @property
    def ready(self) -> int:
        """Workers that answer."""
        return sum(is_running(pod) for pod in self.current)

    @property
    def missing(self) -> int:
        """Workers that have still to be placed."""
        return max(0, self.wanted - len(self.current))


def pool_state(observed: PoolObserved, demand: PoolDemand, settings: Settings, now: datetime) -> PoolState:
    """Judge a pool by what is observed of it. Without a pool, all its workers are stale."""
    resolved = resolve_pool(observed.model, settings)
    refusal, pool = (resolved, None) if isinstance(resolved, Refusal) else (None, resolved)
    live = observed.live
    ours = tuple(p for p in live if pool is not None and p.worker is not None and pool.revisions.make(p.worker))
    given_up = tuple(
        (p, end) for p in ours if (end := not_started(own_attempt(p), now, settings.start_timeout_seconds)) is not None
    )
    current = tuple(p for p in ours if all(p is not one for one, _ in given_up))
    starting = [shift(p.created, settings.start_timeout_seconds) for p in current if p.started is None and p.created is not None]
    ended = tuple(sorted((p for p in observed.pods if p.over and not p.deleting), key=lambda p: p.number))
    busy = demand.count + sum(observed.tasks.values())
    wanted = min(max(pool.spec.min, busy), most_workers(pool.spec)) if pool is not None else 0
    stale = tuple(p for p in live if p not in ours)
    failed = _failed(ended, pool) if pool is not None else ()
    settled = settles(current, after=max((p.number for p in failed), default=0))
    failed = failed if settled is None or settled > now else ()
    state = PoolState(
        pool,
        refusal,
        wanted,
        current,
        stale,
        ended,
        failed,
        None,
        None,
        settled if failed else None,
        gives_up=min(starting, default=None),
        given_up=given_up,
    )
    if pool is None or not (faults := [*_failure(failed, current, settings, now), *_create_failure(observed, settings)]):
        return state
    retry, fault = max(faults)
    # What is more than the minimum is tried by the next job, which would stay away from a pool that says it is at fault.
    over = retry <= now and (state.ready >= pool.spec.min or state.settles is not None)
    return replace(state, fault=None if over else fault, retry=retry)


def _failed(ended: Sequence[Pod], pool: Pool) -> tuple[Pod, ...]:
    ours = ((p, _ending(p)) for p in ended if p.worker is not None and pool.revisions.make(p.worker))
    return tuple(p for p, ending in ours if ending is not None and holds_back(p, ending))


def _ending(pod: Pod) -> Ending | None:
    """How a worker ended, whatever it was made of."""
    return ending_of(own_attempt(pod), pod.worker.revision) if pod.worker is not None else None


def _failure(failed: Sequence[Pod], current: Sequence[Pod], settings: Settings, now: datetime) -> Iterator[tuple[datetime, Fault]]:
    """When the next is tried after those that failed, and what the newest failed of."""
    ending = _ending(failed[-1]) if failed else None
    if ending is None:
        return
    first, newest = failed[0], failed[-1]
    # The first and the newest are kept: their numbers tell how many there were, but for those in between that live.
    failures = 1 + newest.number - first.number - sum(first.number < p.number < newest.number for p in current)
    wait = backoff_seconds(failures, settings, permanent=ending.permanent)
    yield shift(ended_at(newest, now), wait), Fault(ending.reason, ending.message)


def _create_failure(observed: PoolObserved, settings: Settings) -> Iterator[tuple[datetime, Fault]]:
    """When the API server is asked again after it has refused, and what it said."""
    if (create_failure := observed.create_failure) is not None:
        invalid = create_failure.reason is Reason.POD_INVALID
        wait = PERMANENT_RETRY_SECONDS if invalid else settings.backoff_limit_seconds
        yield shift(create_failure.time, wait), Fault(create_failure.reason, told(create_failure))

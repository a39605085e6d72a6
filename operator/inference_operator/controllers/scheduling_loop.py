"""The fleet-wide loop: collects needs, schedules when something changed, and wakes the jobs whose answer did."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from inference_operator.metering.usage import usage
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.collector import paused
from inference_operator.scheduling.schedule import Schedule
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest, PoolDemand, RunningWork
from inference_operator.settings import Settings
from inference_operator.state.objects import Key
from inference_operator.state.pool_key import model_of, pool_key
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Look, Pools

log = logging.getLogger(__name__)


class Wake(Protocol):
    """Has a job looked at."""

    def __call__(self, key: Key, *, urgent: bool = False) -> None:
        """Soon, or before all others."""
        ...


class Watcher(Protocol):
    """Is told of each pass, and has no say in it."""

    def watch(self, fleet: Fleet, decisions: Mapping[Key, Decision], now: datetime) -> None:
        """What a pass looked at and what it answered."""
        ...


class FleetLoop:
    """Needs in, answers out; at most one pass in `scheduling_interval_seconds`."""

    def __init__(
        self, store: Store, pools: Pools, settings: Settings, clock: Clock, wake: Wake, watcher: Watcher | None = None
    ) -> None:
        self._pools = pools
        self._store = store
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self._watcher = watcher
        self._requests: dict[Key, PlacementRequest] = {}
        self._running: dict[Key, RunningWork] = {}
        self._demands: dict[Key, PoolDemand] = {}
        self._decisions: dict[Key, Decision] = {}
        self._schedule: Schedule | None = None
        self._changed = asyncio.Event()

    def want(self, key: Key, placement_request: PlacementRequest | None) -> None:
        """Say what a job wants now."""
        if self._requests.get(key) == placement_request:
            return
        # The old answer spoke to another need: a place that was given once must not be taken twice.
        self._decisions.pop(key, None)
        if placement_request is None:
            self._requests.pop(key, None)
        else:
            self._requests[key] = placement_request
        self._changed.set()

    def hold(self, key: Key, running_work: RunningWork | None) -> None:
        """Say which place a job's work has. That alone is no reason to decide anew: what waits is told of by needs."""
        if running_work is None:
            self._running.pop(key, None)
        else:
            self._running[key] = running_work

    def touch(self) -> None:
        """Capacity has changed."""
        if self._requests:
            self._changed.set()

    def waits(self, key: Key) -> bool:
        """Whether a job wants a place."""
        return key in self._requests

    def waiting(self, namespace: str) -> tuple[Key, ...]:
        """Who wants places in a namespace: jobs and pools."""
        return tuple(key for key in self._requests if key.namespace == namespace)

    def decision(self, key: Key) -> Decision | None:
        """The newest answer to a job's need."""
        return self._schedule.explained(key) if self._schedule is not None and key in self._decisions else None

    async def run(self) -> None:
        """Schedule for ever."""
        while True:
            pause = self._pause()
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
            except TimeoutError:
                pass
            # A burst of events is decided together, and once.
            await asyncio.sleep(self._settings.scheduling_interval_seconds)
            self._changed.clear()
            try:
                self.decide()
            except Exception:
                # One need that the pass can't bear must not end it for all others; the metric and the log tell.
                log.exception("a scheduling pass failed")
                metrics.scheduling_errors_total.inc()

    def decide(self) -> None:
        """One pass."""
        looks = self._ask_pools()
        blocked = [
            key for key, decision in self._decisions.items() if model_of(key) and decision.pending and not decision.assignments
        ]
        fleet = Fleet(
            tuple(self._store.nodes.values()),
            tuple(self._store.pods.values()),
            tuple(self._requests.values()),
            tuple(self._running.values()),
            self._pools.warm_workers(looks, blocked),
            usage(self._store.unmanaged_usage, self._store.busy, self._settings.metering.resource_name),
        )
        now = self._clock.now()
        with metrics.scheduling_seconds.time(), paused():
            self._schedule = decisions = schedule(fleet, self._settings.cost, now)
        if self._watcher is not None:
            self._watcher.watch(fleet, decisions, now)
        metrics.placement_requests.set(len(fleet.requests))
        before, self._decisions = self._decisions, dict(decisions)
        for key, decision in decisions.items():
            old = before.get(key)
            if old is None or _news(decision) != _news(old):
                metrics.preemptions_total.inc(decision.preemption is not None)
                # A place that was given must be taken before anybody is told to wait: devices idle until then.
                self._wake(key, urgent=bool(decision.assignments or decision.preemption))

    def demand(self, pool: Key) -> PoolDemand:
        """The jobs that wait for a pool's workers."""
        return self._demands.get(pool, PoolDemand())

    def _ask_pools(self) -> list[Look]:
        """What the pools want follows from the jobs that wait for them."""
        before, self._demands = self._demands, _demands(self._requests.values())
        looks = []
        for model in self._pools.models():
            key = pool_key(model)
            demand = self.demand(key)
            look = self._pools.look(model, demand)
            self.want(key, look.placement_request if look is not None else None)
            looks += [look] if look is not None else []
            if demand != before.get(key, PoolDemand()):
                self._wake(key)
        return looks

    def _pause(self) -> float | None:
        """Seconds until time alone may change an answer: a deadline, or the last moment to start for one."""
        now = self._clock.now()
        turns = [turn for placement_request in self._requests.values() for turn in placement_request.turns if turn > now]
        return (min(turns) - now).total_seconds() + 0.01 if turns else None


def _demands(requests: Iterable[PlacementRequest]) -> dict[Key, PoolDemand]:
    found: dict[Key, PoolDemand] = {}
    for placement_request in requests:
        if placement_request.pool is not None:
            known = found.get(placement_request.pool, PoolDemand(0, placement_request.priority))
            found[placement_request.pool] = PoolDemand(known.count + 1, max(known.priority, placement_request.priority))
    return found


def _news(decision: Decision) -> object:
    """What of an answer is worth waking a job for. Counts in an pending reason's words change with every pod and are not."""
    pending = decision.pending
    return (
        decision.uid,
        decision.revision,
        decision.assignments,
        decision.preemption,
        None if pending is None else (pending.reason, pending.final, pending.start_by is None),
    )

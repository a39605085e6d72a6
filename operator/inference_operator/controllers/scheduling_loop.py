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
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Answer, Demand, Fleet, Need, Tenure
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

    def watch(self, fleet: Fleet, answers: Mapping[Key, Answer], now: datetime) -> None:
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
        self._needs: dict[Key, Need] = {}
        self._tenures: dict[Key, Tenure] = {}
        self._demands: dict[Key, Demand] = {}
        self._answers: dict[Key, Answer] = {}
        self._changed = asyncio.Event()

    def want(self, key: Key, need: Need | None) -> None:
        """Say what a job wants now."""
        if self._needs.get(key) == need:
            return
        # The old answer spoke to another need: a place that was given once must not be taken twice.
        self._answers.pop(key, None)
        if need is None:
            self._needs.pop(key, None)
        else:
            self._needs[key] = need
        self._changed.set()

    def hold(self, key: Key, tenure: Tenure | None) -> None:
        """Say which place a job's work has. That alone is no reason to decide anew: what waits is told of by needs."""
        if tenure is None:
            self._tenures.pop(key, None)
        else:
            self._tenures[key] = tenure

    def touch(self) -> None:
        """Capacity has changed."""
        if self._needs:
            self._changed.set()

    def waits(self, key: Key) -> bool:
        """Whether a job wants a place."""
        return key in self._needs

    def waiting(self, namespace: str) -> tuple[Key, ...]:
        """Who wants places in a namespace: jobs and pools."""
        return tuple(key for key in self._needs if key.namespace == namespace)

    def answer(self, key: Key) -> Answer | None:
        """The newest answer to a job's need."""
        return self._answers.get(key)

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
        blocked = [key for key, answer in self._answers.items() if model_of(key) and answer.obstacle and not answer.assignments]
        fleet = Fleet(
            tuple(self._store.nodes.values()),
            tuple(self._store.pods.values()),
            tuple(self._needs.values()),
            tuple(self._tenures.values()),
            self._pools.hosts(looks, blocked),
            usage(self._store.strangers, self._store.busy, self._settings.metering.resource_name),
        )
        now = self._clock.now()
        with metrics.scheduling_seconds.time(), paused():
            answers = schedule(fleet, self._settings.cost, now)
        if self._watcher is not None:
            self._watcher.watch(fleet, answers, now)
        metrics.needs.set(len(fleet.needs))
        before, self._answers = self._answers, answers
        for key, answer in answers.items():
            old = before.get(key)
            if old is None or _news(answer) != _news(old):
                metrics.evictions_total.inc(answer.eviction is not None)
                # A place that was given must be taken before anybody is told to wait: devices idle until then.
                self._wake(key, urgent=bool(answer.assignments or answer.eviction))

    def demand(self, pool: Key) -> Demand:
        """The jobs that wait for a pool's workers."""
        return self._demands.get(pool, Demand())

    def _ask_pools(self) -> list[Look]:
        """What the pools want follows from the jobs that wait for them."""
        before, self._demands = self._demands, _demands(self._needs.values())
        looks = []
        for model in self._pools.models():
            key = pool_key(model)
            demand = self.demand(key)
            look = self._pools.look(model, demand)
            self.want(key, look.need if look is not None else None)
            looks += [look] if look is not None else []
            if demand != before.get(key, Demand()):
                self._wake(key)
        return looks

    def _pause(self) -> float | None:
        """Seconds until time alone may change an answer: a deadline, or the last moment to start for one."""
        now = self._clock.now()
        turns = [turn for need in self._needs.values() for turn in need.turns if turn > now]
        return (min(turns) - now).total_seconds() + 0.01 if turns else None


def _demands(needs: Iterable[Need]) -> dict[Key, Demand]:
    found: dict[Key, Demand] = {}
    for need in needs:
        if need.pool is not None:
            known = found.get(need.pool, Demand(0, need.priority))
            found[need.pool] = Demand(known.count + 1, max(known.priority, need.priority))
    return found


def _news(answer: Answer) -> object:
    """What of an answer is worth waking a job for. Counts in an obstacle's words change with every pod and are not."""
    obstacle = answer.obstacle
    return (
        answer.uid,
        answer.revision,
        answer.assignments,
        answer.eviction,
        None if obstacle is None else (obstacle.reason, obstacle.final, obstacle.start_by is None),
    )

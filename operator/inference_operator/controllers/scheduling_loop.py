"""The scheduling loop: collects placement requests, schedules when something changed, and wakes those whose decision did."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from inference_operator.api.conditions import Reason
from inference_operator.controllers.node_seconds import NodeSeconds
from inference_operator.controllers.preemptions import Preemptions
from inference_operator.metering.usage import usage
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.collector import paused
from inference_operator.scheduling.node_groups import node_groups
from inference_operator.scheduling.schedule import Schedule
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.slack_types import ServiceSlack
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest, PoolDemand, RunningWork
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Key, Node
from inference_operator.state.request import Kind, Request, pool_request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Look, Pools
from inference_operator.warmpools.slack import Lender, lent

# How often services are looked at for slack, and nodes that are to come, while work waits for one or the other.
_LOOK_SECONDS = 5.0

log = logging.getLogger(__name__)


class Wake(Protocol):
    """Has a job or a pool reconciled."""

    def __call__(self, request: Request, /, *, urgent: bool = False) -> None:
        """Soon, or before all others."""
        ...


class Watcher(Protocol):
    """Is told of each pass, and has no say in it."""

    def watch(self, fleet: Fleet, decisions: Mapping[Request, Decision], now: datetime) -> None:
        """What a pass looked at and what it answered."""
        ...


class SchedulingLoop:
    """Requests in, decisions out; at most one pass in `scheduling_interval_seconds`."""

    def __init__(
        self, store: Store, pools: Pools, settings: Settings, clock: Clock, wake: Wake, watcher: Watcher | None = None
    ) -> None:
        self._pools = pools
        self._store = store
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self._watcher = watcher
        self._requests: dict[Request, PlacementRequest] = {}
        self._running: dict[Request, RunningWork] = {}
        # Services that lend their slack.
        self._lenders: dict[Request, Lender] = {}
        self._preemptions = Preemptions()
        self._node_seconds = NodeSeconds()
        # By the pool's model.
        self._demands: dict[Key, PoolDemand] = {}
        self._decisions: dict[Request, Decision] = {}
        self._schedule: Schedule | None = None
        self._changed = asyncio.Event()

    def want(self, owner: Request, wanted: PlacementRequest | None) -> None:
        """Say what a job or a pool wants placed now."""
        if self._requests.get(owner) == wanted:
            return
        # The old decision spoke of another request: a place that was given once must not be taken twice.
        self._decisions.pop(owner, None)
        if wanted is None:
            self._requests.pop(owner, None)
        else:
            self._requests[owner] = wanted
        self._changed.set()

    def hold(self, owner: Request, work: RunningWork | None) -> None:
        """Say which place a job's work has. That alone is no reason to decide anew: requests tell of what waits."""
        if work is None:
            self._running.pop(owner, None)
        else:
            self._running[owner] = work

    def lend(self, owner: Request, lender: Lender | None) -> None:
        """Say what a service lends of its workers, its load aside."""
        if self._lenders.get(owner) == lender:
            return
        if lender is None:
            del self._lenders[owner]
        else:
            self._lenders[owner] = lender
        self.touch()

    def read(self, job: Job) -> None:
        """Read what a job's status says of preemptions, and of nodes that came for it."""
        self._preemptions.read(job)
        self._node_seconds.read(job)

    def touch(self) -> None:
        """Capacity has changed."""
        if self._requests:
            self._changed.set()

    def waits(self, owner: Request) -> bool:
        """Return whether a job or a pool wants a place."""
        return owner in self._requests

    def waiting(self, namespace: str) -> tuple[Request, ...]:
        """Return who wants places in a namespace: jobs and pools."""
        return tuple(owner for owner in self._requests if owner.namespace == namespace)

    def decision(self, owner: Request) -> Decision | None:
        """Return the newest decision about a request, with its explanations."""
        return self._schedule.explained(owner) if self._schedule is not None and owner in self._decisions else None

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
                # One request that the pass can't bear must not end it for all others; the metric and the log tell.
                log.exception("a scheduling pass failed")
                metrics.scheduling_errors_total.inc()

    def decide(self) -> None:
        """Run one pass."""
        now = self._clock.now()
        looks = self._ask_pools()
        blocked = [
            owner.key
            for owner, decision in self._decisions.items()
            if owner.kind is Kind.POOL and decision.pending and not decision.assignments
        ]
        silent = self._silent()
        fleet = Fleet(
            self._nodes(),
            self._store.counted_pods,
            tuple(self._requests.values()),
            tuple(self._running.values()),
            tuple(warm for warm in self._pools.warm_workers(looks, blocked) if warm.pod not in silent),
            self._lent(silent),
            usage(self._store.unmanaged_usage, self._store.busy, self._settings.metering.resource_name),
            self._preemptions.by_namespace(now),
            node_groups(self._settings.accelerators, self._store.placeholders, self._node_seconds.by_class(), now),
        )
        with metrics.scheduling_seconds.time(), paused():
            self._schedule = decided = schedule(fleet, self._settings.cost, now, self._settings.namespace_limits)
        if self._watcher is not None:
            self._watcher.watch(fleet, decided, now)
        metrics.placement_requests.set(len(fleet.requests))
        before, self._decisions = self._decisions, dict(decided)
        for owner, decision in decided.items():
            old = before.get(owner)
            if old is None or _news(decision) != _news(old):
                metrics.preemptions_total.inc(decision.preemption is not None)
                # A place that was given must be taken before anybody is told to wait: devices idle until then.
                self._wake(owner, urgent=bool(decision.assignments or decision.preemption))

    def _silent(self) -> frozenset[Key]:
        """Workers that nothing new is given to, for as long as nobody hears them."""
        return frozenset(pod.key for pod in self._store.silent.values())

    def _nodes(self) -> tuple[Node, ...]:
        silent = self._store.silent_nodes
        return tuple(replace(node, silent=True) if node.name in silent else node for node in self._store.nodes.values())

    def _lent(self, silent: frozenset[Key]) -> tuple[ServiceSlack, ...]:
        """What services lend now. A worker whose last answer tells of a task has it until that has ended, whoever waits for it."""
        found = []
        for lender in self._lenders.values():
            pods = [(worker.pod, self._store.pods.get(worker.pod)) for worker in lender.slack.workers]
            taken = {key for key, pod in pods if pod is None or self._store.task_index.has_task(pod)} | silent
            found.append(lent(lender, self._store.scaling_metrics.get(lender.uid), taken))
        return tuple(found)

    def demand(self, model: Key) -> PoolDemand:
        """Return the jobs that wait for the workers of a model's pool."""
        return self._demands.get(model, PoolDemand())

    def _ask_pools(self) -> list[Look]:
        """What the pools want follows from the jobs that wait for them."""
        before, self._demands = self._demands, _demands(self._requests.values())
        looks = []
        for model in self._pools.models():
            demand = self.demand(model)
            look = self._pools.look(model, demand)
            self.want(pool_request(model), look.request if look is not None else None)
            looks += [look] if look is not None else []
            if demand != before.get(model, PoolDemand()):
                self._wake(pool_request(model))
        return looks

    def _pause(self) -> float | None:
        """Seconds until time alone may change a decision: a deadline, or the last moment to start for one."""
        now = self._clock.now()
        turns = [turn for placement_request in self._requests.values() for turn in placement_request.turns if turn > now]
        pause = (min(turns) - now).total_seconds() + 0.01 if turns else None
        # No event tells that the load of a service has fallen, or that a node is overdue.
        lent = bool(self._lenders) and any(wanted.slack is not None for wanted in self._requests.values())
        if not lent and not any(wanted.grows for wanted in self._requests.values()):
            return pause
        return _LOOK_SECONDS if pause is None else min(pause, _LOOK_SECONDS)


def _demands(requests: Iterable[PlacementRequest]) -> dict[Key, PoolDemand]:
    found: dict[Key, PoolDemand] = {}
    for placement_request in requests:
        if placement_request.pool is not None:
            known = found.get(placement_request.pool, PoolDemand(0, placement_request.priority))
            found[placement_request.pool] = PoolDemand(known.count + 1, max(known.priority, placement_request.priority))
    return found


def _news(decision: Decision) -> object:
    """What of a decision is worth waking a job for. Counts in a pending reason's words change with every pod and are not.

    Nor is it whether other namespaces wait too: ten thousand jobs would be woken by each small job of another namespace.
    """
    pending = decision.pending
    reason = pending.reason if pending is not None and pending.reason is not Reason.FAIR_SHARE else Reason.NO_FREE_CAPACITY
    return (
        decision.uid,
        decision.revision,
        decision.assignments,
        decision.preemption,
        decision.new_nodes,
        None if pending is None else (reason, pending.final, pending.start_by is None),
    )

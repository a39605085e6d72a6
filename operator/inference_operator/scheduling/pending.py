"""Why work waits, and until when.

All that wait for the same requirements share one look at the nodes; when it should start is each one's own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from math import inf

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift
from inference_operator.scheduling import filters
from inference_operator.scheduling.ahead import done_behind_all
from inference_operator.scheduling.caps import Caps, in_the_way
from inference_operator.scheduling.new_nodes import NewNodes
from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.shares import Shares
from inference_operator.scheduling.slack import Slack
from inference_operator.scheduling.timeline import SchedulingUnit
from inference_operator.scheduling.types import PendingReason, PlacementRequest, WarmWorker
from inference_operator.state.objects import Key

# A class that is asked for, the cap that holds it back if any does, whether it would be in time, and whether a new node would do.
_Asked = tuple[str, PodRequirements, str, bool, bool]
_SERVICES_TOLD = 2
_REASONS_TOLD = 8
_HAS_ROOM = "node(s) had room reserved for work that goes first"


class PendingReasons:
    """The pending reasons of one pass, over the node capacity as it leaves it."""

    def __init__(
        self,
        capacity: NodeCapacity,
        caps: Caps,
        warm_workers: Sequence[WarmWorker],
        slack: Slack,
        new_nodes: NewNodes,
        now: datetime,
    ) -> None:
        self._capacity, self._caps, self._warm_workers, self._slack, self._now = capacity, caps, warm_workers, slack, now
        self._new_nodes = new_nodes
        self._pending: dict[tuple[_Asked, ...] | Key, PendingReason] = {}
        self._rejections: dict[PodRequirements, str] = {}

    def pending(
        self, request: PlacementRequest, unit: SchedulingUnit, left: float, position: int, shares: Shares | None, *, passed: bool
    ) -> PendingReason:
        """Why `unit`, a request's first that does not start, waits. `left` is the seconds to its deadline.

        `shares` are given where work of other namespaces waits in the same band; `passed` says that such work has just been given a
        place of a class that the request asks for.
        """
        # Work that is to be a co-located model waits for its warm worker, as a pool's own does.
        pool = (
            unit.timeline.warm_worker.pool if unit.timeline is not None and unit.timeline.warm_worker is not None else request.pool
        )
        if unit.timeline is not None and unit.timeline.new_node is not None:
            shared = self._for_new_node(request, left, unit.timeline.new_node)
        else:
            shared = self._for_node(request, left) if pool is None else self._for_warm_worker(pool)
        if words := self._slack.passed_over(request)[:_SERVICES_TOLD]:
            shared = shared._replace(message="; ".join((shared.message, *words)))
        if shared.reason in (Reason.NO_NODE_FITS, Reason.NAMESPACE_CAPPED):
            return shared
        if pool is None:
            self._await(request)
        start_by = possible = None
        if unit.timeline is None and left != inf:
            start_by = shift(self._now, left - min(o.estimate.total_seconds for o in request.options))
            behind = done_behind_all(unit)
            possible = shift(self._now, behind) if behind < inf else None
        takes = unit.candidate.seconds if unit.candidate is not None else 0.0
        reason, message = shared.reason, shared.message
        if shares is not None and pool is None:
            message = f"{message}; {shares.words(unit.namespace)}"
            held_back = passed or shares.is_served(unit.namespace)
            if held_back and reason is not Reason.PROVISIONING and not self._claimed(request):
                reason = Reason.FAIR_SHARE
        if unit.over_budget and unit.timeline is None:
            message = f"{message}; it preempts nothing, as {unit.budget}"
        return PendingReason(reason, message, False, possible, position, start_by, self._now, unit.start, takes)

    def _claimed(self, request: PlacementRequest) -> bool:
        return any(self._capacity.claimed(option.requirements) for option in request.options)

    def _for_new_node(self, request: PlacementRequest, left: float, accelerator: str) -> PendingReason:
        words = self._reasons(self._asked(request, left))
        return PendingReason(Reason.PROVISIONING, f"waits for {self._new_nodes.described(accelerator)}; {_by_reason(words)}")

    def _for_node(self, request: PlacementRequest, left: float) -> PendingReason:
        asked = self._asked(request, left)
        found = self._pending.get(asked)
        if found is None:
            found = self._pending[asked] = self._no_room(asked)
        return found

    def _asked(self, request: PlacementRequest, left: float) -> tuple[_Asked, ...]:
        return tuple(
            [
                (
                    o.accelerator,
                    o.requirements,
                    self._capped(request.key.namespace, o.accelerator),
                    not o.estimate.measured or o.estimate.total_seconds <= left,
                    self._new_nodes.group(request, o) is not None,
                )
                for o in request.options
            ]
        )

    def _for_warm_worker(self, pool: Key) -> PendingReason:
        found = self._pending.get(pool)
        if found is None:
            found = self._pending[pool] = no_warm_worker(pool, self._warm_workers)
        return found

    def _no_room(self, asked: Sequence[_Asked]) -> PendingReason:
        """Why none of the asked has room: for good, or just now."""
        fits = any(grows or self._capacity.fit(requirements) for _, requirements, _, _, grows in asked)
        claimed = any(self._capacity.claimed(requirements) for _, requirements, _, _, _ in asked)
        capped = all(cap for _, _, cap, _, _ in asked)
        text = _by_reason(self._reasons(asked))
        if not fits and not claimed:
            cure = self._device_cure(requirements for _, requirements, _, _, _ in asked)
            cure = f"{cure}lower the request, change nodeSelector or tolerations, or add a node"
            return PendingReason(Reason.NO_NODE_FITS, f"no node fits, even when empty; {text}; {cure}")
        if capped:
            cure = "wait for one to end, end one, or ask the administrator to raise the cap in namespaceLimits"
            return PendingReason(Reason.NAMESPACE_CAPPED, f"the namespace has as many workers as it may have; {text}; {cure}")
        cure = "wait for room, use a claim with access mode ReadWriteMany" if claimed else "wait for room"
        return PendingReason(Reason.NO_FREE_CAPACITY, f"no node has room now; {text}; {cure}, or add a node")

    def _reasons(self, asked: Sequence[_Asked]) -> dict[str, list[str]]:
        """Why each class that is asked for has no room now: classes by their reason."""
        words: dict[str, list[str]] = {}
        for accelerator, requirements, cap, timely, _ in asked:
            why_not = cap or (self._rejected(requirements) if timely else "would finish after the deadline")
            words.setdefault(why_not, []).append(accelerator)
        return words

    def _device_cure(self, asked: Iterable[PodRequirements]) -> str:
        """What to do about devices that no node offers, whatever else keeps the nodes from fitting; empty where all are there."""
        wanted = {name for requirements in asked for name, amount in requirements.amounts if amount and "/" in name}
        absent = sorted(name for name in wanted if not self._capacity.exists(name))
        if not absent:
            return ""
        return f"no node has {', '.join(absent)}: check the class's resourceName and the device plug-in, "

    def _await(self, request: PlacementRequest) -> None:
        """Count a request among those that wait for room under their namespace's caps."""
        open_ = (self._caps.of(request.key.namespace, option.accelerator) for option in request.options)
        for cap in {cap for caps in open_ if caps and in_the_way(caps) is None for cap in caps}:
            cap.awaited += 1

    def _capped(self, namespace: str, accelerator: str) -> str:
        """The cap that lets no worker of a class start; empty where none is in the way."""
        caps = self._caps.of(namespace, accelerator)
        cap = in_the_way(caps) if caps else None
        return str(cap) if cap is not None else ""

    def _rejected(self, requirements: PodRequirements) -> str:
        """How many nodes can't take such a pod, by reason."""
        requirements = self._capacity.alike(requirements)
        found = self._rejections.get(requirements)
        if found is None:
            # A thousand nodes are as full as one another in a few ways: each is put into words once.
            lacks = Counter(
                filters.lack(node_info.node, node_info.free, requirements) for node_info in self._capacity.fit(requirements)
            )
            counts: Counter[str] = Counter()
            for lack, number in lacks.items():
                counts[_HAS_ROOM if lack is None else filters.lacking(*lack, requirements)] += number
            counts.update(reason for _, reason in self._capacity.unfit(requirements))
            found = self._rejections[requirements] = filters.summary(counts)
        return found


def _by_reason(words: Mapping[str, Sequence[str]]) -> str:
    """Each reason once, behind the classes that it is about; of many, the first few."""
    told = [f"{', '.join(names)}: {why}" for why, names in islice(words.items(), _REASONS_TOLD)]
    untold = [name for names in islice(words.values(), _REASONS_TOLD, None) for name in names]
    return "; ".join((*told, *((f"{len(untold)} more classes for reasons of their own",) if untold else ())))


def no_warm_worker(pool: Key, warm_workers: Iterable[WarmWorker]) -> PendingReason:
    """Why no warm worker of a pool takes it now."""
    mine = [warm_worker for warm_worker in warm_workers if warm_worker.pool == pool]
    ready = sum(warm_worker.ready for warm_worker in mine)
    starting = sum(warm_worker.pod is not None and not warm_worker.ready for warm_worker in mine)
    text = f"no warm worker of {pool.name} is free: {ready} busy, {starting} starting"
    cure = "wait for one, or raise warmPool.max" if mine else "none can be added: read status.warmPool of the model"
    return PendingReason(Reason.NO_FREE_CAPACITY, f"{text}; {cure}")

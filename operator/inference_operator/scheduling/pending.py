"""Why work waits, and until when.

All that wait for the same requirements share one look at the nodes; when it should start is each one's own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import inf

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift
from inference_operator.scheduling import filters
from inference_operator.scheduling.ahead import done_behind_all
from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.slack import Slack
from inference_operator.scheduling.timeline import SchedulingUnit
from inference_operator.scheduling.types import PendingReason, PlacementRequest, WarmWorker
from inference_operator.state.objects import Key

# A class that is asked for, and whether it would be in time.
_Asked = tuple[str, PodRequirements, bool]
_SERVICES_TOLD = 2
_HAS_ROOM = "node(s) had room reserved for work that goes first"


class PendingReasons:
    """The pending reasons of one pass, over the node capacity as it leaves it."""

    def __init__(self, capacity: NodeCapacity, warm_workers: Sequence[WarmWorker], slack: Slack, now: datetime) -> None:
        self._capacity, self._warm_workers, self._slack, self._now = capacity, warm_workers, slack, now
        self._pending: dict[tuple[_Asked, ...] | Key, PendingReason] = {}
        self._rejections: dict[PodRequirements, str] = {}

    def pending(self, request: PlacementRequest, unit: SchedulingUnit, left: float, position: int) -> PendingReason:
        """Why `unit`, a request's first that does not start, waits. `left` is the seconds to its deadline."""
        # Work that is to be a co-located model waits for its warm worker, as a pool's own does.
        pool = (
            unit.timeline.warm_worker.pool if unit.timeline is not None and unit.timeline.warm_worker is not None else request.pool
        )
        shared = self._for_node(request, left) if pool is None else self._for_warm_worker(pool)
        if words := self._slack.passed_over(request)[:_SERVICES_TOLD]:
            shared = shared._replace(message="; ".join((shared.message, *words)))
        if shared.reason is Reason.NO_NODE_FITS:
            return shared
        start_by = possible = None
        if unit.timeline is None and left != inf:
            start_by = shift(self._now, left - min(o.estimate.total_seconds for o in request.options))
            behind = done_behind_all(unit)
            possible = shift(self._now, behind) if behind < inf else None
        takes = unit.candidate.seconds if unit.candidate is not None else 0.0
        return PendingReason(shared.reason, shared.message, False, possible, position, start_by, self._now, unit.start, takes)

    def _for_node(self, request: PlacementRequest, left: float) -> PendingReason:
        asked = tuple(
            [(o.accelerator, o.requirements, not o.estimate.measured or o.estimate.total_seconds <= left) for o in request.options]
        )
        found = self._pending.get(asked)
        if found is None:
            found = self._pending[asked] = self._no_room(asked)
        return found

    def _for_warm_worker(self, pool: Key) -> PendingReason:
        found = self._pending.get(pool)
        if found is None:
            found = self._pending[pool] = no_warm_worker(pool, self._warm_workers)
        return found

    def _no_room(self, asked: Iterable[_Asked]) -> PendingReason:
        """Why none of the asked has room: for good, or just now."""
        words = []
        fits = claimed = False
        for accelerator, requirements, timely in asked:
            fits = fits or bool(self._capacity.fit(requirements))
            claimed = claimed or self._capacity.claimed(requirements)
            words.append(f"{accelerator}: {self._rejected(requirements) if timely else 'would finish after the deadline'}")
        text = "; ".join(words)
        if not fits and not claimed:
            text = f"no node fits, even when empty; {text}; lower the request, change nodeSelector or tolerations, or add a node"
            return PendingReason(Reason.NO_NODE_FITS, text)
        cure = "wait for room, use a claim with access mode ReadWriteMany" if claimed else "wait for room"
        return PendingReason(Reason.NO_FREE_CAPACITY, f"no node has room now; {text}; {cure}, or add a node")

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


def no_warm_worker(pool: Key, warm_workers: Iterable[WarmWorker]) -> PendingReason:
    """Why no warm worker of a pool takes it now."""
    mine = [warm_worker for warm_worker in warm_workers if warm_worker.pool == pool]
    ready = sum(warm_worker.ready for warm_worker in mine)
    starting = sum(warm_worker.pod is not None and not warm_worker.ready for warm_worker in mine)
    text = f"no warm worker of {pool.name} is free: {ready} busy, {starting} starting"
    cure = "wait for one, or raise warmPool.max" if mine else "none can be added: read status.warmPool of the model"
    return PendingReason(Reason.NO_FREE_CAPACITY, f"{text}; {cure}")

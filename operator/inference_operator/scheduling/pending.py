"""Why work waits, and until when.

All that wait for the same shapes share one look at the nodes; when it should start is each one's own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import inf

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift
from inference_operator.scheduling import filters
from inference_operator.scheduling.node_capacity import Board
from inference_operator.scheduling.timeline import Work, done_behind_all
from inference_operator.scheduling.types import Host, Need, Obstacle, Shape
from inference_operator.state.objects import Key

# A class that is asked for, and whether it would be in time.
_Asked = tuple[str, Shape, bool]
_HAS_ROOM = "has room, for work that goes before"


class Waiting:
    """The obstacles of one pass, over the board as it leaves it."""

    def __init__(self, board: Board, hosts: Sequence[Host], now: datetime) -> None:
        self._board, self._hosts, self._now = board, hosts, now
        self._obstacles: dict[tuple[_Asked, ...] | Key, Obstacle] = {}
        self._rejections: dict[Shape, str] = {}

    def obstacle(self, need: Need, work: Work, left: float, position: int) -> Obstacle:
        """Why `work`, a need's first that does not start, waits. `left` is the seconds to its deadline."""
        # Work that is to be a guest waits for its host, as a pool's own does.
        pool = work.lane.host.pool if work.lane is not None and work.lane.host is not None else need.pool
        shared = self._for_node(need, left) if pool is None else self._for_host(pool)
        if shared.reason is Reason.NO_NODE_FITS:
            return shared
        start_by = possible = None
        if work.lane is None and left != inf:
            start_by = shift(self._now, left - min(o.estimate.total_seconds for o in need.options))
            behind = done_behind_all(work)
            possible = shift(self._now, behind) if behind < inf else None
        takes = work.choice.seconds if work.choice is not None else 0.0
        return Obstacle(shared.reason, shared.message, False, possible, position, start_by, self._now, work.start, takes)

    def _for_node(self, need: Need, left: float) -> Obstacle:
        asked = tuple([(o.accelerator, o.shape, not o.estimate.measured or o.estimate.total_seconds <= left) for o in need.options])
        found = self._obstacles.get(asked)
        if found is None:
            found = self._obstacles[asked] = self._no_room(asked)
        return found

    def _for_host(self, pool: Key) -> Obstacle:
        found = self._obstacles.get(pool)
        if found is None:
            found = self._obstacles[pool] = no_host(pool, self._hosts)
        return found

    def _no_room(self, asked: Iterable[_Asked]) -> Obstacle:
        """Why none of the asked has room: for good, or just now."""
        words = []
        fits = False
        for accelerator, shape, timely in asked:
            fits = fits or bool(self._board.fit(shape))
            words.append(f"{accelerator}: {self._rejected(shape) if timely else 'would be done there after the deadline'}")
        text = "; ".join(words)
        if not fits:
            text = f"no node could hold a worker even when empty ({text}); ask for less, or add a node"
            return Obstacle(Reason.NO_NODE_FITS, text)
        return Obstacle(Reason.NO_FREE_CAPACITY, f"waits for room: {text}")

    def _rejected(self, shape: Shape) -> str:
        """How many nodes reject a shape, by reason."""
        found = self._rejections.get(shape)
        if found is None:
            # A thousand nodes are as full as one another in a few ways: each is put into words once.
            lacks = Counter(filters.lack(slot.node, slot.free, shape) for slot in self._board.fit(shape))
            counts: Counter[str] = Counter()
            for lack, number in lacks.items():
                counts[_HAS_ROOM if lack is None else filters.lacking(*lack, shape)] += number
            counts.update(reason for _, reason in self._board.unfit(shape))
            found = self._rejections[shape] = filters.summary(counts) or "the cluster has no nodes"
        return found


def no_host(pool: Key, hosts: Iterable[Host]) -> Obstacle:
    """Why no warm worker of a pool takes it now."""
    mine = [host for host in hosts if host.pool == pool]
    ready = sum(host.ready for host in mine)
    starting = sum(host.pod is not None and not host.ready for host in mine)
    text = f"waits for a warm worker of {pool.name}: {ready} are busy, {starting} are starting"
    return Obstacle(Reason.NO_FREE_CAPACITY, text if mine else f"{text}; none can be added (see the model's status.warmPool)")

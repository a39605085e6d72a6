"""The room of one pass: what is free now, what running work will free, and what is kept for large work."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from inference_operator.scheduling import filters
from inference_operator.scheduling.backfill import Ends, Reservation, reserve
from inference_operator.scheduling.node_capacity import Board, Slot
from inference_operator.scheduling.timeline import Held, Lane, Lanes
from inference_operator.scheduling.types import Need, Shape, Tenure
from inference_operator.state.resources import Amounts

# Room is kept for so many at a time: each makes others wait.
_RESERVATIONS = 4


class Room:
    """The board, who is on it, and reservations by node."""

    def __init__(self, board: Board, held: Sequence[tuple[Tenure, Held]]) -> None:
        self._board = board
        self._held = held
        self._reserved: dict[str, Reservation] = {}
        # Shapes without any room left: in a pass it only becomes less.
        self.exhausted: set[Shape] = set()

    def lanes(self, shape: Shape, limit: int) -> Lanes:
        """A lane for each worker that fits now, up to a limit, and for each tenure that would free a place."""
        lanes: list[Lane] = []
        if self._held:
            fit = {slot.node.name: slot for slot in self._board.fit(shape)}
            for tenure, held in self._held:
                slot = fit.get(tenure.node)
                if slot is not None and filters.frees(tenure, slot.free, shape):
                    lanes.append(Lane(held, held.remaining))
        return Lanes(lanes, self._board.openings(shape, limit))

    def reserve(self, needs: Iterable[tuple[int, Need, float]], lanes: dict[Shape, Lanes]) -> None:
        """Keep room for the first few that need the room of several others, who would never leave it at one time.

        `needs` that are not late, each with its rank and the seconds to its deadline.
        """
        if not self._held:
            return
        full = {shape for shape in lanes if not self._board.openings(shape, 1)}
        if not full:
            return
        ends: dict[str, list[tuple[float, Amounts]]] = {}
        for tenure, held in sorted(self._held, key=lambda one: one[1].remaining):
            ends.setdefault(tenure.node, []).append((held.remaining, tenure.shape.wants))
        without_room = (one for one in needs if one[1].pool is None and full.issuperset([o.shape for o in one[1].options]))
        for rank, need, left in islice(without_room, _RESERVATIONS):
            self._keep(rank, need, left, ends, lanes)

    def _keep(self, rank: int, need: Need, left: float, ends: Mapping[str, Ends], lanes: dict[Shape, Lanes]) -> None:
        """Reserve a node for a need on the class where it would find one soonest, if that is in time."""
        found: list[tuple[float, int, Reservation]] = []
        for number, option in enumerate(need.options):
            latest = left - option.estimate.cautious_seconds if option.estimate.measured else inf
            slots = (slot for slot in self._board.fit(option.shape) if slot.node.name not in self._reserved)
            if (kept := reserve(option.shape, rank, slots, ends, latest)) is not None:
                found.append((kept.at, number, kept))
        if found:
            at, number, kept = min(found, key=lambda one: one[:2])
            self._reserved[kept.slot.node.name] = kept
            shape = need.options[number].shape
            if not lanes[shape].lanes:
                lanes[shape].add(Lane(free=at, opens=at))

    def take(self, shape: Shape, seconds: float, rank: int, beside: Sequence[str]) -> Slot | None:
        """A node for work that takes so long, taken off the board, on which nobody else's reservation is in its way.

        `beside` are the nodes of workers that it should stay away from.
        """
        barred = [name for name, kept in self._reserved.items() if not kept.admits(shape, seconds, rank)] if self._reserved else ()
        slot = self._board.apart(shape, beside, barred) if beside else self._board.roomiest(shape, barred)
        if slot is None:
            if not barred:
                self.exhausted.add(shape)
            return None
        self._board.take(slot, shape)
        if (kept := self._reserved.get(slot.node.name)) is not None:
            kept.admitted(shape, seconds, rank)
        return slot

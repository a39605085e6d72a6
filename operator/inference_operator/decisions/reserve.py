"""Keeping room for large work while small work comes and goes.

Work that needs the room of several others never finds it by itself: each piece that is freed is taken by something smaller. So the
first in rank gets a reservation on the node where enough will be free soonest; what ranks behind it may still start there if it is
done by then, or if both fit. That is backfilling as in EASY (Lifka 1995, "The ANL/IBM SP scheduling system"), with a few
reservations instead of one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from inference_operator.decisions.board import Slot
from inference_operator.decisions.fleet import Shape
from inference_operator.domain.resources import Amounts, shortage, subtract


@dataclass(slots=True)
class Reservation:
    """Room on a node from `at` on, in seconds from now. `spare` is what is left beside it then; it is used up."""

    slot: Slot
    at: float
    rank: int
    spare: dict[str, int]

    def admits(self, shape: Shape, seconds: float, rank: int) -> bool:
        """Whether work may start here now that takes so long."""
        return rank <= self.rank or seconds <= self.at or shortage(shape.amounts, self.spare) is None

    def admitted(self, shape: Shape, seconds: float, rank: int) -> None:
        """It has started."""
        if rank > self.rank and seconds > self.at:
            subtract(self.spare, shape.amounts)


def reserve(
    shape: Shape, rank: int, slots: Iterable[Slot], ends: dict[str, list[tuple[float, Amounts]]], latest: float
) -> Reservation | None:
    """Room for a shape where it is free soonest, `latest` seconds from now at the latest; None where it never will be.

    `ends` are the seconds after which work on a node is done, and what it frees then, by node.
    """
    best: Reservation | None = None
    for slot in slots:
        free = dict(slot.free)
        for at, freed in sorted(ends.get(slot.node.name, ()), key=lambda end: end[0]):
            if at > latest or (best is not None and at >= best.at):
                break
            for name, amount in freed.items():
                free[name] = free.get(name, 0) + amount
            if shortage(shape.amounts, free) is None:
                subtract(free, shape.amounts)
                best = Reservation(slot, at, rank, free)
                break
    return best

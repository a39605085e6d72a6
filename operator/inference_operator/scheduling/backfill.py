"""Keeping room for large work while small work comes and goes.

Work that needs the room of several others never finds it by itself: each piece that is freed is taken by something smaller. So the
first in rank gets a reservation on the node where enough will be free soonest; what ranks behind it may still start there if it is
done by then, or if both fit. That is backfilling as in EASY (Lifka 1995, "The ANL/IBM SP scheduling system"), with a few
reservations instead of one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inference_operator.scheduling.node_capacity import NodeInfo
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.state.resources import Amounts, add, shortage, subtract


@dataclass(slots=True)
class Reservation:
    """Room on a node from `at` on, in seconds from now. `spare` is what is left beside it then; it is used up."""

    node_info: NodeInfo
    at: float
    rank: int
    spare: dict[str, int]

    def admits(self, requirements: PodRequirements, seconds: float, rank: int) -> bool:
        """Whether work may start here now that takes so long."""
        return rank <= self.rank or seconds <= self.at or shortage(requirements.amounts, self.spare) is None

    def admitted(self, requirements: PodRequirements, seconds: float, rank: int) -> None:
        """It has started."""
        if rank > self.rank and seconds > self.at:
            subtract(self.spare, requirements.amounts)


# What work on a node frees, and after how many seconds, in this order.
Ends = Sequence[tuple[float, Amounts]]


def reserve(
    requirements: PodRequirements, rank: int, infos: Iterable[NodeInfo], ends: Mapping[str, Ends], latest: float
) -> Reservation | None:
    """Return room for a pod where it is free soonest, `latest` seconds from now at the latest; None where it never will be."""
    best: tuple[float, NodeInfo] | None = None
    for node_info in infos:
        found = ends.get(node_info.node.name)
        # Most nodes are passed over here: nothing ends there sooner than the best has room.
        if not found or (best is not None and found[0][0] >= best[0]):
            continue
        at = _free_at(requirements, node_info, found)
        if at is not None and at <= latest and (best is None or at < best[0]):
            best = at, node_info
    if best is None:
        return None
    at, node_info = best
    spare = dict(node_info.free)
    for end, freed in ends[node_info.node.name]:
        if end <= at:
            add(spare, freed)
    subtract(spare, requirements.amounts)
    return Reservation(node_info, at, rank, spare)


def _free_at(requirements: PodRequirements, node_info: NodeInfo, ends: Ends) -> float | None:
    """Seconds until a node has room for a pod with these requirements."""
    short = {
        name: amount - node_info.free.get(name, 0) for name, amount in requirements.amounts if amount > node_info.free.get(name, 0)
    }
    for at, freed in ends:
        short = {name: left for name, amount in short.items() if (left := amount - freed.get(name, 0)) > 0}
        if not short:
            return at
    return None

"""What is left of a pass for services whose workers are all on one node (ADR 0043)."""

from math import inf

from inference_operator.scheduling import cost
from inference_operator.scheduling.caps import Caps
from inference_operator.scheduling.explanation import Chosen
from inference_operator.scheduling.room import Room
from inference_operator.scheduling.types import PlacementRequest
from inference_operator.settings import CostWeights


def spread(request: PlacementRequest, room: Room, caps: Caps, weights: CostWeights, rank: int) -> Chosen | None:
    """A node without a worker of the service, taken off the room, if one has any; `rank` is behind all who had their turns."""
    for option in sorted(request.options, key=lambda option: cost.total_cost(option, weights)):
        if room.is_full(option.requirements):
            continue
        counted = caps.of(request.key.key.namespace, option.accelerator)
        node_info = room.take(
            option.requirements, inf, rank, request.beside, caps=counted, avoid=request.beside, failed_on=request.failed_on
        )
        if node_info is not None:
            return Chosen(request, option, node_info, 1.0)
    return None

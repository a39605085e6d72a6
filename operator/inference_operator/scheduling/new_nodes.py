"""New nodes in one pass: which work could run on one, when it would be there, and for whom one is asked for.

A new node is a place that opens later, as one is where work still runs: the plan waits for it only where nothing sooner is in time.
"""

from collections import Counter
from collections.abc import Mapping
from math import inf

from inference_operator.scheduling import filters
from inference_operator.scheduling.caps import Cap
from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.timeline import SchedulingUnit, Timeline, Timelines
from inference_operator.scheduling.types import NodeGroup, Option, PlacementRequest


class NewNodes:
    """What accelerator classes can grow by."""

    def __init__(self, groups: Mapping[str, NodeGroup], capacity: NodeCapacity) -> None:
        self._groups, self._capacity = groups, capacity
        self._timelines: dict[tuple[str, PodRequirements], Timelines] = {}
        self._fits: dict[tuple[str, PodRequirements], bool] = {}
        self._asked: Counter[str] = Counter()
        self._capped: Counter[Cap] = Counter()

    @property
    def timelines(self) -> tuple[Timelines, ...]:
        """The time of all new nodes that anybody could use."""
        return tuple(self._timelines.values())

    def group(self, request: PlacementRequest, option: Option) -> NodeGroup | None:
        """What would have room for a request on one of its classes; None where that can't grow, or a new node is of no use."""
        if option.accelerator not in request.grows or not self._takes(option.accelerator, option.requirements):
            return None
        return self._groups[option.accelerator]

    def fit(self, requirements: PodRequirements) -> bool:
        """Whether a new node of any class could hold such a pod."""
        return any(self._takes(accelerator, requirements) for accelerator in self._groups)

    def _takes(self, accelerator: str, requirements: PodRequirements) -> bool:
        found = self._fits.get((accelerator, requirements))
        if found is None:
            group = self._groups.get(accelerator)
            found = group is not None and filters.unfit(group.node, requirements) is None
            self._fits[accelerator, requirements] = found
        return found

    def of(self, request: PlacementRequest, option: Option, wanted: int) -> Timelines | None:
        """The time of new nodes on which a request could run: those that are on their way, then those that could be asked for."""
        group = self.group(request, option)
        if group is None:
            return None
        key = option.accelerator, option.requirements
        if key not in self._timelines:
            coming = sorted(group.coming)[: group.most]
            later = min(wanted, group.most) - len(coming)
            opens = (*coming, *[group.seconds] * later)
            self._timelines[key] = Timelines([Timeline(free=at, opens=at, new_node=option.accelerator) for at in opens])
        return self._timelines[key]

    def soonest(self, request: PlacementRequest) -> tuple[float, Option] | None:
        """In how many seconds a request could start at the earliest, and on which class, to be done first.

        None where no new node may be asked for, or nothing would do.
        """
        found: list[tuple[float, float, Option]] = []
        for option in request.options if request.grows else ():
            opens = 0.0 if self._capacity.fit(option.requirements) else self._opens(request, option)
            found.append((opens + option.estimate.total_seconds, opens, option))
        best = min(found, key=lambda one: one[0], default=None)
        return best[1:] if best is not None and best[0] < inf else None

    def _opens(self, request: PlacementRequest, option: Option) -> float:
        group = self.group(request, option)
        return inf if group is None else min((*group.coming, group.seconds))

    def is_late(self, request: PlacementRequest, left: float) -> bool:
        """Whether even a new node would be too late, with so many seconds left, for what runs on no other."""
        # Asked of ten thousand requests in a pass, hardly any of which may grow.
        if not request.grows or left == inf or not request.least_seconds or (soonest := self.soonest(request)) is None:
            return False
        return left < soonest[0] + soonest[1].estimate.total_seconds

    def described(self, accelerator: str) -> str:
        """A new node of a class, in words."""
        group = self._groups[accelerator]
        at_most = f", of which {group.most} are asked for at a time" if self._asked[accelerator] >= group.most else ""
        return f"a new node of class {accelerator}, which takes some {round(group.seconds)} s{at_most}"

    def ask(self, unit: SchedulingUnit) -> str | None:
        """The class of the new node that is to be asked for, for a unit whose turn it is; None where it needs none, or may not."""
        timeline, candidate = unit.timeline, unit.candidate
        if timeline is None or candidate is None or timeline.new_node is None or timeline.units[0] is not unit:
            return None
        accelerator = timeline.new_node
        if self._asked[accelerator] >= self._groups[accelerator].most:
            return None
        if any(cap.used + self._capped[cap] >= cap.most for cap in candidate.caps):
            return None
        self._asked[accelerator] += 1
        self._capped.update(candidate.caps)
        return accelerator

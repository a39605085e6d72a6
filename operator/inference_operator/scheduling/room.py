"""The room of one pass: what is free now, what running work will free, and what is kept for large work."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from inference_operator.scheduling import filters
from inference_operator.scheduling.backfill import Ends, Reservation, reserve
from inference_operator.scheduling.caps import Cap, in_the_way
from inference_operator.scheduling.node_capacity import NodeCapacity, NodeInfo
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.timeline import RunningUnit, Timeline, Timelines
from inference_operator.scheduling.types import PlacementRequest, RunningWork
from inference_operator.state.resources import Amounts

# Room is kept for so many at a time: each makes others wait.
_RESERVATIONS = 4


class Room:
    """The node capacity, who is on it, and reservations by node."""

    def __init__(self, capacity: NodeCapacity, running_unit: Sequence[tuple[RunningWork, RunningUnit]]) -> None:
        self._capacity = capacity
        self._running_units = running_unit
        self._reserved: dict[str, Reservation] = {}
        # Requirements without any room left: in a pass it only becomes less.
        self._exhausted: set[PodRequirements] = set()

    def timelines(self, requirements: PodRequirements, limit: int) -> Timelines:
        """A timeline for each worker that fits now, up to a limit, and for each running work that would free a place."""
        timelines: list[Timeline] = []
        if self._running_units:
            fit = {node_info.node.name: node_info for node_info in self._capacity.fit(requirements)}
            for running_work, running_unit in self._running_units:
                node_info = fit.get(running_work.node)
                if node_info is not None and filters.frees(running_work, node_info.free, requirements):
                    timelines.append(Timeline(running_unit, running_unit.remaining))
        return Timelines(timelines, self._capacity.openings(requirements, limit))

    def reserve(self, requests: Iterable[tuple[int, PlacementRequest, float]], timelines: dict[PodRequirements, Timelines]) -> None:
        """Keep room for the first few that need the room of several others, who would never leave it at one time.

        `requests` that are not late, each with its rank and the seconds to its deadline.
        """
        if not self._running_units:
            return
        full = {requirements for requirements in timelines if not self._capacity.openings(requirements, 1)}
        if not full:
            return
        ends: dict[str, list[tuple[float, Amounts]]] = {}
        for running_work, running_unit in sorted(self._running_units, key=lambda one: one[1].remaining):
            ends.setdefault(running_work.node, []).append((running_unit.remaining, running_work.requirements.wants))
        without_room = (
            one for one in requests if one[1].pool is None and full.issuperset([o.requirements for o in one[1].options])
        )
        for rank, request, left in islice(without_room, _RESERVATIONS):
            self._keep(rank, request, left, ends, timelines)

    def _keep(
        self,
        rank: int,
        request: PlacementRequest,
        left: float,
        ends: Mapping[str, Ends],
        timelines: dict[PodRequirements, Timelines],
    ) -> None:
        """Reserve a node for a request on the class where it would find one soonest, if that is in time."""
        found: list[tuple[float, int, Reservation]] = []
        for number, option in enumerate(request.options):
            latest = left - option.estimate.cautious_seconds if option.estimate.measured else inf
            infos = (
                node_info for node_info in self._capacity.fit(option.requirements) if node_info.node.name not in self._reserved
            )
            if (kept := reserve(option.requirements, rank, infos, ends, latest)) is not None:
                found.append((kept.at, number, kept))
        if found:
            at, number, kept = min(found, key=lambda one: one[:2])
            self._reserved[kept.node_info.node.name] = kept
            requirements = request.options[number].requirements
            if not timelines[requirements].timelines:
                timelines[requirements].add(Timeline(free=at, opens=at))

    def is_full(self, requirements: PodRequirements) -> bool:
        """Whether no node has room now: counted once for all with these requirements."""
        return requirements in self._exhausted or not self._capacity.openings(requirements, 1)

    def take(
        self,
        requirements: PodRequirements,
        seconds: float,
        rank: int,
        beside: Sequence[str],
        *,
        caps: Sequence[Cap] = (),
        avoid: Sequence[str] = (),
        failed_on: Sequence[str] = (),
    ) -> NodeInfo | None:
        """A node for work that takes so long, taken off the node capacity, on which nobody else's reservation is in its way.

        `beside` are the nodes of workers that it should stay away from, `failed_on` those that it should take last, `avoid` those
        that it does not go to. It counts against `caps`, any of which may be in its way.
        """
        if requirements in self._exhausted or (caps and in_the_way(caps) is not None):
            return None
        barred = [*avoid, *[name for name, kept in self._reserved.items() if not kept.admits(requirements, seconds, rank)]]
        choosy = beside or failed_on
        node_info = (
            self._capacity.apart(requirements, beside, barred, failed_on)
            if choosy
            else self._capacity.roomiest(requirements, barred)
        )
        if node_info is None:
            if not barred:
                self._exhausted.add(requirements)
            return None
        self._capacity.take(node_info, requirements)
        if (kept := self._reserved.get(node_info.node.name)) is not None:
            kept.admitted(requirements, seconds, rank)
        for cap in caps:
            cap.used += 1
        return node_info

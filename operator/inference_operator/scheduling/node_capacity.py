"""Free capacity during one scheduling pass: recounted at its start from nodes and pods, used up as places are given."""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from inference_operator.scheduling import filters
from inference_operator.scheduling.types import Shape, Usage
from inference_operator.state.objects import Node, Pod
from inference_operator.state.resources import shortage, subtract
from inference_operator.state.topology import ZONE_LABEL

_UNUSED = Usage()


@dataclass(slots=True, eq=False)
class Slot:
    """A node, what is free on it, how often something was taken from it in this pass, and how it is used besides."""

    node: Node
    free: dict[str, int]
    taken: int = 0
    usage: Usage = _UNUSED

    def pressure(self, shape: Shape) -> float:
        """How full it would be with one more of a shape."""
        usage = self.usage
        if not usage.strangers:
            return filters.pressure(self.node, self.free, shape)
        less = {usage.resource: self.free.get(usage.resource, 0) - usage.strangers}
        return filters.pressure(self.node, {**self.free, **less}, shape)


# How full it would be, then how busy our workers there are, then its name.
_Entry = tuple[float, float, str, int, Slot]


@dataclass(slots=True)
class _Shaped:
    """All nodes, seen by one shape: those that could hold it when empty, the least full first, and the others with the reason.

    The heap is lazy: an entry is right as long as nothing was taken from its node since. Taking makes a node only fuller, so an
    outdated entry stands too early, never too late, and is put right when it comes up.
    """

    fit: list[Slot]
    unfit: list[tuple[str, str]]
    heap: list[_Entry] = field(default_factory=list)


class Board:
    """One pass's capacity."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod], usage: Mapping[str, Usage] = MappingProxyType({})) -> None:
        self.slots = {
            node.name: Slot(node, dict(node.allocatable), usage=usage.get(node.name, _UNUSED))
            for node in sorted(nodes, key=lambda n: n.name)
        }
        self._shaped: dict[Shape, _Shaped] = {}
        for pod in pods:
            self._count(pod)

    def _count(self, pod: Pod) -> None:
        if pod.terminal:
            return
        # A worker that is not bound yet already holds the place that the plan gave it.
        name = pod.node or (pod.worker.placement.node if pod.worker and pod.worker.placement else None)
        slot = self.slots.get(name) if name is not None else None
        if slot is not None:
            subtract(slot.free, pod.requests.items())

    def roomiest(self, shape: Shape, avoid: Collection[str] = ()) -> Slot | None:
        """The fit node with room that would be least full, by name among equals; None when none has room."""
        heap = self._look(shape).heap
        aside: list[_Entry] = []
        found = None
        while heap:
            _, _, name, taken, slot = heap[0]
            if taken == slot.taken:
                if name not in avoid:
                    found = slot
                    break
                aside.append(heapq.heappop(heap))
            elif shortage(shape.amounts, slot.free) is not None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (slot.pressure(shape), slot.usage.busy, name, slot.taken, slot))
        for entry in aside:
            heapq.heappush(heap, entry)
        return found

    def apart(self, shape: Shape, beside: Sequence[str], avoid: Collection[str] = ()) -> Slot | None:
        """The fit node with room and the fewest others in its zone, then on itself; the roomiest among equals."""
        nodes = Counter(beside)
        zones = Counter(_zone(self.slots[name].node) for name in beside if name in self.slots)
        fit = self._look(shape).fit
        open_ = (slot for slot in fit if shortage(shape.amounts, slot.free) is None and slot.node.name not in avoid)

        def rank(slot: Slot) -> tuple[int, int, float, float, str]:
            node = slot.node
            return zones[_zone(node)], nodes[node.name], slot.pressure(shape), slot.usage.busy, node.name

        return min(open_, key=rank, default=None)

    def openings(self, shape: Shape, limit: int) -> int:
        """How many workers of this shape have room now; counted up to a limit."""
        wanted = [(name, amount) for name, amount in shape.amounts if amount]
        count = 0
        for slot in self._look(shape).fit:
            room, free = limit - count, slot.free
            for name, amount in wanted:
                room = min(room, free.get(name, 0) // amount)
            count += max(0, room)
            if count >= limit:
                break
        return count

    def take(self, slot: Slot, shape: Shape) -> None:
        """Use up what a worker of this shape takes."""
        subtract(slot.free, shape.amounts)
        slot.taken += 1

    def fit(self, shape: Shape) -> list[Slot]:
        """Nodes that could hold the shape when empty."""
        return self._look(shape).fit

    def unfit(self, shape: Shape) -> list[tuple[str, str]]:
        """Nodes that never could, with the reason."""
        return self._look(shape).unfit

    def _look(self, shape: Shape) -> _Shaped:
        found = self._shaped.get(shape)
        if found is not None:
            return found
        reasons = [(slot, filters.unfit(slot.node, shape)) for slot in self.slots.values()]
        shaped = _Shaped(
            fit=[slot for slot, why in reasons if why is None],
            unfit=[(slot.node.name, why) for slot, why in reasons if why is not None],
        )
        open_ = (slot for slot in shaped.fit if shortage(shape.amounts, slot.free) is None)
        shaped.heap = [(s.pressure(shape), s.usage.busy, s.node.name, s.taken, s) for s in open_]
        heapq.heapify(shaped.heap)
        self._shaped[shape] = shaped
        return shaped


def _zone(node: Node) -> str:
    return node.labels.get(ZONE_LABEL, "")


def free_amounts(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, dict[str, int]]:
    """Free amounts by node: the same recount, for metrics and tests."""
    return {name: slot.free for name, slot in Board(nodes, pods).slots.items()}

"""Free capacity during one scheduling pass: recounted at its start from nodes and pods, used up as places are given."""

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from inference_operator.scheduling import filters
from inference_operator.scheduling.claims import ClaimsInUse
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.types import Usage
from inference_operator.state.objects import Key, Node, Pod
from inference_operator.state.resources import shortage, subtract
from inference_operator.state.topology import ZONE_LABEL
from inference_operator.state.volumes import Access

_UNUSED = Usage()


@dataclass(slots=True, eq=False)
class NodeInfo:
    """A node, what is free on it, how often something was taken from it in this pass, and how it is used besides."""

    node: Node
    free: dict[str, int]
    taken: int = 0
    usage: Usage = _UNUSED

    def pressure(self, requirements: PodRequirements) -> float:
        """How full it would be with one more pod of these requirements."""
        usage = self.usage
        if not usage.unmanaged_usage:
            return filters.pressure(self.node, self.free, requirements)
        less = {usage.resource: self.free.get(usage.resource, 0) - usage.unmanaged_usage}
        return filters.pressure(self.node, {**self.free, **less}, requirements)


# How full it would be, then how busy our workers there are, then its name.
_Entry = tuple[float, float, str, int, NodeInfo]


@dataclass(slots=True)
class _Fitting:
    """All nodes, for one set of requirements: those that could hold such a pod when empty, and the others with the reason.

    The heap is lazy: an entry is right as long as nothing was taken from its node since. Taking makes a node only fuller, so an
    outdated entry stands too early, never too late, and is put right when it comes up.

    `claimed` says that an unfit node could, were it not for who uses the pod's claims now.
    """

    fit: list[NodeInfo]
    unfit: list[tuple[str, str]]
    heap: list[_Entry]
    claimed: bool = False


class NodeCapacity:
    """One pass's capacity."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod], usage: Mapping[str, Usage] = MappingProxyType({})) -> None:
        self.infos = {
            node.name: NodeInfo(node, dict(node.allocatable), usage=usage.get(node.name, _UNUSED))
            for node in sorted(nodes, key=lambda n: n.name)
        }
        self._fitting: dict[PodRequirements, _Fitting] = {}
        # The requirements that were looked up, by the claims that they mount.
        self._mounting: dict[Key, list[PodRequirements]] = {}
        # Counted openings, by requirements and limit, until something is taken.
        self._openings: dict[tuple[PodRequirements, int], int] = {}
        # The room of a placeholder is its job's, which it makes way for.
        self._pods = tuple(pod for pod in pods if pod.placeholder is None)
        for pod in self._pods:
            self._count(pod)

    @cached_property
    def _claims(self) -> ClaimsInUse:
        """Made when somebody asks: most passes have no work on a claim that not all can mount."""
        return ClaimsInUse(self._pods, {name: node_info.node for name, node_info in self.infos.items()})

    def _count(self, pod: Pod) -> None:
        if pod.terminal:
            return
        # A worker that is not bound yet already holds the place that the plan gave it.
        name = pod.node or (pod.worker.placement.node if pod.worker and pod.worker.placement else None)
        node_info = self.infos.get(name) if name is not None else None
        if node_info is not None:
            subtract(node_info.free, pod.requests.items())

    def roomiest(self, requirements: PodRequirements, avoid: Collection[str] = ()) -> NodeInfo | None:
        """The fit node with room that would be least full, by name among equals; None when none has room."""
        heap = self._look(requirements).heap
        aside: list[_Entry] = []
        found = None
        while heap:
            _, _, name, taken, node_info = heap[0]
            if taken == node_info.taken:
                if name not in avoid:
                    found = node_info
                    break
                aside.append(heapq.heappop(heap))
            elif shortage(requirements.amounts, node_info.free) is not None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (node_info.pressure(requirements), node_info.usage.busy, name, node_info.taken, node_info))
        for entry in aside:
            heapq.heappush(heap, entry)
        return found

    def apart(
        self, requirements: PodRequirements, beside: Sequence[str], avoid: Collection[str] = (), failed_on: Collection[str] = ()
    ) -> NodeInfo | None:
        """The fit node with room and the fewest others in its zone, then on itself; the roomiest among equals.

        One of `failed_on` only where no other has room.
        """
        nodes = Counter(beside)
        zones = Counter(_zone(self.infos[name].node) for name in beside if name in self.infos)
        fit = self._look(requirements).fit
        open_ = (
            node_info
            for node_info in fit
            if shortage(requirements.amounts, node_info.free) is None and node_info.node.name not in avoid
        )

        def rank(node_info: NodeInfo) -> tuple[bool, int, int, float, float, str]:
            node = node_info.node
            others = zones[_zone(node)], nodes[node.name]
            return node.name in failed_on, *others, node_info.pressure(requirements), node_info.usage.busy, node.name

        return min(open_, key=rank, default=None)

    def openings(self, requirements: PodRequirements, limit: int) -> int:
        """How many workers with these requirements have room now; counted up to a limit."""
        if any(access is Access.ONE_POD for _, access in requirements.claims):
            limit = min(limit, 1)
        requirements = self.alike(requirements)
        found = self._openings.get((requirements, limit))
        if found is None:
            found = self._openings[requirements, limit] = self._count_openings(requirements, limit)
        return found

    def _count_openings(self, requirements: PodRequirements, limit: int) -> int:
        wanted = [(name, amount) for name, amount in requirements.amounts if amount]
        count = 0
        for node_info in self._look(requirements).fit:
            room, free = limit - count, node_info.free
            for name, amount in wanted:
                room = min(room, free.get(name, 0) // amount)
            count += max(0, room)
            if count >= limit:
                break
        return count

    def alike(self, requirements: PodRequirements) -> PodRequirements:
        """Requirements that fit the same nodes now: those without claims, while nobody uses the claims."""
        if requirements.unclaimed is None or self._claims.concern(requirements):
            return requirements
        return requirements.unclaimed

    def take(self, node_info: NodeInfo, requirements: PodRequirements) -> None:
        """Use up what a worker with these requirements takes."""
        subtract(node_info.free, requirements.amounts)
        node_info.taken += 1
        self._openings.clear()
        if requirements.claims and (news := self._claims.take(requirements, node_info.node.name)):
            # Others that mount these claims can go to fewer nodes now, or to none.
            for other in [one for claim in news for one in self._mounting.pop(claim, ())]:
                self._fitting.pop(other, None)

    def exists(self, resource: str) -> bool:
        """Whether any node has such a resource at all."""
        return any(info.node.allocatable.get(resource) for info in self.infos.values())

    def fit(self, requirements: PodRequirements) -> list[NodeInfo]:
        """Nodes that could hold such a pod when empty."""
        return self._look(requirements).fit

    def unfit(self, requirements: PodRequirements) -> list[tuple[str, str]]:
        """Nodes that never could, or not while others use the pod's claims, with the reason."""
        return self._look(requirements).unfit

    def claimed(self, requirements: PodRequirements) -> bool:
        """Whether a node could hold such a pod when empty, and can't mount its claims while others use them."""
        return self._look(requirements).claimed

    def _look(self, requirements: PodRequirements) -> _Fitting:
        found = self._fitting.get(requirements)
        if found is None:
            made = self._fit if requirements.unclaimed is None else self._fit_beside_users
            found = self._fitting[requirements] = made(requirements)
            for claim, _ in requirements.claims:
                self._mounting.setdefault(claim, []).append(requirements)
        return found

    def _fit(self, requirements: PodRequirements) -> _Fitting:
        reasons = [(node_info, filters.unfit(node_info.node, requirements)) for node_info in self.infos.values()]
        fit = [node_info for node_info, why in reasons if why is None]
        unfit = [(node_info.node.name, why) for node_info, why in reasons if why is not None]
        return _Fitting(fit, unfit, self._heap(fit, requirements))

    def _fit_beside_users(self, requirements: PodRequirements) -> _Fitting:
        """What fits beside those who use the claims. While nobody does, that is what fits without them: they share one look."""
        assert requirements.unclaimed is not None
        plain = self._look(requirements.unclaimed)
        if self.alike(requirements) is not requirements:
            return plain
        fit, unfit = [], list(plain.unfit)
        for node_info in plain.fit:
            why = self._claims.conflict(requirements, node_info.node.name)
            if why is None:
                fit.append(node_info)
            else:
                unfit.append((node_info.node.name, why))
        return _Fitting(fit, unfit, self._heap(fit, requirements), claimed=len(fit) < len(plain.fit))

    @staticmethod
    def _heap(fit: Iterable[NodeInfo], requirements: PodRequirements) -> list[_Entry]:
        open_ = (node_info for node_info in fit if shortage(requirements.amounts, node_info.free) is None)
        heap = [(s.pressure(requirements), s.usage.busy, s.node.name, s.taken, s) for s in open_]
        heapq.heapify(heap)
        return heap


def _zone(node: Node) -> str:
    return node.labels.get(ZONE_LABEL, "")


def free_amounts(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, dict[str, int]]:
    """Free amounts by node: the same recount, for metrics and tests."""
    return {name: node_info.free for name, node_info in NodeCapacity(nodes, pods).infos.items()}

"""Fair shares: what each namespace has of the cluster, and in which turn namespaces get what comes free.

Weighted dominant resource fairness (Ghodsi et al. 2011, "Dominant resource fairness: fair allocation of multiple resource types").
A namespace's dominant share is the largest part that its workers have of any resource, divided by its weight. The next turn is
always that of the namespace with the smallest one: progressive filling, which ends at the weighted max-min fair allocation.
"""

from collections.abc import Iterable, Sequence

from inference_operator.namespace_limits import NamespaceLimits
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.state.objects import Node, Pod
from inference_operator.state.resources import add

# Parts of the cluster that a worker takes, by resource.
Parts = tuple[tuple[str, float], ...]


class Shares:
    """The parts of all nodes that namespaces have, and are planned to get, in one pass."""

    def __init__(self, limits: NamespaceLimits, nodes: Iterable[Node], pods: Iterable[Pod], namespaces: Iterable[str]) -> None:
        self._totals: dict[str, int] = {}
        for node in nodes:
            add(self._totals, node.allocatable)
        in_use: dict[str, dict[str, int]] = {name: {} for name in namespaces}
        for pod in pods:
            if pod.worker is not None and not pod.terminal:
                add(in_use.setdefault(pod.key.namespace, {}), pod.requests)
        self._parts = {name: dict(self.parts(amounts.items())) for name, amounts in in_use.items()}
        self._weights = {name: limits.of(name).weight for name in self._parts}
        self._shares = {name: max(parts.values(), default=0.0) / self._weights[name] for name, parts in self._parts.items()}
        self._all_weights = sum(self._weights.values())
        # As they are, before anything is planned: the share, and the resource of which it is one.
        self._now = dict(self._shares)
        self._dominant = {
            name: max(parts.items(), key=lambda one: (one[1], one[0]), default=("the cluster", 0.0))
            for name, parts in self._parts.items()
        }

    def parts(self, amounts: Iterable[tuple[str, int]]) -> Parts:
        """What so much is of all nodes together."""
        totals = self._totals
        return tuple((resource, amount / totals[resource]) for resource, amount in amounts if amount and totals.get(resource))

    def least(self, requirements: Sequence[PodRequirements]) -> Parts:
        """The parts of the least demanding of several requirements; none of none."""
        found = (self.parts(one.amounts) for one in requirements)
        return min(found, key=lambda parts: max((part for _, part in parts), default=0.0), default=())

    def of(self, namespace: str) -> float:
        """A namespace's weighted dominant share, with what is planned for it."""
        return self._shares[namespace]

    def now(self, namespace: str) -> float:
        """The same without what is planned."""
        return self._now.get(namespace, 0.0)

    def take(self, namespace: str, parts: Parts) -> float:
        """Plan a worker for a namespace; returns the share that it has with it."""
        own, share, weight = self._parts[namespace], self._shares[namespace], self._weights[namespace]
        for resource, part in parts:
            own[resource] = whole = own.get(resource, 0.0) + part
            share = max(share, whole / weight)
        self._shares[namespace] = share
        return share

    def is_served(self, namespace: str) -> bool:
        """Whether a namespace had its fair share before anything was planned: only another's end brings it more."""
        return self._dominant[namespace][1] >= self._fair(namespace)

    def _fair(self, namespace: str) -> float:
        return self._weights[namespace] / self._all_weights

    def words(self, namespace: str) -> str:
        """How a namespace stood before anything was planned."""
        resource, part = self._dominant[namespace]
        return (
            f"namespace {namespace} has {part:.0%} of {resource}; its fair share is {self._fair(namespace):.0%}, "
            f"as {len(self._weights)} namespaces have work, and the one with the least goes first"
        )

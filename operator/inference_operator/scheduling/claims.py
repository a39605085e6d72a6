"""Who uses which claim during one scheduling pass, and where a worker that mounts it can still go.

A volume with ReadWriteOnce is attached to one node: all that mount it run there. With ReadWriteOncePod one pod has it, and every
other waits for that pod's end. Nodes that are out of reach hold nobody: what ran there goes on elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.state.objects import Key, Node, Pod
from inference_operator.state.volumes import Access


@dataclass(slots=True)
class _Users:
    """The nodes that a claim's pods are on, or were given, and a name of one of these pods."""

    nodes: set[str] = field(default_factory=set)
    pod: str = ""


class ClaimsInUse:
    """The claims that living pods mount: recounted at a pass's start, added to as places are given."""

    def __init__(self, pods: Iterable[Pod], nodes: Mapping[str, Node]) -> None:
        self._users: dict[Key, _Users] = {}
        for pod in pods:
            if not pod.claims or pod.terminal:
                continue
            node = pod.node or (pod.worker.placement.node if pod.worker and pod.worker.placement else None)
            if node is not None and (node not in nodes or not nodes[node].reachable):
                continue
            for claim in pod.claims:
                self._add(Key(pod.key.namespace, claim), node, pod.key.name)

    def concern(self, requirements: PodRequirements) -> bool:
        """Whether anybody uses a claim that a pod with these requirements mounts."""
        return any(claim in self._users for claim, _ in requirements.claims)

    def conflict(self, requirements: PodRequirements, node: str) -> str | None:
        """Why a pod with these requirements can't mount its claims on a node, in kube-scheduler's phrases; None when it can."""
        for claim, access in requirements.claims:
            users = self._users.get(claim)
            if users is None:
                continue
            if access is Access.ONE_POD:
                return f"node(s) unavailable due to claim {claim.name} with {access} access mode, in use by {users.pod}"
            if users.nodes and node not in users.nodes:
                nodes = ", ".join(sorted(users.nodes))
                return f"node(s) unavailable due to claim {claim.name} with {access} access mode, in use on {nodes}"
        return None

    def take(self, requirements: PodRequirements, node: str) -> frozenset[Key]:
        """A worker is given a place; returns the claims of which others can less than before."""
        new = frozenset(claim for claim, _ in requirements.claims if not self._is_used(claim))
        for claim, _ in requirements.claims:
            self._add(claim, node, "a worker that starts")
        return new

    def _is_used(self, claim: Key) -> bool:
        users = self._users.get(claim)
        return users is not None and bool(users.nodes)

    def _add(self, claim: Key, node: str | None, pod: str) -> None:
        users = self._users.setdefault(claim, _Users())
        users.pod = users.pod or pod
        if node is not None:
            users.nodes.add(node)

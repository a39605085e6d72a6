"""Where one worker could go: filters that give a reason for every node they reject, and the cost of those that are left."""

from collections import Counter
from collections.abc import Mapping

from inference_operator.scheduling.requirements import PodRequirements, Tolerance
from inference_operator.scheduling.types import RunningWork
from inference_operator.state.objects import Node, Taint
from inference_operator.state.resources import PODS, Amounts, format_amount, shortage
from inference_operator.state.topology import described, reaches


def unfit(node: Node, requirements: PodRequirements) -> str | None:
    """Why an empty node can't take a worker with these requirements, in kube-scheduler's phrases; None when it can."""
    if not node.ready:
        return "node(s) were not ready"
    if node.silent:
        return "node(s) had workers that do not answer"
    if node.unschedulable:
        return "node(s) were unschedulable"
    for key, value in requirements.node_selector:
        if node.labels.get(key) != value:
            return f"node(s) didn't match node selector ({key}={value})"
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(t, taint) for t in requirements.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if requirements.user_namespace and not node.user_namespaces:
        return "node(s) had a container runtime without user namespaces"
    for claim, terms in requirements.volumes:
        if not reaches(terms, node.name, node.labels):
            return f"node(s) had volume node affinity conflict (claim {claim}: {described(terms)})"
    short = shortage(requirements.amounts, node.allocatable)
    if short is not None:
        return insufficient(short, requirements, f"{format_amount(short, node.allocatable.get(short, 0))} allocatable")
    return None


def tolerates(toleration: Tolerance, taint: Taint) -> bool:
    """Whether a toleration covers a taint (core/v1's rule)."""
    # The API writes "any" as an empty string or leaves it out.
    if toleration.effect not in (None, "", taint.effect):
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    return toleration.key == taint.key and (toleration.operator == "Exists" or (toleration.value or "") == taint.value)


def full(node: Node, free: Amounts, requirements: PodRequirements) -> str | None:
    """Why a fit node has no room now; None when it has."""
    found = lack(node, free, requirements)
    return None if found is None else lacking(*found, requirements)


def lack(node: Node, free: Amounts, requirements: PodRequirements) -> tuple[str, int, int] | None:
    """The first resource of which a node has too little left, with what is free of it and what the node has; None with room."""
    short = shortage(requirements.amounts, free)
    return None if short is None else (short, max(0, free.get(short, 0)), node.allocatable.get(short, 0))


def lacking(name: str, left: int, whole: int, requirements: PodRequirements) -> str:
    """The same in words."""
    return insufficient(name, requirements, f"{format_amount(name, left)} of {format_amount(name, whole)} free")


def insufficient(name: str, requirements: PodRequirements, there: str) -> str:
    """What kube-scheduler says of a resource that is short, with what is requested and what is there."""
    phrase = "Too many pods" if name == PODS else f"Insufficient {name}"
    return f"{phrase} ({format_amount(name, requirements.wants[name])} requested, {there})"


def frees(running_work: RunningWork, free: Amounts, requirements: PodRequirements) -> bool:
    """Whether a node would have room for a pod with these requirements once this running work has left."""
    given = running_work.requirements.wants
    return all(free.get(name, 0) + given.get(name, 0) >= amount for name, amount in requirements.amounts)


def pressure(node: Node, free: Mapping[str, float], requirements: PodRequirements) -> float:
    """How full the node's scarcest resource would be with this worker, 0..1: the tie-breaker that spreads load.

    Devices that unmanaged users use count as taken in `free`, which may come to more than there are.
    """
    fullest = 0.0
    whole = node.allocatable
    for name, amount in requirements.amounts:
        if amount and (has := whole.get(name)):
            fullest = max(fullest, 1 - (free.get(name, 0) - amount) / has)
    return fullest


def summary(reasons: Counter[str], limit: int = 4) -> str:
    """How many nodes are rejected for which reason, as kube-scheduler sums up; the most frequent reasons, up to a limit."""
    total = reasons.total()
    if not total:
        return "no nodes available to schedule pods"
    told = reasons.most_common(limit)
    parts = [f"{count} {reason}" for reason, count in told]
    if left := total - sum(count for _, count in told):
        parts.append(f"{left} for other reasons")
    return f"0/{total} nodes are available: {', '.join(parts)}"

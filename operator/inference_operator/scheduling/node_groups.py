"""By what each accelerator class can grow, as the administrator has said and as the nodes that came have shown."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from inference_operator.accelerators import AcceleratorClass, Provisioning
from inference_operator.scheduling.types import NodeGroup
from inference_operator.state.objects import Node, Pod, Taint
from inference_operator.state.resources import PODS, amounts

# What the kubelet takes by default.
_PODS = "110"
# A node that is overdue may take as much longer as it is late already; at least this share of what nodes take.
_LEAST_SHARE = 0.1
# A node that is there takes a worker as soon as a pass has decided.
_SETTLING = 1.0


def node_groups(
    classes: Mapping[str, AcceleratorClass], placeholders: Iterable[Pod], learned: Mapping[str, float], now: datetime
) -> dict[str, NodeGroup]:
    """Return the node group of each class that grows. `learned` says how many seconds nodes of a class have taken to come."""
    waiting: dict[str, list[Pod]] = {}
    for pod in placeholders:
        if pod.placeholder is not None and not pod.deleting and not pod.terminal and pod.created is not None:
            waiting.setdefault(pod.placeholder.accelerator, []).append(pod)
    found = {}
    for name, of_class in classes.items():
        if (grows := of_class.provisioning) is not None:
            seconds, pods = learned.get(name, grows.node_seconds), waiting.get(name, ())
            coming = tuple(sorted(_left(pod, seconds, now) for pod in pods))
            # While one is overdue, the next will hardly be quicker.
            overdue = max((_age(pod, now) for pod in pods if pod.node is None), default=0.0)
            found[name] = NodeGroup(_node(name, of_class, grows), max(seconds, overdue), grows.max_pending, coming)
    return found


def _age(pod: Pod, now: datetime) -> float:
    return (now - (pod.created or now)).total_seconds()


def _left(pod: Pod, seconds: float, now: datetime) -> float:
    """Seconds until the node of a placeholder takes a worker."""
    return _SETTLING if pod.node is not None else max(abs(seconds - _age(pod, now)), seconds * _LEAST_SHARE)


def _node(name: str, of_class: AcceleratorClass, grows: Provisioning) -> Node:
    """A new node of a class, as it would be without pods."""
    return Node(
        name=f"new-{name}",
        resource_version="",
        labels={**of_class.node_selector, **grows.labels},
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in grows.taints),
        allocatable=amounts({PODS: _PODS, **grows.allocatable}),
        ready=True,
        unschedulable=False,
        user_namespaces=True,
    )

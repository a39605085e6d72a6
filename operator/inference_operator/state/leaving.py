"""Nodes that were announced to go: cordoned, or tainted by who is about to end them. Pure.

The taints are those of the cluster autoscaler, Karpenter, AWS's node termination handler, GKE's spot notices, and Kubernetes. One
that ends pods at once needs no look of ours, and one for any other reason lets stay what is there.
"""

from inference_operator.state.objects import Node

_ANNOUNCED = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "cloud.google.com/impending-node-termination",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    }
)
_ANNOUNCED_BY = ("aws-node-termination-handler/",)


def is_leaving(node: Node) -> bool:
    """Whether what runs there should be elsewhere soon."""
    return node.unschedulable or any(taint.key in _ANNOUNCED or taint.key.startswith(_ANNOUNCED_BY) for taint in node.taints)

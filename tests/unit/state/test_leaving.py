"""Which nodes are about to go, by what is said of them."""

from dataclasses import replace

import pytest

from inference_operator.state.leaving import is_leaving
from inference_operator.state.objects import Taint
from tests.builders import a_node


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "aws-node-termination-handler/spot-itn",
        "node.kubernetes.io/out-of-service",
    ],
)
def test_a_node_that_somebody_is_about_to_end_is_leaving(key: str) -> None:
    assert is_leaving(replace(a_node(), taints=(Taint(key, "", "NoSchedule"),)))


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/unreachable"])
def test_a_node_that_takes_some_pods_only_is_not(key: str) -> None:
    assert not is_leaving(replace(a_node(), taints=(Taint(key, "", "NoSchedule"),)))


def test_a_cordoned_node_is_leaving() -> None:
    assert is_leaving(replace(a_node(), unschedulable=True)) and not is_leaving(a_node())

"""Classes of one resource on different nodes, and slices of devices: each goes to its own nodes, and the cost chooses among them."""

from dataclasses import replace
from typing import Any

import pytest

from inference_operator.accelerators import CPU_PROVIDER, AcceleratorClass
from inference_operator.api.conditions import Reason
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet
from inference_operator.settings import CostWeights, Settings
from inference_operator.state.objects import Node
from tests.builders import GPU, NOW, a_job, a_model, a_node, a_profile, observed
from tests.unit.accelerators import with_classes
from tests.unit.scheduling.support import wanted

SETTINGS = with_classes("cpu", "a100", "l4", "mig-1g")
PRODUCT = "nvidia.com/gpu.product"
MIG = "nvidia.com/mig-1g.10gb"

A100 = a_node("a100", gpu=1, labels={PRODUCT: "NVIDIA-A100-SXM4-80GB"})
L4 = a_node("l4", gpu=1, labels={PRODUCT: "NVIDIA-L4"})
SLICED = replace(a_node("sliced", labels={PRODUCT: "NVIDIA-A100-SXM4-80GB"}), allocatable={**a_node().allocatable, MIG: 7})
# Ten items: 1 s on the A100, 4 s on the L4, 4.5 s on a slice and 100 s on the CPU, each after 2 s of loading.
MODEL = a_model(
    profiles=[
        a_profile("a100", items_per_second=10.0),
        a_profile("l4", items_per_second=2.5),
        a_profile("mig-1g", items_per_second=2.25),
        a_profile("cpu", items_per_second=0.1),
    ]
)


def decided(*nodes: Node, **job: Any) -> Decision:
    request = wanted(observed(a_job(model="m", items=10, **job), model=MODEL), settings=SETTINGS)
    assert request is not None
    return schedule(Fleet(nodes, (), (request,)), CostWeights(), NOW)[request.key]


def place(*nodes: Node, **job: Any) -> list[tuple[str, str]]:
    return [(a.accelerator, a.node) for a in decided(*nodes, **job).assignments]


@pytest.mark.parametrize(("name", "node"), [("a100", "a100"), ("l4", "l4"), ("mig-1g", "sliced")])
def test_a_class_goes_to_its_own_nodes_alone(name: str, node: str) -> None:
    assert place(A100, L4, SLICED, accelerator=name) == [(name, node)]
    others = [n for n in (A100, L4, SLICED) if n.name != node]
    assert place(*others, accelerator=name) == []


def test_the_reason_for_waiting_names_the_label_of_the_class() -> None:
    pending = decided(A100, accelerator="l4").pending

    assert pending is not None and "didn't match node selector (nvidia.com/gpu.product=NVIDIA-L4)" in pending.message


def test_the_reason_for_waiting_names_the_slice() -> None:
    pending = decided(A100, accelerator="mig-1g").pending

    assert pending is not None and f"Insufficient {MIG}" in pending.message


def test_a_device_that_no_node_has_is_told_with_what_to_look_at() -> None:
    """A forgotten device plug-in and a wrong resourceName look alike: no node has such a resource."""
    cure = f"no node has {MIG}: check the class's resourceName and the device plug-in"
    absent, there = (decided(*nodes, accelerator="mig-1g", node_selector={"zone": "a"}).pending for nodes in ([A100], [SLICED]))

    assert absent is not None and absent.reason is Reason.NO_NODE_FITS and cure in absent.message
    assert there is not None and "node selector (zone=a)" in there.message and "device plug-in" not in there.message


def test_the_reason_for_waiting_says_how_many_of_a_device_a_node_has() -> None:
    pending = decided(A100, accelerator="mig-1g").pending

    assert pending is not None and f"Insufficient {MIG} (1 requested, 0 allocatable)" in pending.message


def waiting_for_many(job: dict[str, Any], **of_class: Any) -> str:
    """Why a job waits that may run on twenty classes of a device that no node has; `of_class` has lists of values, one a class."""
    many = {
        f"c{i:02}": AcceleratorClass(
            execution_providers=(CPU_PROVIDER,), resource_name="a.b/c", watts_busy=1.0, **{k: v[i] for k, v in of_class.items()}
        )
        for i in range(20)
    }
    request = wanted(observed(a_job(items=10, **job)), settings=Settings(accelerators=many))
    assert request is not None
    pending = schedule(Fleet((A100, L4), (), (request,)), CostWeights(), NOW)[request.key].pending
    assert pending is not None and pending.reason is Reason.NO_NODE_FITS
    return pending.message


def test_twenty_classes_that_wait_for_the_same_tell_it_once() -> None:
    """The same words for each of twenty classes were a line of 2,500 characters."""
    message = waiting_for_many({})

    assert "c00, c01, c02," in message and message.count("Insufficient a.b/c") == 1 and len(message) < 600


def test_twenty_classes_with_reasons_of_their_own_tell_a_few_of_them() -> None:
    message = waiting_for_many({}, node_selector=[{"product": f"p{i}"} for i in range(20)])

    assert message.count("didn't match node selector") == 8 and "12 more classes for reasons of their own" in message


def test_work_with_time_goes_where_it_draws_least() -> None:
    """A slice draws 60 W for 6.5 s, an L4 72 W for 6 s, an A100 400 W for 3 s, and the CPU 15 W for 102 s."""
    assert place(A100, L4, SLICED, deadline_in=60.0) == [("mig-1g", "sliced")]


def test_work_in_a_hurry_goes_to_the_faster_of_two_kinds() -> None:
    assert place(A100, L4, deadline_in=5.0) == [("a100", "a100")]


def test_without_a_deadline_being_early_counts_more_than_watts() -> None:
    assert place(A100, L4) == [("a100", "a100")]


def test_the_other_kind_is_taken_when_the_first_has_no_device_left() -> None:
    without = replace(A100, allocatable={k: v for k, v in A100.allocatable.items() if k != GPU})

    assert place(without, L4, deadline_in=60.0) == [("l4", "l4")]

"""Node selectors as core/v1 defines them, and the volumes that carry them."""

from typing import Any

import pytest

from inference_operator.scheduling.filters import unfit
from inference_operator.scheduling.requirements import pod_requirements
from inference_operator.state.parse import parse_volume
from inference_operator.state.topology import NodeSelectorRequirement, Volume, described, reaches
from tests.builders import a_node
from tests.unit.state.raw import Raw, meta

LABELS = {"zone": "b", "rank": "7"}
IN_B = NodeSelectorRequirement("zone", "In", ("b",))


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (IN_B, True),
        (NodeSelectorRequirement("zone", "In", ("a", "b")), True),
        (NodeSelectorRequirement("zone", "In", ("a",)), False),
        (NodeSelectorRequirement("other", "In", ("a",)), False),
        (NodeSelectorRequirement("zone", "NotIn", ("a",)), True),
        (NodeSelectorRequirement("zone", "NotIn", ("b",)), False),
        (NodeSelectorRequirement("other", "NotIn", ("a",)), True),
        (NodeSelectorRequirement("zone", "Exists"), True),
        (NodeSelectorRequirement("other", "Exists"), False),
        (NodeSelectorRequirement("zone", "DoesNotExist"), False),
        (NodeSelectorRequirement("other", "DoesNotExist"), True),
        (NodeSelectorRequirement("rank", "Gt", ("6",)), True),
        (NodeSelectorRequirement("rank", "Gt", ("7",)), False),
        (NodeSelectorRequirement("rank", "Lt", ("8",)), True),
        (NodeSelectorRequirement("zone", "Lt", ("8",)), False),
        (NodeSelectorRequirement("other", "Lt", ("8",)), False),
        (NodeSelectorRequirement("rank", "Lt", ()), False),
        (NodeSelectorRequirement("zone", "Near", ("b",)), False),
    ],
    ids=str,
)
def test_what_an_expression_means(requirement: NodeSelectorRequirement, holds: object) -> None:
    assert requirement.holds(LABELS) is holds


def test_one_term_has_to_hold_wholly_and_an_empty_one_never_does() -> None:
    in_a = NodeSelectorRequirement("zone", "In", ("a",))
    rank = NodeSelectorRequirement("rank", "Exists")

    assert reaches(((in_a,), (IN_B, rank)), "n", LABELS)
    assert not reaches(((in_a, rank), (IN_B, in_a)), "n", LABELS)
    assert not reaches(((),), "n", LABELS)
    assert not reaches((), "n", LABELS)


def test_a_field_is_about_the_nodes_name() -> None:
    named = ((NodeSelectorRequirement("metadata.name", "In", ("n",)),),)

    assert reaches(named, "n", {})
    assert not reaches(named, "other", {})


def test_terms_are_told_for_people() -> None:
    assert described(((IN_B, NodeSelectorRequirement("gpu", "Exists")), (NodeSelectorRequirement("zone", "In", ("c", "d")),))) == (
        "zone=b and gpu or zone In (c, d)"
    )
    assert described(((),)) == "no node at all"


def raw_volume(*, phase: str = "Bound", **spec: Any) -> Raw:
    term = {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
    }
    given = {
        "claimRef": {"namespace": "team", "name": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **spec,
    }
    return {"metadata": meta("pv"), "spec": given, "status": {"phase": phase}}


def test_a_bound_volume_says_who_can_mount_it() -> None:
    assert parse_volume(raw_volume()) == Volume(
        "uid-of-pv", "7", "team", "data", ((IN_B, NodeSelectorRequirement("metadata.name", "In", ("n",))),)
    )


@pytest.mark.parametrize(
    "raw", [raw_volume(phase="Released"), raw_volume(claimRef=None), raw_volume(nodeAffinity=None), {"metadata": meta("pv")}]
)
def test_who_holds_nobody_back(raw: Raw) -> None:
    assert parse_volume(raw) is None


def test_a_node_that_can_not_mount_a_volume_is_told_with_the_reason() -> None:
    shape = pod_requirements((("cpu", 500),), volumes=(("data", ((IN_B,),)),))

    assert unfit(a_node(labels={"zone": "b"}), shape) is None
    assert unfit(a_node(labels={"zone": "a"}), shape) == "node(s) had volume node affinity conflict (claim data: zone=b)"

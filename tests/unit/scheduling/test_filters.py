"""Where a worker could go: the filters say what kube-scheduler would say, and the cost is what it is said to be."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.scheduling import cost, filters
from inference_operator.scheduling.requirements import Tolerance, pod_requirements
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Node, Taint
from tests.builders import NOW, a_node, an_option
from tests.unit.scheduling.support import in_seconds

REQUIREMENTS = an_option(cpu="1").requirements


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (a_node(), None),
        (a_node(ready=False), "node(s) were not ready"),
        (a_node(cordoned=True), "node(s) were unschedulable"),
        (replace(a_node(), silent=True), "node(s) had workers that do not answer"),
        (a_node(cpu="500m"), "Insufficient cpu (1 requested, 0.5 allocatable)"),
        (a_node(memory="256Mi"), "Insufficient memory (512Mi requested, 256Mi allocatable)"),
        (a_node(pods=0), "Too many pods (1 requested, 0 allocatable)"),
        (a_node(taints=[Taint("k", "v", "NoSchedule")]), "node(s) had untolerated taint {k: v}"),
        (a_node(taints=[Taint("k", "v", "NoExecute")]), "node(s) had untolerated taint {k: v}"),
        (a_node(taints=[Taint("k", "v", "PreferNoSchedule")]), None),
    ],
)
def test_a_node_is_unfit_for_a_reason(node: Node, reason: str | None) -> None:
    assert filters.unfit(node, REQUIREMENTS) == reason


def test_a_resource_that_a_node_does_not_have_is_short() -> None:
    reason = filters.unfit(a_node(), an_option(gpu=1).requirements)

    assert reason == "Insufficient nvidia.com/gpu (1 requested, 0 allocatable)"


def test_a_worker_with_a_user_namespace_goes_where_the_runtime_has_them() -> None:
    """Elsewhere its pod would fail at its start, or run without one: an old runtime passes over what it doesn't know."""
    requirements = pod_requirements(REQUIREMENTS.amounts, user_namespace=True)

    assert filters.unfit(a_node(), requirements) == "node(s) had a container runtime without user namespaces"
    assert filters.unfit(a_node(user_namespaces=True), requirements) is None


@pytest.mark.parametrize(
    ("labels", "fits"), [({}, False), ({"zone": "a"}, True), ({"zone": "b"}, False), ({"zone": "a", "x": "y"}, True)]
)
def test_selected_labels_must_be_there(labels: dict[str, str], fits: bool) -> None:  # noqa: FBT001
    requirements = an_option(node_selector={"zone": "a"}).requirements

    assert filters.unfit(a_node(labels=labels), requirements) == (None if fits else "node(s) didn't match node selector (zone=a)")


def test_every_taint_needs_its_toleration() -> None:
    node = a_node(taints=[Taint("a", "", "NoSchedule"), Taint("b", "", "NoSchedule")])
    one, both = [Tolerance("a", "Exists", None, None)], [Tolerance(k, "Exists", None, None) for k in "ab"]

    assert filters.unfit(node, an_option(tolerations=one).requirements) == "node(s) had untolerated taint {b: }"
    assert filters.unfit(node, an_option(tolerations=both).requirements) is None


# Tolerations, against core/v1.


def tolerates_taint(toleration: Tolerance, taint: Taint) -> bool:
    """k8s.io/api/core/v1 Toleration.ToleratesTaint, word for word."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return (toleration.value or "") == taint.value
        case "Exists":
            return True
        case _:
            return False


effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
words = st.sampled_from(["", "a", "b"])
taints = st.builds(Taint, st.sampled_from(["a", "b"]), words, effects)
tolerations = st.builds(
    Tolerance, st.sampled_from([None, "a", "b"]), st.sampled_from(["Equal", "Exists"]), st.none() | words, st.none() | effects
)


@given(tolerations.filter(lambda t: t.key is not None or t.operator == "Exists"), taints)
def test_a_toleration_covers_what_core_v1_says(toleration: Tolerance, taint: Taint) -> None:
    assert filters.tolerates(toleration, taint) == tolerates_taint(toleration, taint)


@pytest.mark.parametrize("toleration", [Tolerance("", "Exists", None, None), Tolerance("a", "Exists", None, "")])
def test_empty_is_as_good_as_none(toleration: Tolerance) -> None:
    assert filters.tolerates(toleration, Taint("a", "", "NoSchedule"))


# Room and cost.


def test_a_full_node_says_what_is_free() -> None:
    node = a_node(cpu="4")

    assert filters.full(node, node.allocatable, REQUIREMENTS) is None
    assert filters.full(node, {**node.allocatable, "cpu": 250}, REQUIREMENTS) == "Insufficient cpu (1 requested, 0.25 of 4 free)"
    assert filters.full(node, {**node.allocatable, "cpu": -500}, REQUIREMENTS) == "Insufficient cpu (1 requested, 0 of 4 free)"


amounts = st.integers(0, 4000)


@given(amounts, amounts)
def test_the_emptier_node_has_less_pressure(free: int, other: int) -> None:
    node = a_node(cpu="4")
    here, there = (filters.pressure(node, {**node.allocatable, "cpu": cpu}, REQUIREMENTS) for cpu in (free, other))

    assert here >= there or free >= other


def test_cost_is_latency_and_energy_and_switching() -> None:
    terms = cost.cost_terms(an_option(seconds=30, watts=100), CostWeights(alpha=0.001, beta=0.5))

    assert (terms.latency_seconds, terms.energy_joules, terms.switch_seconds) == (30, 3000, 2)
    assert (
        terms.total
        == 30 + 0.001 * 3000 + 0.5 * 2
        == cost.total_cost(an_option(seconds=30, watts=100), CostWeights(alpha=0.001, beta=0.5))
    )
    assert not terms.estimated


def test_cost_is_told_in_thousandths_and_energy_in_tenths() -> None:
    third = an_option(seconds=31.123456789, watts=99.9)
    terms = cost.cost_terms(third, CostWeights(alpha=0.001, beta=0.5))

    assert (terms.latency_seconds, terms.energy_joules) == (31.123, 3109.2)
    assert terms.total == pytest.approx(cost.total_cost(third, CostWeights(alpha=0.001, beta=0.5)), abs=0.002)
    summed = terms.latency_weight * terms.latency_seconds + terms.energy_weight * terms.energy_joules
    assert terms.total == round(summed + terms.switch_weight * terms.switch_seconds, 3)


def test_a_class_is_in_time_up_to_the_very_deadline() -> None:
    option = an_option(seconds=30)

    assert cost.in_time(option, in_seconds(30), NOW)
    assert not cost.in_time(option, in_seconds(29.999), NOW)
    assert cost.in_time(option, None, NOW)


def test_rejections_are_counted_by_reason() -> None:
    text = filters.summary(Counter(["Insufficient x", "node(s) were y", "Insufficient x"]))

    assert text == "0/3 nodes are available: 2 Insufficient x, 1 node(s) were y"
    assert filters.summary(Counter()) == "no nodes available to schedule pods"


def test_the_rarest_reasons_are_only_counted() -> None:
    text = filters.summary(Counter(a=3, b=2, c=1, d=1), limit=2)

    assert text == "0/7 nodes are available: 3 a, 2 b, 2 for other reasons"

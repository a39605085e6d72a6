"""How much room nodes have: what is counted, up to a limit, and what is taken from it."""

from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.types import Usage
from tests.builders import a_node, an_option, somebodys_pod

REQUIREMENTS = an_option(cpu="1").requirements


def test_openings_are_counted_node_by_node_up_to_the_limit() -> None:
    capacity = NodeCapacity((a_node("a", cpu="3"), a_node("b", cpu="2")), ())

    assert [capacity.openings(REQUIREMENTS, limit) for limit in (0, 1, 4, 9)] == [0, 1, 4, 5]


def test_a_full_node_has_no_opening_and_takes_none_from_the_others() -> None:
    nodes = (a_node("full", cpu="1"), a_node("free", cpu="2"))
    capacity = NodeCapacity(nodes, (somebodys_pod(node="full", cpu="1"),))

    assert capacity.openings(REQUIREMENTS, 9) == 2


def test_what_is_taken_is_no_room_any_more() -> None:
    capacity = NodeCapacity((a_node("a", cpu="2"),), ())
    capacity.take(capacity.infos["a"], REQUIREMENTS)

    assert capacity.openings(REQUIREMENTS, 9) == 1


def test_a_node_is_used_by_nobody_else_as_long_as_nobody_says_so() -> None:
    assert Usage() == Usage(resource="", unmanaged_usage=0.0, busy=0.0)

"""Workers of a service that came to be on one node are spread again, once another node has room for long enough."""

from __future__ import annotations

import pytest

from tests.simulation.world import World

AFTER_SECONDS = 300.0


def a_crowded_service(*, back_at: float = 50.0) -> World:
    """Two workers on the only node that there was; another node comes."""
    world = World()
    world.node("a", cpu=4)
    world.node("b", cpu=2, at=back_at)
    world.model(seconds={"cpu": 30.0})
    world.job("s", batch=False, replicas=2, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})
    world.watch_answering("s", since=20.0)
    return world


@pytest.mark.parametrize("back_at", [50.0, 500.0])
def test_one_moves_to_the_other_node_and_none_is_missed(back_at: float) -> None:
    world = a_crowded_service(back_at=back_at)
    begun = list[int]()
    world.at(max(AFTER_SECONDS - 10.0, back_at - 1.0), lambda: begun.append(world.created("s")))
    world.run(600.0)

    assert begun == [2]
    assert world.taking("s") == {"a", "b"}
    assert (world.created("s"), sum(world.deleted.values()), world.least_answering["s"]) == (3, 1, 2)
    assert world.status("s")["phase"] == "Serving"


def test_it_stays_where_the_other_node_has_no_room() -> None:
    world = a_crowded_service()
    world.job("other", at=60.0, batch=False, replicas=1, resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})
    world.run(900.0)

    assert (world.created("s"), sum(world.deleted.values())) == (2, 0)

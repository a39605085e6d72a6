"""Workers of a service that came to be on one node are spread again, once another node has room for long enough."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.cluster import Script
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


def starts(world: World, seconds: float) -> None:
    """Workers of the service that come from now on take so long until their container runs."""
    world.scripts["s"] = Script(start=seconds)


def test_one_that_can_not_start_there_gives_its_place_back_and_is_followed_ever_later() -> None:
    """It had the place for ever, and no status told of it."""
    world, begun = a_crowded_service(), list[int]()
    cpu = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    world.at(100.0, partial(starts, world, 1e6))
    world.job("other", at=600.0, batch=False, replicas=1, resources=cpu)
    world.at(890.0, lambda: begun.append(len(world.workers("other"))))
    world.run(4000.0)

    assert (begun, world.taking("other"), world.least_answering["s"]) == ([0], {"b"}, 2)
    assert (world.created("s"), world.taking("s"), world.status("s")["phase"]) == (3, {"a"}, "Serving")
    told = world.status("s")["lastAttempt"]
    assert (told["number"], told["outcome"]) == (3, "Failed") and "could not start within 600 s" in told["message"]


def test_one_that_can_not_start_there_is_tried_ever_more_seldom_and_spreads_the_service_once_it_can() -> None:
    world, begun = a_crowded_service(), list[int]()
    world.at(100.0, partial(starts, world, 1e6))
    for seconds in (1700.0, 1900.0, 4700.0):
        world.at(seconds, lambda: begun.append(world.created("s")))
    world.at(4000.0, partial(starts, world, 1.0))
    world.run(5000.0)

    assert (begun, world.created("s"), world.taking("s")) == ([3, 4, 4], 5, {"a", "b"})
    assert (world.least_answering["s"], world.status("s").get("failedAttempts", 0)) == (2, 0)


def test_one_that_fails_there_is_followed_later_and_spreads_the_service_then() -> None:
    """One fault of a node that had just come back, and the service was never spread again."""
    world, begun = a_crowded_service(), list[int]()
    world.scripts["s"] = Script(outcomes=("Succeeded", "Succeeded", "ModelUnreachable", "Succeeded"))
    world.at(590.0, lambda: begun.append(world.created("s")))
    world.run(900.0)

    assert (begun, world.created("s"), world.taking("s"), world.least_answering["s"]) == ([3], 4, {"a", "b"}, 2)

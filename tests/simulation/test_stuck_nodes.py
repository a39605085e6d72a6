"""A node that takes pods and starts none of their containers: its network, a volume or an image store is broken."""

from __future__ import annotations

from tests.simulation.cluster import Script
from tests.simulation.world import World

CPU = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


def two_nodes(*, stuck: str = "a", pool: dict[str, int] | None = None) -> World:
    """The stuck one is roomier, so everything goes there first."""
    world = World()
    world.node("a", cpu=16)
    world.node("b", cpu=4)
    world.model(seconds={"cpu": 30.0}, pool=pool)
    world.stuck.add(stuck)
    return world


def test_the_next_attempt_of_a_batch_goes_elsewhere() -> None:
    """All three went to the node that could start none of them, and the batch had failed."""
    world = two_nodes()
    world.job("batch", resources=CPU)
    world.run(1000.0)

    status = world.status("batch")
    assert (status["phase"], status["attempts"], status["failedAttempts"]) == ("Succeeded", 2, 1)
    assert status["lastAttempt"]["node"] == "b"


def test_workers_of_a_service_that_do_not_start_are_followed_elsewhere() -> None:
    """They were waited for as long as the node was there."""
    world = two_nodes()
    world.job("s", batch=False, replicas=2, resources=CPU)
    world.run(1000.0)

    assert (world.created("s"), world.taking("s"), world.status("s")["phase"]) == (3, {"b"}, "Serving")
    told = world.status("s")["lastAttempt"]
    assert (told["outcome"], told["node"]) == ("Failed", "a") and "could not start within 600 s" in told["message"]


def test_they_are_tried_there_again_where_no_other_node_has_room() -> None:
    world = two_nodes()
    world.job("s", batch=False, replicas=4, resources=CPU)
    world.at(1000.0, world.stuck.clear)
    world.run(2000.0)

    assert len(world.answering("s")) == 4 and world.taking("s") == {"a", "b"}
    # Each one that can't start is followed after ten minutes, and by one.
    assert world.created("s") <= 4 + 2 * 2


def test_workers_of_a_pool_that_do_not_start_are_followed_elsewhere() -> None:
    world = two_nodes(pool={"min": 2, "max": 2})
    world.run(1000.0)

    assert len(world.answering("pool-m")) == 2


def test_the_successor_of_a_worker_that_failed_by_itself_does_not_crowd_the_others() -> None:
    """It avoided the node of the crash, so both workers were on one, whose death would have ended them all."""
    world = two_nodes(stuck="none")
    world.scripts["s"] = Script(outcomes=("Succeeded", "WorkerFailed", "Succeeded"), work=10.0)
    world.job("s", batch=False, replicas=2, resources=CPU)
    world.run(100.0)

    assert (world.created("s"), world.taking("s")) == (3, {"a", "b"})


def test_one_that_starts_after_all_is_kept() -> None:
    world = two_nodes()
    world.job("s", batch=False, replicas=2, resources=CPU)
    world.at(590.0, world.stuck.clear)
    world.run(1000.0)

    assert (world.created("s"), world.taking("s")) == (2, {"a", "b"})

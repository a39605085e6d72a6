"""Specs as users write them: what can't be is told, and an edit of it is enough to go on."""

from tests.simulation.cluster import Script
from tests.simulation.world import World


def condition(world: World, name: str, kind: str) -> tuple[str, str]:
    (found,) = [c for c in world.status(name)["conditions"] if c["type"] == kind]
    return found["status"], found["reason"]


def test_more_devices_than_a_worker_computes_on_are_refused_until_they_are_taken_back() -> None:
    world = World(scripts={"greedy": Script(work=5.0)})
    world.node("gpu-1", gpu=4)
    world.model(seconds={"gpu": 30.0})
    world.job("greedy", accelerator="gpu", resources={"limits": {"nvidia.com/gpu": "2"}})
    seen: list[tuple[str, str]] = []
    world.at(10.0, lambda: seen.append(condition(world, "greedy", "Stalled")))
    world.at(10.5, lambda: seen.append(("workers", str(len(world.workers("greedy"))))))
    world.change("greedy", at=20.0, resources={"limits": {"nvidia.com/gpu": 1}})
    world.run(until=60)

    assert seen == [("True", "InvalidSpec"), ("workers", "0")]
    assert world.status("greedy")["phase"] == "Succeeded"


def test_a_running_service_outlives_an_edit_that_asks_for_devices_it_can_not_have() -> None:
    world = World()
    world.node("gpu-1", gpu=4)
    world.model(seconds={"gpu": 30.0})
    world.job("web", batch=False, accelerator="gpu")
    world.change("web", at=20.0, resources={"limits": {"nvidia.com/gpu": "2"}})
    world.run(until=40)

    assert len(world.answering("web")) == 1
    assert condition(world, "web", "Accepted") == ("False", "InvalidSpec")


def test_a_scale_beyond_the_bounds_is_told_and_the_bound_holds() -> None:
    world = World()
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.job("web", batch=False, serve={"maxReplicas": 2})
    told: list[tuple[str, str]] = []
    for second in (15.0, 35.0, 55.0):
        world.at(second, lambda: told.append(condition(world, "web", "Accepted")))
    world.change("web", at=20.0, replicas=5)
    world.change("web", at=40.0, replicas=2)
    world.run(until=60)

    assert told == [("True", "Accepted"), ("True", "ReplicasLimited"), ("True", "Accepted")]
    assert len(world.answering("web")) == 2


def test_a_batch_that_is_scaled_says_that_it_runs_one_worker_and_goes_on() -> None:
    world = World(scripts={"one": Script(work=20.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.job("one")
    world.change("one", at=10.0, replicas=4)
    told: list[tuple[str, str]] = []
    world.at(12.0, lambda: told.append(condition(world, "one", "Accepted")))
    world.run(until=60)

    assert told == [("True", "ReplicasLimited")]
    assert (world.created("one"), world.status("one")["phase"]) == (1, "Succeeded")

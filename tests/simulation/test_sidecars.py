"""A mesh's proxy beside each worker, which never ends by itself: work ends all the same, and its place is free.

kubernetes/kubernetes#25908; the forms are those of Istio and Linkerd without native sidecars.
"""

from tests.simulation.cluster import Script
from tests.simulation.world import World


def meshed(*, cpu: int = 1, **scripts: Script) -> World:
    world = World(scripts=scripts)
    world.node("cpu-1", cpu=cpu)
    world.model(seconds={"cpu": 30.0})
    return world


WHOLE_NODE = {"requests": {"cpu": "1"}}


def test_the_end_of_the_worker_is_the_end_of_the_batch_and_the_next_one_has_its_place() -> None:
    world = meshed(first=Script(work=5.0, proxy=True), second=Script(work=5.0, proxy=True))
    for name in ("first", "second"):
        world.job(name, resources=WHOLE_NODE)
    world.run(until=60)

    assert [world.status(name)["phase"] for name in ("first", "second")] == ["Succeeded"] * 2
    assert [world.status(name)["attempts"] for name in ("first", "second")] == [1, 1]
    assert [world.workers(name) for name in ("first", "second")] == [[], []]


def test_a_batch_that_fails_beside_a_proxy_is_tried_as_often_as_it_may() -> None:
    world = meshed(bad=Script(work=2.0, outcomes=("WorkerFailed",), proxy=True))
    world.job("bad", maxAttempts=3, resources=WHOLE_NODE)
    world.run(until=200)

    assert (world.created("bad"), world.status("bad")["phase"]) == (3, "Failed")
    assert world.workers("bad") == []


def test_an_operator_that_dies_at_any_write_runs_no_batch_twice_for_its_proxy() -> None:
    for writes in range(1, 8):
        world = World(scripts={"once": Script(work=5.0, proxy=True)}, crash_after=(writes,))
        world.node("cpu-1")
        world.model(seconds={"cpu": 30.0})
        world.job("once")
        world.run(until=60)

        assert (world.created("once"), world.status("once")["phase"]) == (1, "Succeeded"), writes


def test_a_service_whose_worker_ends_beside_a_proxy_has_another_in_its_place() -> None:
    world = meshed(web=Script(work=20.0, outcomes=("WorkerFailed", "Succeeded"), proxy=True))
    world.job("web", batch=False, resources=WHOLE_NODE)
    world.run(until=120)

    assert world.created("web") == 2
    assert len(world.answering("web")) == 1
    assert len(world.workers("web")) == 1


def test_a_warm_worker_that_ends_beside_a_proxy_has_another_in_its_place() -> None:
    world = World(scripts={"m": Script(work=20.0, outcomes=("WorkerFailed", "Succeeded"), proxy=True)})
    world.node("cpu-1", cpu=1)
    world.model(seconds={"cpu": 30.0}, pool={"min": 1, "max": 1})
    world.run(until=120)

    assert world.model_status()["warmPool"]["ready"] == 1

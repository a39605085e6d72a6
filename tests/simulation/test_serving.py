"""A serving job is rolled out, with room beside the old workers and without; somebody always answers."""

import pytest

from tests.simulation.cluster import Script
from tests.simulation.world import World

SEEDS = range(6)


def a_roll_out(*, gpus: int, seed: int | None = None, script: Script | None = None, crash_always_after: int | None = None) -> World:
    world = World(seed=seed, scripts={"served": script or Script()}, crash_always_after=crash_always_after)
    for number in range(1, gpus + 1):
        world.node(f"gpu-{number}", gpu=1)
    world.model(versions=("1", "2"))
    world.job("served", batch=False, accelerator="gpu", replicas=2, modelVersion="1")
    world.change("served", at=30.0, modelVersion="2")
    world.watch_answering("served", since=20.0)
    return world.run(until=150)


def test_rollout_of_a_serving_job() -> None:
    world = a_roll_out(gpus=4)

    assert world.status("served")["phase"] == "Serving"
    assert world.least_answering["served"] == 2
    world.trace.check("rollout of a serving job")


def test_rollout_of_a_serving_job_without_room_beside() -> None:
    world = a_roll_out(gpus=2)

    assert world.status("served")["phase"] == "Serving"
    assert world.least_answering["served"] == 1
    world.trace.check("rollout of a serving job without room beside")


@pytest.mark.parametrize("gpus", [2, 3, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_where_a_roll_out_ends(gpus: int, seed: int) -> None:
    world = a_roll_out(gpus=gpus, seed=seed)

    assert world.final() == a_roll_out(gpus=gpus).final()
    assert world.least_answering["served"] >= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_roll_out_starts_no_worker_that_it_need_not(seed: int) -> None:
    assert a_roll_out(gpus=2, seed=seed).created("served") == 4
    assert a_roll_out(gpus=3, seed=seed).created("served") == 4


@pytest.mark.parametrize("gpus", [2, 3, 4])
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_restarts_do_not_disturb_a_roll_out(gpus: int, writes: int) -> None:
    world = a_roll_out(gpus=gpus, crash_always_after=writes)

    assert world.final() == a_roll_out(gpus=gpus).final()
    assert world.created("served") == 4
    assert world.least_answering["served"] >= 1


def test_a_broken_version_leaves_an_old_worker_answering() -> None:
    world = a_roll_out(gpus=2, script=Script(outcomes=("Succeeded", "Succeeded", "ModelCorrupt")))

    assert world.least_answering["served"] == 1
    assert world.status("served")["reason"] == "ModelCorrupt"


def test_scaling_up_and_down_and_to_zero() -> None:
    world = World()
    world.node("cpu-1")
    world.model()
    world.job("scaled", batch=False, accelerator="cpu", replicas=1, serve={"minReplicas": 0})
    for at, replicas in ((20.0, 3), (40.0, 1), (60.0, 0), (80.0, 2)):
        world.change("scaled", at=at, replicas=replicas)
    counts = []
    for at in (19.0, 39.0, 59.0, 79.0, 99.0):
        world.at(at, lambda: counts.append((len(world.living("scaled")), world.status("scaled")["readyReplicas"])))
    world.run(until=100)

    assert counts == [(1, 1), (3, 3), (1, 1), (0, 0), (2, 2)]
    world.trace.check("scaling up and down and to zero")


@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_a_roll_out_is_told_from_its_begin_to_its_end(gpus: int) -> None:
    """Who waits for the reason Serving waits for the end: it said Serving all along."""
    told = [line.split(" status ")[1] for line in a_roll_out(gpus=gpus).trace.lines if " status " in line]
    after = told[told.index("Serving/Serving, 2 of 2 ready") + 1 :]

    assert after[-1].startswith("Serving/Serving")
    assert not [line for line in after[:-1] if line.startswith(("Serving/Serving", "Serving/AddingWorkers"))]

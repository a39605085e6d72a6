"""The operator dies after a write, whichever: the next one goes on, starts nothing twice, and loses nothing."""

from functools import cache

import pytest

from tests.simulation.cluster import Script
from tests.simulation.world import World

BATCHES = ("plain", "due", "again")


def jobs(**how: object) -> World:
    world = World(scripts={"again": Script(work=5.0, outcomes=("WorkerFailed", "Succeeded"))}, **how)  # type: ignore[arg-type]
    world.node("cpu-1")
    world.node("gpu-1", gpu=1)
    world.model(seconds={"cpu": 30.0, "gpu": 10.0})
    world.job("plain", at=0.1, accelerator="cpu")
    world.job("due", at=0.2, accelerator="gpu", deadline_at=60)
    world.job("again", at=0.3, accelerator="cpu")
    world.job("serves", at=0.4, batch=False, accelerator="gpu", replicas=1)
    return world.run(until=300)


@cache
def undisturbed() -> World:
    return jobs()


def ends(world: World) -> dict[str, object]:
    """How each job ends, whatever befell the operator."""
    return {name: gist[0] for name, gist in world.final().items()}


def check(world: World) -> None:
    assert (
        ends(world) == ends(undisturbed()) == {"plain": "Succeeded", "due": "Succeeded", "again": "Succeeded", "serves": "Serving"}
    )
    assert {name: world.created(name) for name in BATCHES} == {name: undisturbed().created(name) for name in BATCHES}
    assert world.created("serves") == undisturbed().created("serves") == 1
    assert all(count == 1 for count in world.most_workers.values())
    assert {name: world.status(name)["failedAttempts"] for name in BATCHES} == {"plain": 0, "due": 0, "again": 1}


def test_operator_restarts_at_every_step_and_nothing_is_started_twice() -> None:
    world = jobs(crash_always_after=1)

    check(world)
    world.trace.check("operator restarts at every step")


@pytest.mark.parametrize("step", range(1, 25))
def test_one_restart_at_any_step_changes_nothing(step: int) -> None:
    check(jobs(crash_after=(step,)))


@pytest.mark.parametrize("seed", range(4))
def test_restarts_in_any_order_of_events_change_nothing(seed: int) -> None:
    check(jobs(seed=seed, crash_always_after=2))


def a_full_node(*, crash_after: tuple[int, ...] = ()) -> World:
    world = World(crash_after=crash_after)
    world.node("cpu-1", cpu=1)
    world.model(seconds={"cpu": 60.0})
    for number in range(6):
        world.job(f"job-{number}", at=0.1 + number / 100, accelerator="cpu")
    return world.run(until=30)


def test_a_restart_says_nothing_new_about_jobs_that_wait() -> None:
    before = a_full_node()
    # Two run and four wait, and nothing happens until the two are done: the operator dies with the last thing that was to say.
    after = a_full_node(crash_after=(before.writes.total(),))

    assert after.writes == before.writes

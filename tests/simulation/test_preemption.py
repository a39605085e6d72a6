"""Urgent work takes a place from work that can wait, on a simulated cluster: who makes room, for whom, and what it costs."""

import pytest

from inference_operator.settings import Settings
from tests.simulation.cluster import Script
from tests.simulation.world import World, writes_of

SEEDS = range(6)


def an_urgent_job_comes_late(seed: int | None = None, settings: Settings | None = None) -> World:
    world = World(
        seed=seed, scripts={"long": Script(work=100.0, items=100, resumes=True)}, settings=settings or Settings(workers=4)
    )
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("long", at=0.1, accelerator="gpu", deadline_at=400, items=100)
    world.job("urgent", at=20.0, accelerator="gpu", deadline_at=70)
    return world.run(until=300)


def test_one_gpu_a_long_job_and_a_late_urgent_one() -> None:
    world = an_urgent_job_comes_late()

    assert {name: gist[1] for name, gist in world.final().items()} == {"long": "Met", "urgent": "Met"}
    assert world.status("long")["preemptions"] == 1
    world.trace.check("one gpu a long job and a late urgent one")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_who_makes_room(seed: int) -> None:
    assert an_urgent_job_comes_late(seed).final() == an_urgent_job_comes_late().final()


def test_without_a_budget_nobody_makes_room() -> None:
    world = an_urgent_job_comes_late(settings=Settings(workers=4, preemptions_per_job=0))

    assert world.status("long").get("preemptions", 0) == 0
    assert {name: gist[1] for name, gist in world.final().items()} == {"long": "Met", "urgent": "Missed"}


def two_urgent_jobs_after_each_other(settings: Settings | None = None) -> World:
    scripts = {"long": Script(work=60.0, items=60, resumes=True)}
    world = World(scripts=scripts, settings=settings or Settings(workers=4))
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("long", at=0.1, accelerator="gpu", items=60)
    for number in range(5):
        world.job(f"urgent-{number}", at=20.0 + 60 * number, accelerator="gpu", deadline_at=62.0 + 60 * number)
    return world.run(until=600)


def test_no_job_is_asked_more_often_than_its_budget_allows() -> None:
    world = two_urgent_jobs_after_each_other(Settings(workers=4, preemptions_per_job=1))

    assert world.status("long")["preemptions"] == 1
    assert world.status("long")["phase"] == "Succeeded"


def test_who_made_room_goes_on_from_what_it_had_committed() -> None:
    world = two_urgent_jobs_after_each_other()

    assert world.status("long")["phase"] == "Succeeded"
    assert world.status("long")["progress"]["completed"] == 60
    assert world.created("long") == world.status("long")["preemptions"] + 1


def test_making_room_costs_few_writes() -> None:
    world = an_urgent_job_comes_late()
    progress = sum(" long " in line and "items" in line for line in world.trace.lines)

    assert writes_of(world, "long") - progress <= 9
    assert writes_of(world, "urgent") <= 6


@pytest.mark.parametrize("writes", range(1, 24))
def test_an_operator_that_dies_at_any_write_preempts_nobody_twice_for_one_job(writes: int) -> None:
    world = World(scripts={"long": Script(work=100.0, items=100, resumes=True)}, crash_after=(writes,))
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("long", at=0.1, accelerator="gpu", deadline_at=400, items=100)
    world.job("urgent", at=20.0, accelerator="gpu", deadline_at=75)
    world.run(until=300)

    assert world.status("long")["preemptions"] <= 1
    assert {name: gist[1] for name, gist in world.final().items()} == {"long": "Met", "urgent": "Met"}
    assert all(most <= 1 for most in world.most_workers.values())

"""Full clusters under virtual time: who makes room, who waits how long, and who is told at once that it is in vain."""

from datetime import datetime
from itertools import pairwise

import pytest

from tests.simulation.cluster import Script
from tests.simulation.virtual_time import START
from tests.simulation.world import World

SEEDS = range(6)


def seconds_of(text: str) -> float:
    """An instant of a status, in seconds of the simulation."""
    return (datetime.fromisoformat(text) - START).total_seconds()


def two_gpus_and_an_urgent_job(seed: int | None = None) -> World:
    world = World(
        seed=seed,
        scripts={
            "patient": Script(work=100.0, items=100, resumes=True),
            "tight": Script(work=150.0, items=150, resumes=True),
        },
    )
    world.node("gpu-1", gpu=1)
    world.node("gpu-2", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("patient", at=0.1, accelerator="gpu", deadline_at=500, items=100)
    world.job("tight", at=0.2, accelerator="gpu", deadline_at=300, items=150)
    world.job("third", at=0.3, accelerator="gpu", deadline_at=400)
    world.job("urgent", at=20.0, accelerator="gpu", deadline_at=70)
    return world.run(until=400)


def test_three_gpu_jobs_on_two_gpus_and_a_late_urgent_one() -> None:
    world = two_gpus_and_an_urgent_job()

    assert {name: gist[1] for name, gist in world.final().items()} == dict.fromkeys(("patient", "tight", "third", "urgent"), "Met")
    assert [world.status(name).get("preemptions", 0) for name in ("patient", "tight")] == [1, 0]
    world.trace.check("three gpu jobs on two gpus and a late urgent one")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_who_has_the_most_slack(seed: int) -> None:
    assert two_gpus_and_an_urgent_job(seed).final() == two_gpus_and_an_urgent_job().final()


def a_full_cluster(seed: int | None = None, *, until: float = 200.0) -> World:
    world = World(seed=seed)
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    for number in range(5):
        world.job(f"job-{number}", at=0.1 + 0.2 * number, accelerator="gpu", deadline_at=60.0 + 50 * number)
    return world.run(until=until)


def test_a_full_cluster_where_everyone_waits() -> None:
    world = a_full_cluster()

    assert {gist[1] for gist in world.final().values()} == {"Met"}
    world.trace.check("a full cluster where everyone waits")


def test_everyone_who_waits_is_told_its_place_and_its_start() -> None:
    world = a_full_cluster(until=10.0)
    told = [world.status(f"job-{number}")["queue"] for number in range(1, 5)]

    assert [one["position"] for one in told] == [1, 2, 3, 4]
    starts = [seconds_of(one["expectedStartTime"]) for one in told]
    assert starts == sorted(starts)
    assert all(30 <= later - sooner <= 36 for sooner, later in pairwise(starts))


def test_the_start_that_was_told_is_about_the_start_that_came() -> None:
    told = seconds_of(a_full_cluster(until=10.0).status("job-2")["queue"]["expectedStartTime"])
    came = seconds_of(a_full_cluster().status("job-2")["startTime"])

    assert abs(told - came) <= 10


def a_high_priority_late_comer(seed: int | None = None) -> World:
    world = World(seed=seed)
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("runs", at=0.1, accelerator="gpu", deadline_at=50)
    world.job("waits", at=0.3, accelerator="gpu", deadline_at=90)
    world.job("boss", at=20.0, accelerator="gpu", deadline_at=200, priority=100)
    return world.run(until=150)


def test_a_high_priority_late_comer() -> None:
    world = a_high_priority_late_comer()

    assert world.status("boss")["startTime"] < world.status("waits")["startTime"]
    assert world.status("runs").get("preemptions", 0) == 0
    world.trace.check("a high priority late comer")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_who_goes_first(seed: int) -> None:
    assert a_high_priority_late_comer(seed).final() == a_high_priority_late_comer().final()


def an_infeasible_deadline(seed: int | None = None) -> World:
    world = World(seed=seed)
    world.node("cpu-1")
    world.node("gpu-1", gpu=1)
    world.model(seconds={"cpu": 300.0, "gpu": 30.0})
    world.job("in-vain", at=5.0, deadline_at=20, deadlinePolicy="Firm")
    world.job("possible", at=5.0, deadline_at=60, deadlinePolicy="Firm")
    return world.run(until=60)


def test_an_infeasible_deadline_is_told_at_once() -> None:
    world = an_infeasible_deadline()
    (refused,) = [line for line in world.trace.lines if "warning DeadlineInfeasible" in line]

    assert world.created("in-vain") == 0
    assert world.status("possible")["deadline"]["outlook"] == "Met"
    # It comes at 5 s; the GPU, quicker than the CPU, takes 30 s and 3 s to load.
    assert "set deadline to 2026-04-02T12:00:39Z or later" in refused
    assert refused.split()[0] == "5.1"
    world.trace.check("an infeasible deadline is told at once")

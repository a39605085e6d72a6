"""Batches with deadlines on a simulated cluster: who runs when, who is late, and what each is told."""

from datetime import timedelta

import pytest

from inference_operator.api.schema import rfc3339
from tests.simulation.cluster import Script
from tests.simulation.virtual_time import START
from tests.simulation.world import World, writes_of

SEEDS = range(6)


def three_jobs_on_two_gpus(seed: int | None = None) -> World:
    world = World(seed=seed)
    world.node("gpu-1", gpu=1)
    world.node("gpu-2", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("first", at=0.1, accelerator="gpu", deadline_at=60)
    world.job("second", at=0.2, accelerator="gpu", deadline_at=50)
    world.job("third", at=0.3, accelerator="gpu", deadline_at=60.5)
    return world.run(until=120)


def test_three_gpu_jobs_two_gpus_deadline_passes() -> None:
    world = three_jobs_on_two_gpus()

    assert {name: gist[1] for name, gist in world.final().items()} == {"first": "Met", "second": "Met", "third": "Missed"}
    world.trace.check("three gpu jobs two gpus deadline passes")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_who_is_late(seed: int) -> None:
    assert three_jobs_on_two_gpus(seed).final() == three_jobs_on_two_gpus().final()


def firm_jobs(seed: int | None = None) -> World:
    world = World(seed=seed)
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("runs", at=0.1, accelerator="gpu", deadline_at=40, deadlinePolicy="Firm")
    world.job("waits", at=0.3, accelerator="gpu", deadline_at=50, deadlinePolicy="Firm")
    world.job("too-late", at=0.5, accelerator="gpu", deadline_at=10, deadlinePolicy="Firm")
    return world.run(until=90)


def test_firm_work_that_waits_ends_when_the_first_measurement_says_that_it_can_not_be_on_time() -> None:
    world = World(scripts={"first": Script(work=60.0)})
    world.node("gpu-1", gpu=1)
    world.model()
    world.job("first", accelerator="gpu")
    world.job("firm", at=1, accelerator="gpu", deadline_at=50, deadlinePolicy="Firm")
    world.run(until=10)

    assert (world.status("first")["phase"], world.status("firm")["phase"]) == ("Running", "Failed")


def test_firm_work_that_can_not_be_on_time_ends_before_it_touches_a_device() -> None:
    world = firm_jobs()

    assert [world.created(name) for name in ("runs", "waits", "too-late")] == [1, 0, 0]
    world.trace.check("firm work that can not be on time")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_what_firm_jobs_are_told(seed: int) -> None:
    assert firm_jobs(seed).final() == firm_jobs().final()


def test_firm_work_whose_items_nobody_has_counted_ends_when_its_worker_counts_too_many() -> None:
    world = World()
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("firm", items=None, accelerator="gpu", deadline_at=20, deadlinePolicy="Firm")
    world.run(until=10)

    status = world.status("firm")
    assert (status["phase"], status["lastAttempt"]["reason"]) == ("Failed", "TooManyItems")
    assert status["progress"] == {"total": 30, "completed": 0, "failed": 0}


@pytest.mark.parametrize(("later", "phase", "workers"), [(50, "Failed", 1), (120, "Succeeded", 2)])
def test_firm_work_that_was_counted_is_judged_before_it_touches_a_device_again(later: float, phase: str, workers: int) -> None:
    world = World()
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("firm", items=None, accelerator="gpu", deadline_at=20, deadlinePolicy="Firm")
    world.change("firm", at=30, deadline=rfc3339(START + timedelta(seconds=later)))
    world.run(until=150)

    assert (world.status("firm")["phase"], world.created("firm")) == (phase, workers)


def test_what_a_firm_deadline_stops_tells_how_its_attempt_ended_and_what_it_took() -> None:
    world = World(scripts={"firm": Script(work=60.0)})
    world.node("cpu-1")
    world.model()
    world.job("firm", accelerator="cpu", deadline_at=30, deadlinePolicy="Firm")
    world.run(until=60)

    status = world.status("firm")
    assert (status["reason"], status["lastAttempt"]["outcome"]) == ("DeadlineExceeded", "Disrupted")
    assert status["lastAttempt"]["reason"] == "DeadlineExceeded" and status["energy"]["joules"] > 0


def an_auto_job(*, deadline_at: float) -> World:
    world = World()
    world.node("cpu-1")
    world.node("gpu-1", gpu=1)
    world.model(seconds={"cpu": 100.0, "gpu": 20.0})
    world.job("auto", deadline_at=deadline_at)
    return world.run(until=5)


@pytest.mark.parametrize(("deadline_at", "accelerator"), [(200, "cpu"), (60, "gpu")])
def test_an_auto_job_goes_to_the_cheapest_class_that_is_in_time(deadline_at: float, accelerator: str) -> None:
    assert an_auto_job(deadline_at=deadline_at).status("auto")["placement"]["accelerator"] == accelerator


def a_quiet_job() -> World:
    world = World()
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.job("quiet")
    return world.run(until=4000)


def test_a_job_without_a_deadline_costs_few_writes_and_then_none() -> None:
    world = a_quiet_job()

    assert world.status("quiet")["phase"] == "Succeeded"
    assert writes_of(world, "quiet") <= 5


def test_a_job_with_a_deadline_costs_few_writes_too() -> None:
    world = three_jobs_on_two_gpus()

    assert all(writes_of(world, name) <= 5 for name in ("first", "second"))


def test_that_a_job_waits_and_that_it_is_late_are_news_too() -> None:
    assert writes_of(three_jobs_on_two_gpus(), "third") <= 7


def test_work_that_goes_as_measured_is_never_said_to_be_at_risk() -> None:
    world = three_jobs_on_two_gpus()

    assert not [line for line in world.trace.lines if " first " in line and "AtRisk" in line]


@pytest.mark.parametrize("late", [0.1, 4.6])
@pytest.mark.parametrize("batch", [True, False], ids=["batch", "service"])
def test_what_comes_just_after_its_deadline_is_never_said_to_be_in_time_for_it(*, batch: bool, late: float) -> None:
    """The news of an end may be on the way for some seconds, but not of one that was missed before it began."""
    world = World(scripts={"late": Script(work=30.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.job("late", at=2 + late, batch=batch, deadline_at=2)
    world.run(until=20)

    told = [line for line in world.trace.lines if " late " in line and " status " in line]
    assert len(told) > 1 and all("Missed" in line for line in told)


def test_a_firm_batch_whose_deadline_passes_in_the_queue_ends_there_and_then() -> None:
    world = World(scripts={"runs": Script(work=300.0)})
    # Its speed is not measured before, or it would end as infeasible.
    world.node("gpu-1", gpu=1)
    world.model()
    world.job("runs", accelerator="gpu", at=0.1)
    world.job("waits", accelerator="gpu", at=0.5, deadline_at=2, deadlinePolicy="Firm")
    world.run(until=10)

    status = world.status("waits")
    assert (status["phase"], status["reason"], status["deadline"]["outlook"]) == ("Failed", "DeadlineExceeded", "Missed")
    assert (status.get("queue"), status["completionTime"]) == (None, rfc3339(START + timedelta(seconds=2)))

"""Warm pools in virtual time: jobs on workers that are there already, and what befalls both."""

import pytest

from tests.simulation.cluster import Script
from tests.simulation.world import World, writes_of

BURST = [f"job-{number:02}" for number in range(20)]


def all_succeeded(world: World, names: list[str]) -> None:
    assert {name: world.status(name)["phase"] for name in names} == dict.fromkeys(names, "Succeeded")
    assert {name: world.status(name)["failedAttempts"] for name in names} == dict.fromkeys(names, 0)


def a_burst(*, until: float = 60, **how: object) -> World:
    world = World(scripts={name: Script(work=1.0) for name in BURST}, **how)  # type: ignore[arg-type]
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 2, "max": 2})
    for number, name in enumerate(BURST):
        world.job(name, at=10 + number / 100, accelerator="cpu")
    return world.run(until=until)


def check_burst(world: World) -> None:
    all_succeeded(world, BURST)
    assert world.ledger.begun == world.ledger.done == dict.fromkeys(BURST, 1)
    assert {name: world.status(name)["attempts"] for name in BURST} == dict.fromkeys(BURST, 1)
    assert not any(world.workers(name) for name in BURST)
    assert world.most_workers == {"pool-m": 2}


def test_a_burst_of_twenty_jobs_on_a_pool_of_two() -> None:
    world = a_burst()

    check_burst(world)
    assert world.created("pool-m") == 2
    world.trace.check("a burst of twenty jobs on a pool of two")


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_events_does_not_change_the_outcome(seed: int) -> None:
    check_burst(a_burst(seed=seed))


def test_the_operator_crashes_at_every_write_and_all_is_done_once() -> None:
    # A life ends with its first write, and some fifty are needed.
    check_burst(a_burst(crash_always_after=1, until=200))


@pytest.mark.parametrize("step", range(1, 30, 3))
def test_one_crash_at_any_write_changes_nothing(step: int) -> None:
    check_burst(a_burst(crash_after=(step,)))


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_whose_warm_worker_is_deleted_goes_on_once_that_has_ended(seed: int) -> None:
    """The end of a worker is the only news that such a batch waits for; it would be looked at by the next resync alone."""
    world = World(seed=seed, scripts={"batch": Script(work=30.0, resumes=True)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0}, pool={"min": 1, "max": 1})
    world.job("batch", at=10.0, accelerator="cpu")
    world.at(25.0, lambda: world.delete_pods("pool-m", 1))
    world.run(until=80)

    all_succeeded(world, ["batch"])
    assert world.status("batch")["attempts"] == 2


def test_from_zero_and_back_to_zero() -> None:
    world = World(scripts={"one": Script(work=1.0), "two": Script(work=1.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 0, "max": 1, "idleSeconds": 20})
    world.job("one", at=1, accelerator="cpu")
    world.job("two", at=15, accelerator="cpu")
    world.run(until=120)

    all_succeeded(world, ["one", "two"])
    assert world.created("pool-m") == 1
    assert world.workers("pool-m") == []
    world.trace.check("from zero and back to zero")


def test_a_short_job_on_a_worker_that_has_been_heard_costs_two_writes() -> None:
    world = World(scripts={"job": Script(work=0.2)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 0.2}, pool={"min": 1, "max": 1})
    world.job("job", at=10, accelerator="cpu")
    world.run(until=30)

    all_succeeded(world, ["job"])
    assert writes_of(world, "job") == 2


def test_the_node_of_a_warm_worker_is_lost_in_mid_task() -> None:
    world = World(scripts={"job": Script(work=30.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0}, pool={"min": 1, "max": 1})
    world.job("job", at=10, accelerator="cpu")
    world.at(20, lambda: world.cluster.lose("cpu-1"))
    world.node("cpu-2", at=20.5)
    world.run(until=120)

    all_succeeded(world, ["job"])
    assert world.status("job")["attempts"] == 2
    assert world.ledger.begun["job"] == 2
    world.trace.check("the node of a warm worker is lost in mid task")


def test_a_deadline_that_the_pool_can_not_meet_gets_a_pod_of_its_own() -> None:
    world = World(scripts={"long": Script(work=60.0), "due": Script(work=10.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 10.0}, pool={"min": 1, "max": 1})
    world.job("long", at=10, accelerator="cpu", items=180)
    world.job("due", at=12, accelerator="cpu", deadline_at=40)
    world.run(until=120)

    all_succeeded(world, ["long", "due"])
    assert world.created("due") == 1
    assert world.created("long") == 0
    assert world.status("due")["deadline"]["outlook"] == "Met"
    world.trace.check("a deadline that the pool can not meet")


def test_a_deleted_jobs_task_is_stopped_and_the_next_one_begins() -> None:
    world = World(scripts={"gone": Script(work=600.0), "next": Script(work=1.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 1, "max": 1})
    world.job("gone", at=10, accelerator="cpu")
    world.job("next", at=11, accelerator="cpu")
    world.at(15, lambda: world.delete_job("gone"))
    world.run(until=20)

    all_succeeded(world, ["next"])


def test_the_task_of_a_job_that_was_deleted_while_nobody_looked_is_stopped_too() -> None:
    world = World(scripts={"gone": Script(work=600.0), "next": Script(work=1.0)}, crash_after=(8,))
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 1, "max": 1})
    world.job("gone", at=10, accelerator="cpu")
    world.at(11.5, lambda: world.delete_job("gone"))
    world.job("next", at=13, accelerator="cpu")
    world.run(until=60)

    told = [line.split(maxsplit=2)[2] for line in world.trace.lines]
    assert told.index("gone       is deleted") == told.index("operator   crashes") + 1
    all_succeeded(world, ["next"])


@pytest.mark.parametrize("step", range(1, 15))
def test_who_forgets_that_a_task_was_told_to_stop_learns_it_from_the_worker(step: int) -> None:
    world = World(scripts={"job": Script(work=30.0, stop=8.0), "first": Script(work=5.0)}, crash_after=(step,))
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0}, pool={"min": 2, "max": 2})
    # It takes the first worker, which is free again when the other one is told to stop.
    world.job("first", at=9, accelerator="cpu")
    world.job("job", at=10, accelerator="cpu")
    world.change("job", at=20, input={"uri": "pvc://data/other.npy", "items": 30})
    world.run(until=120)

    all_succeeded(world, ["job"])
    assert world.status("job")["attempts"] == 2


@pytest.mark.parametrize("spec", [{"suspend": True}, {"batchSize": 2}], ids=["suspend", "spec"])
def test_a_task_is_stopped_and_its_job_goes_on_later(spec: dict[str, object]) -> None:
    world = World(scripts={"job": Script(work=30.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0}, pool={"min": 2, "max": 2})
    world.job("job", at=10, accelerator="cpu")
    world.change("job", at=20, **spec)
    if "suspend" in spec:
        world.change("job", at=20.2, suspend=False)
    world.run(until=120)

    all_succeeded(world, ["job"])
    assert world.status("job")["attempts"] == 2


def test_a_suspended_job_leaves_the_worker_to_others_and_is_left_alone() -> None:
    world = World(scripts={"job": Script(work=30.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0}, pool={"min": 0, "max": 1, "idleSeconds": 5})
    world.job("job", at=1, accelerator="cpu")
    world.change("job", at=20, suspend=True)
    world.run(until=120)

    assert world.status("job")["phase"] == "Suspended"
    assert world.workers("pool-m") == []


def test_a_pool_without_room_does_not_say_so_again_and_again() -> None:
    world = World()
    world.node("cpu-1", cpu=0)
    world.model(seconds={"cpu": 1.0}, pool={"min": 0, "max": 1})
    world.job("job", at=1, accelerator="cpu")
    world.run(until=60)

    assert world.writes["inferencemodels", "m"] <= 3


def test_a_pool_that_failed_is_tried_again_when_its_time_has_come() -> None:
    world = World(scripts={"pool-m": Script(outcomes=("ModelNotFound", "Succeeded")), "early": Script(work=1.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 1, "max": 1})
    world.run(until=700)

    assert world.created("pool-m") == 2
    assert len(world.answering("pool-m")) == 1


def a_shared_world(*, memory: str = "512Mi", **scripts: Script) -> World:
    """A warm worker of `m` that takes co-located models, and a measured model `n` without one."""
    world = World(scripts=dict(scripts))
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 1, "max": 1, "sharing": "SameNamespace"}, memory=memory)
    world.model("n", seconds={"cpu": 1.0}, digest="sha256:" + "b" * 64)
    return world


def test_a_job_on_another_model_is_a_colocated_model_and_the_next_one_finds_its_model_loaded() -> None:
    world = a_shared_world(first=Script(work=1.0), second=Script(work=1.0), own=Script(work=1.0))
    world.job("first", at=10, model="n", accelerator="cpu")
    world.job("second", at=20, model="n", accelerator="cpu")
    world.job("own", at=30, accelerator="cpu")
    world.run(until=60)

    all_succeeded(world, ["first", "second", "own"])
    assert [world.created(name) for name in ("first", "second", "own")] == [0, 0, 0]
    costs = {name: world.status(name)["placement"]["cost"]["switchSeconds"] for name in ("first", "second", "own")}
    assert costs == {"first": 3.0, "second": 0.0, "own": 0.0}
    world.trace.check("a job on another model is co-located")


def test_a_colocated_model_that_does_not_fit_gets_a_worker_of_its_own() -> None:
    world = a_shared_world(memory="150M", job=Script(work=1.0))
    world.job("job", at=10, model="n", accelerator="cpu")
    world.run(until=60)

    all_succeeded(world, ["job"])
    assert world.created("job") == 1


def test_a_colocated_model_whose_deadline_the_host_can_not_meet_gets_a_worker_of_its_own() -> None:
    world = a_shared_world(long=Script(work=60.0), due=Script(work=1.0))
    world.job("long", at=10, accelerator="cpu", items=1800)
    world.job("due", at=12, model="n", accelerator="cpu", deadline_at=30)
    world.run(until=120)

    all_succeeded(world, ["long", "due"])
    assert world.created("due") == 1
    assert world.status("due")["deadline"]["outlook"] == "Met"


def test_a_colocated_model_that_failed_is_tried_again_on_a_worker_of_its_own() -> None:
    world = a_shared_world(job=Script(work=1.0, outcomes=("OutOfMemory", "Succeeded")))
    world.job("job", at=10, model="n", accelerator="cpu")
    world.run(until=120)

    assert world.status("job")["phase"] == "Succeeded"
    assert (world.status("job")["failedAttempts"], world.created("job")) == (1, 1)


def test_the_end_of_a_worker_counts_against_the_task_that_it_ran_alone() -> None:
    scripts = {"pool-m": Script(work=20.0, outcomes=("OutOfMemory", "Succeeded")), "runs": Script(work=10.0)}
    world = World(scripts={**scripts, "waits": Script(work=1.0), "waits-too": Script(work=1.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 0.1}, pool={"min": 1, "max": 1})
    for number, name in enumerate(("runs", "waits", "waits-too")):
        world.job(name, at=20 + number / 10, accelerator="cpu")
    world.run(until=120)

    assert world.created("pool-m") == 2
    assert {name: world.status(name)["failedAttempts"] for name in ("runs", "waits", "waits-too")} == {
        "runs": 1,
        "waits": 0,
        "waits-too": 0,
    }
    assert {world.status(name)["phase"] for name in ("runs", "waits", "waits-too")} == {"Succeeded"}


@pytest.mark.parametrize("outcome", ["ModelNotFound", "ModelUnreachable"])
def test_a_pool_from_zero_that_failed_holds_nobody_up_and_is_tried_again_later(outcome: str) -> None:
    world = World(scripts={"pool-m": Script(outcomes=(outcome, "Succeeded")), "early": Script(work=1.0), "late": Script(work=1.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 1.0}, pool={"min": 0, "max": 1})
    world.job("early", at=1, accelerator="cpu")
    world.job("late", at=400, accelerator="cpu")
    world.run(until=450)

    all_succeeded(world, ["early", "late"])
    assert (world.created("early"), world.created("late"), world.created("pool-m")) == (1, 0, 2)
    assert "message" not in world.model_status()["warmPool"]


def test_a_pool_whose_workers_end_soon_after_they_answer_backs_off() -> None:
    world = World(scripts={"pool-m": Script(start=1.0, load=1.0, work=2.0, items=1, outcomes=("OutOfMemory",))})
    world.node("cpu-1")
    world.model(pool={"min": 1, "max": 1})
    world.run(until=1200)

    assert 14 <= world.created("pool-m") <= 17

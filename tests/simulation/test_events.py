"""What `kubectl describe` tells of a job: one event for each transition, none for each look, whoever is killed in between."""

import pytest

from tests.simulation.cluster import Script
from tests.simulation.test_serving import a_roll_out
from tests.simulation.world import World

LONG = Script(work=100.0, items=100, resumes=True)


def told(world: World, name: str) -> list[tuple[str, str, str]]:
    """A job's events in order: type, reason, note."""
    mine = [raw for raw in world.api.all("events").values() if raw["regarding"]["name"] == name]
    return [(raw["type"], raw["reason"], raw["note"]) for raw in sorted(mine, key=lambda raw: raw["eventTime"])]


def reasons(world: World, name: str) -> list[str]:
    return [reason for _, reason, _ in told(world, name)]


def an_urgent_job_comes_late(crash_always_after: int | None = None) -> World:
    world = World(scripts={"long": LONG}, crash_always_after=crash_always_after)
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("long", at=0.1, accelerator="gpu", deadline_at=400, items=100)
    world.job("urgent", at=20.0, accelerator="gpu", deadline_at=70)
    return world.run(until=300)


def test_a_batch_that_makes_room_is_placed_started_preempted_placed_resumed_and_succeeds() -> None:
    world = an_urgent_job_comes_late()

    assert reasons(world, "long") == ["Placed", "Started", "Preempted", "Placed", "Resumed", "Succeeded"]
    assert reasons(world, "urgent") == ["Placed", "Started", "Succeeded"]
    assert {kind for kind, _, _ in told(world, "long")} == {"Normal"}
    assert told(world, "urgent")[0][2] == "Placed attempt 1: gpu on node gpu-1"


@pytest.mark.parametrize("writes", [3, 4, 5, 7])
def test_an_operator_that_dies_again_and_again_tells_nothing_twice(writes: int) -> None:
    found = told(an_urgent_job_comes_late(crash_always_after=writes), "long")

    assert len(found) == len(set(found))
    # What was about to be told when it died may be lost: conditions say the same.
    assert [reason for _, reason, _ in found].count("Preempted") <= 1


def test_a_service_tells_that_it_started_and_that_it_is_rolled_out_once() -> None:
    found = reasons(a_roll_out(gpus=4), "served")

    assert [found.count(reason) for reason in ("Placed", "Started", "RolledOut")] == [4, 1, 1]
    assert set(found) == {"Placed", "Started", "RolledOut"}


@pytest.mark.parametrize("gpus", [2, 3])
def test_a_roll_out_without_room_beside_tells_its_end_too(gpus: int) -> None:
    """The last old worker makes room before its successor is ready."""
    assert reasons(a_roll_out(gpus=gpus), "served").count("RolledOut") == 1


def test_a_service_of_one_worker_that_makes_room_for_its_successor_is_rolled_out_once() -> None:
    world = World()
    world.node("gpu-1", gpu=1)
    world.model(versions=("1", "2"))
    world.job("served", batch=False, accelerator="gpu", modelVersion="1")
    world.change("served", at=30.0, modelVersion="2")
    world.at(60.0, lambda: world.delete_pods("served", 1))
    world.run(until=100)

    assert reasons(world, "served").count("RolledOut") == 1


def test_a_service_tells_of_each_change_of_its_size() -> None:
    world = World()
    world.node("gpu-1", gpu=8)
    world.model()
    world.job("served", batch=False, accelerator="gpu", replicas=1)
    world.change("served", at=30.0, replicas=3)
    world.change("served", at=60.0, replicas=2)
    world.run(until=120)

    scaled = [(reason, note) for _, reason, note in told(world, "served") if reason.startswith("Scaled")]
    assert scaled == [("ScaledUp", "Scaled up from 1 to 3 workers"), ("ScaledDown", "Scaled down from 3 to 2 workers")]


def test_a_job_that_only_waits_has_nothing_to_tell() -> None:
    world = World()
    world.node("cpu-1", cpu=1)
    world.model(seconds={"gpu": 1.0})
    world.job("waits", accelerator="gpu")
    world.run(until=120)

    assert told(world, "waits") == []


def test_a_batch_that_has_committed_nothing_starts_again_and_resumes_nothing() -> None:
    world = World(scripts={"batch": Script(work=20.0, outcomes=("WorkerFailed", "Succeeded"))})
    world.node("cpu-1")
    world.model()
    world.job("batch", accelerator="cpu")
    world.run(until=120)

    assert [(reason, note) for _, reason, note in told(world, "batch") if reason in ("Started", "Resumed")] == [
        ("Started", "Started attempt 1 on node cpu-1"),
        ("Started", "Started attempt 2 on node cpu-1"),
    ]


def test_a_batch_that_ends_before_anybody_has_seen_it_run_has_started_all_the_same() -> None:
    world = World(scripts={"short": Script(start=0.0, load=0.0, work=0.01)})
    world.node("cpu-1")
    world.model()
    world.job("short", accelerator="cpu")
    world.run(until=60)

    assert reasons(world, "short") == ["Placed", "Started", "Succeeded"]


def test_what_its_user_stops_and_lets_go_on_says_so_once() -> None:
    world = World(scripts={"batch": LONG})
    world.node("cpu-1")
    world.model()
    world.job("batch", accelerator="cpu", items=100)
    world.job("served", batch=False, accelerator="cpu")
    for name in ("batch", "served"):
        world.change(name, at=30.0, suspend=True)
        world.change(name, at=60.0, suspend=False)
    world.run(until=200)

    found = {name: [each for each in reasons(world, name) if each != "Placed"] for name in ("batch", "served")}
    assert found == {"batch": ["Started", "Suspended", "Resumed", "Succeeded"], "served": ["Started", "Suspended", "Resumed"]}


def test_a_batch_that_is_suspended_in_the_queue_has_nothing_to_resume() -> None:
    world = World(scripts={"batch": Script(work=5.0)})
    world.node("cpu-1")
    world.model()
    world.job("batch", accelerator="cpu", suspend=True)
    world.change("batch", at=20.0, suspend=False)
    world.run(until=60)

    assert reasons(world, "batch") == ["Suspended", "Placed", "Started", "Succeeded"]

"""An InferenceModel is deleted under its jobs: what has begun goes on and is kept up, what has not waits and says so."""

import random
from functools import partial

import pytest

from tests.simulation.api import At
from tests.simulation.cluster import Script, config_of
from tests.simulation.world import World

SEEDS = range(4)
DELETED_AT = 20.0


def conditions(world: World, name: str) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in world.status(name)["conditions"]}


def a_world(*, seed: int | None = None, crash_always_after: int | None = None) -> World:
    world = World(
        seed=seed,
        scripts={"batch": Script(work=30.0, resumes=True), "waits": Script(work=5.0)},
        crash_always_after=crash_always_after,
    )
    world.node("cpu-1")
    world.node("cpu-2")
    world.model(seconds={"cpu": 30.0}, memory="2Gi")
    world.job("served", batch=False, accelerator="cpu", replicas=2)
    world.job("batch", accelerator="cpu")
    world.job("waits", accelerator="cpu", nodeSelector={"zone": "moon"})
    world.at(DELETED_AT, lambda: world.delete_model("m"))
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_service_is_kept_up_and_says_that_its_model_is_gone(seed: int) -> None:
    world = a_world(seed=seed)
    world.watch_answering("served", since=15.0)
    # One of its workers, and later both at once.
    world.at(30.0, lambda: world.delete_pods("served", 1))
    world.at(60.0, lambda: world.delete_pods("served", 2))
    world.run(until=100)

    assert (world.status("served")["phase"], world.status("served")["readyReplicas"]) == ("Serving", 2)
    assert conditions(world, "served") == {
        "Accepted": ("True", "ModelDeleted"),
        "Placed": ("True", "Placed"),
        "Ready": ("True", "Serving"),
    }
    assert {config_of(pod).model.uri for pod in world.answering("served")} == {"file:///models/1.onnx"}
    # Two at first, and one for each that was deleted: the deletion alone replaces none.
    assert world.created("served") == 5


@pytest.mark.parametrize("writes", [1, 2])
def test_a_new_operator_keeps_it_up_as_well(writes: int) -> None:
    world = a_world(crash_always_after=writes)
    world.at(40.0, lambda: world.delete_pods("served", 2))
    world.run(until=100)

    assert (world.status("served")["phase"], world.status("served")["readyReplicas"]) == ("Serving", 2)
    assert conditions(world, "served")["Accepted"] == ("True", "ModelDeleted")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_that_runs_ends_though_its_worker_is_lost_meanwhile(seed: int) -> None:
    world = a_world(seed=seed)
    world.at(25.0, lambda: world.delete_pods("batch", 1))
    world.run(until=100)

    assert (world.status("batch")["phase"], world.status("batch")["attempts"]) == ("Succeeded", 2)
    assert "resolvedModel" not in world.status("batch")


def test_a_batch_that_has_not_begun_waits_for_its_model_and_then_runs() -> None:
    world = a_world()
    told: list[object] = []
    world.at(40.0, lambda: told.append(conditions(world, "waits")))
    world.change("waits", at=41.0, nodeSelector={})
    world.at(50.0, lambda: told.append(world.status("waits")["reason"]))
    world.at(51.0, lambda: world.put_model("m"))
    world.run(until=100)

    waits = {"Accepted": ("False", "ModelUnknown"), "Ready": ("False", "ModelUnknown"), "Reconciling": ("True", "ModelUnknown")}
    assert told == [waits, "ModelUnknown"]
    assert world.status("waits")["phase"] == "Succeeded"


def test_a_task_on_a_warm_worker_of_the_model_goes_on_in_a_pod_of_its_own() -> None:
    """The pool belongs to the model and goes with it."""
    world = World(scripts={"batch": Script(work=30.0, resumes=True)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0}, pool={"min": 1, "max": 1})
    world.job("batch", at=10.0, accelerator="cpu")
    world.at(25.0, lambda: world.delete_model("m"))
    world.run(until=120)

    assert (world.status("batch")["phase"], world.status("batch")["attempts"]) == ("Succeeded", 2)
    assert world.created("batch") == 1


def test_a_model_counts_its_jobs_and_is_written_rarely() -> None:
    """A burst of jobs must not become a burst of writes to their model (kubernetes-sigs/kueue#8095)."""
    world = World(scripts={f"job-{n}": Script(work=5.0) for n in range(30)})
    world.node("cpu-1", cpu=64)
    world.model(seconds={"cpu": 5.0})
    for number in range(30):
        world.job(f"job-{number}", at=10.0 + number, accelerator="cpu")
    seen: list[object] = []
    world.at(5.0, lambda: seen.append(world.model_status()["conditions"][1]["reason"]))
    world.at(10.5, lambda: seen.append(world.model_status()["conditions"][1]["reason"]))
    world.at(9.9, world.writes.clear)
    world.run(until=200)

    assert seen == ["NotUsed", "UsedByJobs"]
    status = world.model_status()
    assert (status["usage"]["jobs"], status["conditions"][1]["reason"]) == (0, "NotUsed")
    assert status["observedGeneration"] == world.api.objects[At("inferencemodels", "default", "m")]["metadata"]["generation"]
    assert world.writes["inferencemodels", "m"] <= 10


def test_a_queued_job_past_its_deadline_has_missed_it_though_its_model_is_deleted() -> None:
    world = World(scripts={"runs": Script(work=300.0)})
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("runs", accelerator="gpu")
    world.job("waits", at=1, accelerator="gpu", deadline_at=10)
    world.at(30, lambda: world.delete_model("m"))
    world.run(until=60)

    status = world.status("waits")
    assert (status["reason"], status["deadline"]["outlook"], status.get("queue")) == ("ModelUnknown", "Missed", None)


def test_a_job_that_waits_for_its_model_misses_its_deadline_as_it_passes() -> None:
    world = World()
    world.node("cpu-1")
    world.job("waits", deadline_at=10)
    world.run(until=15)

    assert world.status("waits")["deadline"]["outlook"] == "Missed"


def test_a_model_that_is_applied_while_it_is_there_stays_the_same_object() -> None:
    world = a_world()
    uids: list[object] = []
    at = At("inferencemodels", "default", "m")
    for seconds in (30.0, 31.0, 32.0):
        world.at(seconds, lambda: world.put_model("m"))
        world.at(seconds + 0.5, lambda: uids.append(world.api.objects[at]["metadata"]["uid"]))
    world.run(until=100)

    assert (len(uids), len(set(uids))) == (3, 1)


@pytest.mark.parametrize("seed", [*SEEDS, 18])
def test_models_that_come_and_go_in_any_order_leave_no_job_behind(seed: int) -> None:
    dice = random.Random(seed)
    world = a_world(seed=seed)
    for _ in range(12):
        do = dice.choice((world.delete_model, world.put_model))
        world.at(dice.uniform(DELETED_AT + 1, 90.0), partial(do, "m"))
    world.at(91.0, lambda: world.put_model("m"))
    world.run(until=200)

    assert (world.status("batch")["phase"], world.status("served")["phase"]) == ("Succeeded", "Serving")
    assert conditions(world, "served")["Accepted"] == ("True", "Accepted")

"""Batches in the slack of services in virtual time: placed there, given back, and what becomes of both."""

import pytest

from tests.simulation.api import Raw
from tests.simulation.cluster import Script
from tests.simulation.world import World

SERVE = {"latencyTargetMilliseconds": 50, "slack": {"claims": ["data"]}}
HALF = (0.0, 0.4, 0.01)
FULL = 0.95, 0.2


def a_world(*steps: tuple[float, float, float], work: float = 10.0, serve: Raw | None = None, **how: object) -> World:
    """A service of one worker on one node with one GPU, and a node with CPUs; half loaded but for the steps."""
    scripts = {"web": Script(requests=(HALF, *steps)), "batch": Script(work=work, resumes=True)}
    world = World(scripts=scripts, **how)  # type: ignore[arg-type]
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": work, "cpu": 10 * work})
    world.job("web", batch=False, accelerator="gpu", serve=serve or SERVE)
    return world


def test_a_batch_runs_in_the_slack_of_a_service_at_half_load() -> None:
    world = a_world()
    world.job("batch", at=40, accelerator="gpu")
    told: list[Raw] = []
    world.at(60, lambda: told.extend(world.status("web")["backgroundTasks"]))
    world.run(until=120)

    status = world.status("batch")
    assert (status["phase"], status["attempts"], world.created("batch")) == ("Succeeded", 1, 0)
    # The share is measured, and told in twentieths.
    assert (status["placement"]["slack"]["service"], 0.25 <= status["placement"]["slack"]["share"] <= 0.3) == ("web", True)
    assert status["placement"]["cost"]["switchSeconds"] == 0
    (task,) = told
    assert (task["job"], task["runs"] > 0, 0.3 < task["deviceShare"] < 0.5) == ("batch", True, True)
    assert "backgroundTasks" not in world.status("web")
    world.trace.check("a batch in the slack of a service")


def test_a_batch_gives_its_place_back_when_the_load_rises_and_resumes_elsewhere() -> None:
    world = a_world((70.0, *FULL), work=30.0)
    world.job("batch", at=40, accelerator="gpu")
    world.node("gpu-2", gpu=1, at=80)
    world.run(until=160)

    status = world.status("batch")
    assert (status["phase"], status["attempts"], status["failedAttempts"]) == ("Succeeded", 2, 0)
    assert (status["placement"]["node"], status["preemptions"], "slack" in status["placement"]) == ("gpu-2", 1, False)
    assert world.ledger.committed["batch"] == 30
    assert world.created("batch") == 1
    world.trace.check("a batch gives the slack of a service back")


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_events_does_not_change_the_outcome(seed: int) -> None:
    def final(seed: int | None) -> dict[str, tuple[object, ...]]:
        world = a_world(work=10.0, seed=seed)
        world.job("batch", at=40, accelerator="gpu")
        return world.run(until=120).final()

    assert final(seed) == final(None)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_the_operator_crashes_at_every_write_and_all_is_done_once(writes: int) -> None:
    world = a_world(crash_always_after=writes)
    world.job("batch", at=40, accelerator="gpu")
    world.run(until=200)

    assert world.status("batch")["phase"] == "Succeeded"
    assert (world.ledger.begun["batch"], world.ledger.done["batch"], world.created("batch")) == (1, 1, 0)


def test_a_service_that_does_not_lend_its_slack_runs_no_batch() -> None:
    world = a_world(serve={"latencyTargetMilliseconds": 50})
    world.job("batch", at=40, accelerator="gpu")
    world.run(until=80)

    assert world.status("batch")["phase"] == "Waiting"


def test_a_busy_service_runs_no_batch_and_the_batch_says_so() -> None:
    world = a_world((0.0, *FULL))
    world.job("batch", at=40, accelerator="gpu")
    world.run(until=80)

    status = world.status("batch")
    assert status["phase"] == "Waiting"
    (placed,) = [one for one in status["conditions"] if one["type"] == "Placed"]
    assert "slack of service web: its p95 latency of 200 ms is too near to its target of 50 ms" in placed["message"]


def test_a_batch_waits_until_the_load_of_a_service_has_fallen() -> None:
    world = a_world((0.0, *FULL), (90.0, *HALF[1:]))
    world.job("batch", at=40, accelerator="gpu")
    world.run(until=180)

    assert world.status("batch")["placement"]["slack"]["service"] == "web"
    assert world.status("batch")["phase"] == "Succeeded"


@pytest.mark.parametrize("end", ["deleted", "rolled out", "scaled down"])
def test_a_batch_whose_services_worker_is_told_to_go_resumes_and_no_failure_counts(end: str) -> None:
    world = a_world(work=30.0)
    world.job("batch", at=40, accelerator="gpu")
    world.node("gpu-2", gpu=1, at=60)
    do = {
        "deleted": lambda: world.delete_pods("web", 1),
        "rolled out": lambda: world.change("web", at=70.0, batchSize=7),
        "scaled down": lambda: world.change("web", at=70.0, serve={**SERVE, "minReplicas": 0}, replicas=0),
    }[end]
    if end == "deleted":
        world.at(70.0, do)
    else:
        do()
    world.run(until=300)

    status = world.status("batch")
    assert (status["phase"], status["failedAttempts"], status.get("preemptions", 0)) == (
        "Succeeded",
        0,
        0,
    )
    assert status["attempts"] == 2
    assert world.ledger.done["batch"] + world.created("batch") >= 1


def test_a_services_worker_that_fails_under_a_batch_counts_against_neither_and_no_other_is_risked() -> None:
    world = a_world(work=30.0)
    world.job("batch", at=40, accelerator="gpu")
    world.at(60.0, lambda: world.cluster.fail("web"))
    world.node("gpu-2", gpu=1, at=65)
    world.run(until=200)

    status = world.status("batch")
    assert (status["phase"], status["failedAttempts"], status["attempts"]) == ("Succeeded", 0, 2)
    assert "slack" not in status["placement"]


def test_the_task_of_a_deleted_batch_is_stopped_on_the_services_worker() -> None:
    world = a_world(work=600.0)
    world.job("batch", at=40, accelerator="gpu")
    world.scripts["next"] = Script(work=1.0)
    world.job("next", at=50, accelerator="gpu", items=3)
    world.at(60, lambda: world.delete_job("batch"))
    world.run(until=150)

    assert world.status("next")["phase"] == "Succeeded"
    assert world.status("next")["placement"]["slack"]["service"] == "web"

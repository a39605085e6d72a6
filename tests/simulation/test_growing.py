"""A cluster that grows: no GPU node at the start, and an autoscaler that adds them for Pending pods. All in virtual time."""

import msgspec
import pytest

from inference_operator.accelerators import Provisioning, default_classes
from inference_operator.api import names
from inference_operator.settings import Settings
from tests.simulation.api import At
from tests.simulation.autoscaler import SimulatedAutoscaler
from tests.simulation.world import World

SEEDS = range(4)
NODE = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}


def settings(*, seconds: float = 95.0, timeout: float = 900.0, most: int = 10) -> Settings:
    classes = default_classes()
    grows = Provisioning(allocatable=NODE, node_seconds=seconds, timeout_seconds=timeout, max_pending=most)
    classes["gpu"] = msgspec.structs.replace(classes["gpu"], provisioning=grows)
    return Settings(workers=4, accelerators=classes)


def growing(seed: int | None = None, *, told: Settings | None = None, autoscaler: bool = True, **how: float) -> World:
    world = World(seed=seed, settings=told or settings())
    world.node("cpu-1")
    world.model(seconds={"gpu": 30.0, "cpu": 3000.0})
    if autoscaler:
        made = SimulatedAutoscaler(world.api, world.trace, **how)  # type: ignore[arg-type]
        world.at(0.0, made.start)
    return world


def nodes(world: World) -> set[str]:
    return {at.name for at in world.api.all("nodes")}


def one_job_with_a_deadline(seed: int | None = None) -> World:
    world = growing(seed)
    world.job("due", at=0.1, accelerator="gpu", deadline_at=200)
    return world.run(until=240)


def test_a_cluster_without_gpus_grows_for_one_job_and_shrinks_again() -> None:
    world = one_job_with_a_deadline()

    assert world.final()["due"][:2] == ("Succeeded", "Met")
    assert nodes(world) == {"cpu-1"}
    (entry,) = world.status("due")["provisioning"]
    assert (entry["node"], round(entry["seconds"])) == ("grown-1", 96)
    world.trace.check("a cluster without gpus grows for one job and shrinks again")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_changes_nothing(seed: int) -> None:
    assert one_job_with_a_deadline(seed).final() == one_job_with_a_deadline().final()


@pytest.mark.parametrize("writes", range(1, 9))
def test_an_operator_that_dies_at_any_write_asks_for_no_second_node(writes: int) -> None:
    world = growing()
    world.crash_after = (writes,)
    world.job("due", at=0.1, accelerator="gpu", deadline_at=200)
    world.run(until=240)

    assert world.final()["due"][:2] == ("Succeeded", "Met")
    assert sum("adds grown" in line for line in world.trace.lines) == 1
    assert world.placeholders("due") == []


def test_what_nodes_really_take_decides_about_the_next_job() -> None:
    """Nodes take four times as long as the administrator has thought: the next firm deadline is told that it can't be met."""
    world = growing(told=settings(seconds=20.0), seconds=80.0)
    world.job("first", at=0.1, accelerator="gpu", deadline_at=100, deadlinePolicy="Soft")
    world.job("second", at=200.0, accelerator="gpu", deadline_at=280, deadlinePolicy="Firm")
    world.job("third", at=200.0, accelerator="gpu", deadline_at=400, deadlinePolicy="Firm")
    world.run(until=420)

    assert {name: gist[1] for name, gist in world.final().items()} == {"first": "Missed", "second": "Missed", "third": "Met"}
    assert "new node of class gpu, which takes some 82 s" in str(world.status("second")["conditions"])


def test_several_jobs_share_the_nodes_that_come_and_each_has_a_place() -> None:
    world = growing(gpus=2)
    for number in range(5):
        world.job(f"job-{number}", at=0.1, accelerator="gpu", deadline_at=300)
    world.run(until=320)

    assert {gist[1] for gist in world.final().values()} == {"Met"}
    assert nodes(world) == {"cpu-1"}
    assert sum("adds grown" in line for line in world.trace.lines) == 3


def test_a_node_that_does_not_come_is_told_of_and_the_job_is_not_forgotten() -> None:
    world = growing(told=settings(timeout=60.0), autoscaler=False)
    world.job("due", at=0.1, accelerator="gpu")
    world.node("late-1", gpu=1, at=500.0)
    world.run(until=600)

    created = [line for line in world.trace.lines if "placeholder is created" in line]
    assert len(created) <= 4
    assert world.final()["due"][0] == "Succeeded"
    assert world.placeholders("due") == []


def test_a_job_that_is_deleted_leaves_no_placeholder() -> None:
    world = growing()
    world.job("due", at=0.1, accelerator="gpu")
    world.at(20.0, lambda: world.delete_job("due"))
    world.run(until=60)

    assert world.placeholders("due") == []


@pytest.mark.parametrize("namespace", ["default", "theirs"])
def test_a_forged_placeholder_that_waits_for_years_puts_nobodys_deadline_out_of_reach(namespace: str) -> None:
    """Its owner is no job of its namespace, so that no job takes it away."""
    world = growing()
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_PLACEHOLDER: "nobody",
        names.LABEL_ACCELERATOR: "gpu",
        names.LABEL_JOB: "nobody",
    }
    owner = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": "x", "uid": "nobody", "controller": True}
    meta = {"name": "forged", "labels": labels, "ownerReferences": [owner], "creationTimestamp": "2001-01-01T00:00:00Z"}
    # No node will ever have so many.
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "99"}}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    forged = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
    world.at(0.05, lambda: world.api.put(At("pods", namespace, "forged"), forged))
    world.job("due", at=0.1, accelerator="gpu", deadline_at=200, deadlinePolicy="Firm")

    assert world.run(until=240).final()["due"][:2] == ("Succeeded", "Met")

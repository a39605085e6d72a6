"""One namespace against another on a simulated cluster: the attacks that caps and fair shares stop, with their statuses."""

from datetime import datetime
from typing import Any

import pytest

from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.settings import Settings
from tests.simulation.cluster import Script
from tests.simulation.virtual_time import START
from tests.simulation.world import World

SEEDS = range(3)
FLOOD = 40


def placed_at(world: World, name: str, namespace: str) -> float:
    """When a job got its first place, in seconds of the simulation."""
    started = world.status(name, namespace)["startTime"]
    return (datetime.fromisoformat(started) - START).total_seconds()


def condition(world: World, name: str, namespace: str, kind: str) -> dict[str, Any]:
    (found,) = [one for one in world.status(name, namespace)["conditions"] if one["type"] == kind]
    return found


def two_namespaces(
    limits: NamespaceLimits, *, gpus: int, seed: int | None = None, scripts: dict[str, Script] | None = None
) -> World:
    world = World(seed=seed, settings=Settings(workers=4, namespace_limits=limits), scripts=scripts or {})
    world.node("gpu-1", cpu=64, gpu=gpus)
    for namespace in ("greedy", "modest"):
        world.model(seconds={"gpu": 30.0}, namespace=namespace)
    return world


def a_flood(world: World, count: int = FLOOD, **spec: Any) -> None:
    for number in range(count):
        world.job(f"flood-{number}", at=0.1 + 0.01 * number, namespace="greedy", accelerator="gpu", **spec)


def most_at_a_time(world: World, namespace: str) -> list[int]:
    """A list whose last entry is the most workers that a namespace has had at a time, once the world has run."""
    found = [0]

    def look(_: str, plural: str, __: dict[str, Any]) -> None:
        if plural == "pods":
            living = [
                raw
                for raw in world.api.all("pods").values()
                if raw["metadata"]["namespace"] == namespace and raw["status"].get("phase") not in ("Succeeded", "Failed")
            ]
            found.append(max(found[-1], len(living)))

    world.at(0.0, lambda: world.api.watch(look))
    return found


@pytest.mark.parametrize("priority", [0, 1000])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_namespace_that_fills_the_queue_delays_another_by_one_job_at_most(seed: int, priority: int) -> None:
    """Forty jobs of half a minute on two devices are ten minutes. The other's job has the next device that comes free."""
    world = two_namespaces(NamespaceLimits(), gpus=2, seed=seed)
    a_flood(world, priority=priority)
    world.job("only", at=5.0, namespace="modest", accelerator="gpu", priority=priority)
    world.run(until=100)

    assert placed_at(world, "only", "modest") < 45
    assert world.status("only", "modest")["phase"] == "Succeeded"


def test_two_namespaces_that_ask_for_much_get_half_each() -> None:
    world = two_namespaces(NamespaceLimits(), gpus=4)
    a_flood(world)
    for number in range(FLOOD):
        world.job(f"much-{number}", at=5.0, namespace="modest", accelerator="gpu")
    world.run(until=300)

    done = {
        name: sum(gist[0] == "Succeeded" for job, gist in world.final().items() if job.startswith(name))
        for name in ("flood", "much")
    }
    assert done["much"] >= 12
    # The first four had the cluster to themselves.
    assert 0 <= done["flood"] - done["much"] <= 4


def test_who_waits_is_told_that_namespaces_share_and_by_what_shares() -> None:
    world = two_namespaces(NamespaceLimits(), gpus=2)
    a_flood(world, 4)
    world.job("only", at=5.0, namespace="modest", accelerator="gpu")
    world.run(until=20)

    told = condition(world, "only", "modest", "Placed")
    # Its namespace has nothing, so it waits for room, and for nothing else.
    assert (told["status"], told["reason"]) == ("False", "NoFreeCapacity")
    assert "namespace modest has 0% of" in told["message"]
    assert "its fair share is 50%, as 2 namespaces have work, and the one with the least goes first" in told["message"]


def test_priority_one_thousand_everywhere_is_worth_what_the_cap_says() -> None:
    limits = NamespaceLimits(overrides={"greedy": Limits(max_priority=0)})
    world = two_namespaces(limits, gpus=1)
    a_flood(world, 10, priority=1000)
    world.job("more-important", at=5.0, namespace="modest", accelerator="gpu", priority=1)
    world.run(until=80)

    assert placed_at(world, "more-important", "modest") < 45
    told = condition(world, "flood-9", "greedy", "Accepted")
    assert (told["status"], told["reason"]) == ("True", "PriorityLimited")
    assert "priority is 1000, but jobs of namespace greedy have 0 at most" in told["message"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_namespace_never_holds_more_devices_than_its_cap_and_says_so(seed: int) -> None:
    limits = NamespaceLimits(default=Limits(max_devices={"gpu": 3}))
    world = two_namespaces(limits, gpus=8, seed=seed)
    most = most_at_a_time(world, "greedy")
    a_flood(world, 10, priority=1000)
    world.job("only", at=5.0, namespace="modest", accelerator="gpu")
    world.run(until=15)

    told = condition(world, "flood-9", "greedy", "Placed")
    assert (told["status"], told["reason"]) == ("False", "NamespaceCapped")
    assert "gpu: namespace greedy has 3 of at most 3 gpu workers (maxDevices)" in told["message"]
    assert placed_at(world, "only", "modest") < 7
    world.run(until=200)
    assert most[-1] == 3


def test_a_capped_namespace_goes_on_as_its_work_ends() -> None:
    world = two_namespaces(NamespaceLimits(default=Limits(max_replicas=2)), gpus=8)
    a_flood(world, 6)
    world.run(until=150)

    assert {gist[0] for gist in world.final().values()} == {"Succeeded"}


def test_jobs_at_their_namespaces_cap_are_not_written_whenever_one_of_them_ends() -> None:
    world = two_namespaces(NamespaceLimits(default=Limits(max_replicas=2)), gpus=8)
    a_flood(world, 20)
    world.run(until=200)

    waits = [name for name, gist in world.final().items() if gist[0] == "Waiting"]
    assert waits
    assert max(world.writes["inferencejobs", name] for name in waits) == 1


def test_a_service_rolls_out_under_a_cap_that_it_fills() -> None:
    world = two_namespaces(NamespaceLimits(default=Limits(max_replicas=2)), gpus=8)
    world.job("service", batch=False, namespace="modest", accelerator="gpu", replicas=2, serve={"minReplicas": 1})

    def edit() -> None:
        ((at, raw),) = [(at, raw) for at, raw in world.api.objects.items() if at.plural == "inferencejobs"]
        world.api.put(at, {**raw, "spec": {**raw["spec"], "template": {"env": [{"name": "TZ", "value": "UTC"}]}}})

    world.at(30.0, edit)
    world.run(until=120)

    assert world.status("service", "modest")["reason"] == "Serving"
    assert world.created("service") == 4


def preempting(limits: NamespaceLimits, *, crash_at: float | None = None) -> World:
    """Three long jobs of one namespace, and urgent ones of another with the highest priority that there is."""
    scripts = {f"long-{i}": Script(work=300.0, items=300, resumes=True) for i in range(3)}
    world = two_namespaces(limits, gpus=3, scripts=scripts)
    for number in range(3):
        world.job(f"long-{number}", at=0.1, namespace="modest", accelerator="gpu", items=300)
    for number in range(3):
        world.job(
            f"urgent-{number}",
            at=20.0 + 40 * number,
            namespace="greedy",
            accelerator="gpu",
            priority=1000,
            deadline_at=62.0 + 40 * number,
        )
    if crash_at is not None:
        world.at(crash_at, world.crash)
    return world.run(until=200)


def preemptions(world: World) -> int:
    return sum(world.status(f"long-{number}", "modest").get("preemptions", 0) for number in range(3))


def test_a_capped_namespace_preempts_no_more_often_than_it_may() -> None:
    assert preemptions(preempting(NamespaceLimits())) > 1
    world = preempting(NamespaceLimits(overrides={"greedy": Limits(max_preemptions_per_hour=1)}))

    assert preemptions(world) == 1
    (told,) = [one for number in range(3) if (one := world.status(f"long-{number}", "modest").get("lastPreemption")) is not None]
    assert told["namespace"] == "greedy"


def test_a_new_operator_knows_who_has_preempted_whom() -> None:
    """The count follows from statuses: a restart gives nobody a new budget."""
    assert preemptions(preempting(NamespaceLimits(overrides={"greedy": Limits(max_preemptions_per_hour=1)}), crash_at=50.0)) == 1

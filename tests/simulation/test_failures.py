"""Workers that fail, quotas and names in the way: tried again ever later, said once, and never in a hot loop."""

import asyncio

import pytest

from inference_operator.errors import RefusedError
from tests.simulation.api import At, Raw, fails_once, no_pods
from tests.simulation.cluster import Script
from tests.simulation.world import World, writes_of

SEEDS = range(6)


def a_failing_job(seed: int | None = None) -> World:
    world = World(seed=seed, scripts={"failing": Script(work=5.0, outcomes=("WorkerFailed",))})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.job("failing", maxAttempts=4)
    return world.run(until=400)


def test_a_failing_job_backs_off_and_stops() -> None:
    world = a_failing_job()

    assert world.created("failing") == 4
    assert world.status("failing")["failedAttempts"] == 4
    world.trace.check("a failing job backs off and stops")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_how_often_is_tried(seed: int) -> None:
    assert a_failing_job(seed).final() == a_failing_job().final()


def test_a_job_that_fails_for_good_is_tried_once() -> None:
    world = World(scripts={"bad": Script(work=1.0, outcomes=("InputInvalid",))})
    world.node("cpu-1")
    world.model()
    world.job("bad")
    world.run(until=100)

    assert (world.created("bad"), world.status("bad")["reason"]) == (1, "InputInvalid")


def test_a_job_that_is_disrupted_goes_on_and_has_not_failed() -> None:
    world = World(scripts={"moved": Script(work=5.0, outcomes=("Drained", "Drained", "Succeeded"))})
    world.node("cpu-1")
    world.model()
    world.job("moved", maxAttempts=1)
    world.run(until=100)

    assert world.status("moved")["phase"] == "Succeeded"
    assert (world.status("moved")["attempts"], world.status("moved").get("failedAttempts")) == (3, 0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_service_that_ends_at_its_first_request_backs_off(replicas: int) -> None:
    """A moment of Ready is no success: two that end by turns would else be made anew for ever, at a constant pace."""
    world = World(scripts={"loops": Script(start=1.0, load=1.0, work=2.0, items=1, outcomes=("OutOfMemory",))})
    world.node("cpu-1")
    world.model()
    world.job("loops", batch=False, replicas=replicas)
    world.run(until=1200)

    # The pause doubles from 2 s to 120 s: six of them make two minutes, and the others are as long.
    assert 14 <= world.created("loops") <= 17 * replicas
    assert writes_of(world, "loops") <= 5 * 17 * replicas
    assert world.status("loops")["failedAttempts"] >= 14


def test_a_service_whose_node_turns_each_worker_away_backs_off_and_says_so() -> None:
    """A ReplicaSet makes pods for such a kubelet as fast as it can."""
    world = World()
    world.node("cpu-1")
    world.model()
    world.job("svc", batch=False, replicas=1)
    world.api.watch(lambda _, plural, raw: turn_away(world, raw) if plural == "pods" else None)
    world.run(until=600)

    # The first costs no time; the pause then doubles from 2 s to 120 s.
    assert 9 <= world.created("svc") <= 13
    assert world.status("svc")["reason"] == "WorkerLost"
    assert len(world.workers("svc")) == 1


def turn_away(world: World, raw: Raw) -> None:
    """What a kubelet does whose device plugin hands out no device."""
    if not raw["spec"].get("nodeName") or raw["status"].get("phase") != "Pending":
        return
    at = At("pods", raw["metadata"]["namespace"], raw["metadata"]["name"])
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}
    asyncio.get_running_loop().call_soon(lambda: at in world.api.objects and world.api.put(at, {**raw, "status": status}))


def test_a_service_that_has_answered_for_a_while_has_its_failures_forgiven() -> None:
    world = World(scripts={"svc": Script(work=2.0, items=1, outcomes=("OutOfMemory", "OutOfMemory", "Succeeded"))})
    world.node("cpu-1")
    world.model()
    world.job("svc", batch=False, replicas=1)
    young: list[int] = []
    world.at(60, lambda: young.append(world.status("svc")["failedAttempts"]))
    world.run(until=120)

    assert (young, world.status("svc")["failedAttempts"], world.created("svc")) == ([2], 0, 3)


# Pods that are invalid.


def invalid_pods(at: At, body: Raw) -> None:
    if at.plural == "pods":
        raise RefusedError(422, "Invalid", f'Pod "{at.name}" is invalid: spec.containers[0].resources.requests: Invalid value: "2"')


@pytest.mark.parametrize("phase", ["Succeeded", "Serving"])
def test_an_invalid_pod_stalls_its_job_until_the_spec_changes(phase: str) -> None:
    world = World(scripts={"held": Script(work=5.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.api.admission.append(invalid_pods)
    world.job("held", batch=phase == "Succeeded")
    stalled: list[object] = []
    tries: list[int] = []
    world.at(200.0, lambda: stalled.extend(c["reason"] for c in world.status("held")["conditions"] if c["type"] == "Stalled"))
    world.at(200.0, lambda: tries.append(world.api.requests["create", "pods"]))
    world.at(210.0, world.api.admission.clear)
    world.change("held", at=211.0, resources={"requests": {"cpu": "1"}})
    world.run(until=240)

    assert (stalled, tries) == (["PodInvalid"], [1])
    assert world.status("held")["phase"] == phase
    assert sum("warning PodInvalid" in line for line in world.trace.lines) == 1


def test_what_is_mended_elsewhere_is_tried_again_within_minutes() -> None:
    world = World(scripts={"held": Script(work=5.0)})
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.api.admission.append(invalid_pods)
    world.at(20.0, world.api.admission.clear)
    world.job("held")
    world.run(until=330)

    assert world.status("held")["phase"] == "Succeeded"


# Quotas.


def a_quota(seed: int | None = None) -> World:
    world = World(seed=seed)
    world.node("cpu-1")
    world.model(seconds={"cpu": 30.0})
    world.api.admission.append(no_pods)
    world.at(20.0, world.api.admission.clear)
    world.job("held")
    return world.run(until=120)


def test_quota_in_the_way() -> None:
    world = a_quota()

    assert world.status("held")["phase"] == "Succeeded"
    world.trace.check("quota in the way")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_events_does_not_change_what_becomes_of_a_quota(seed: int) -> None:
    assert a_quota(seed).final() == a_quota().final()


# A server out of order.


def a_job_met_by_an_outage(*, others: int) -> World:
    world = World()
    world.node("cpu-1", cpu=1)
    world.model(seconds={"cpu": 30.0})
    world.api.admission.append(fails_once("pods"))
    world.api.creation_seconds = 1.0
    world.job("held", accelerator="cpu", resources={"requests": {"cpu": "1"}})
    for number in range(others):
        # It asks for a device that no node has; all it does is to have the fleet decided anew.
        world.job(f"other-{number}", at=0.3, accelerator="gpu")
    return world.run(until=200)


def test_a_creation_that_failed_is_tried_again() -> None:
    assert a_job_met_by_an_outage(others=0).status("held")["phase"] == "Succeeded"


def test_a_creation_that_failed_is_tried_again_though_the_fleet_was_decided_meanwhile() -> None:
    assert a_job_met_by_an_outage(others=1).status("held")["phase"] == "Succeeded"


# Names.


def a_taken_name() -> World:
    world = World()
    world.node("cpu-1")
    world.model()
    world.somebodys_service("taken")
    world.job("taken", batch=False)
    return world.run(until=30)


def test_a_taken_name_is_not_tried_in_a_hot_loop() -> None:
    world = a_taken_name()

    assert world.api.requests["create", "services"] < 20


def test_a_taken_name_is_told() -> None:
    assert a_taken_name().status("taken").get("reason") == "NameTaken"


# Deleting.


def test_a_worker_is_told_to_stop_once() -> None:
    world = World()
    world.node("cpu-1")
    world.model()
    world.job("stopped")
    world.change("stopped", at=10.0, suspend=True)
    world.run(until=30)

    assert world.status("stopped")["phase"] == "Suspended"
    assert set(world.deleted.values()) == {1}


def test_a_deleted_job_takes_its_workers_along_and_leaves_nothing() -> None:
    world = World()
    world.node("cpu-1")
    world.model()
    world.job("deleted")
    world.at(10.0, lambda: world.delete_job("deleted"))
    world.run(until=30)

    assert world.api.all("pods") == {}
    assert writes_of(world, "deleted") <= 3


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_of_all_ended_attempts_the_newest_alone_keeps_its_pod(seed: int | None) -> None:
    """Two were left: each attempt let go those before the one before it, and nobody came after the last."""
    world = World(seed=seed, scripts={"failing": Script(work=5.0, outcomes=("WorkerFailed",))})
    world.node("cpu-1")
    world.model()
    world.job("failing", maxAttempts=2)
    world.change("failing", at=120.0, batchSize=2)
    world.run(until=300)

    assert (world.status("failing")["phase"], world.created("failing")) == ("Failed", 4)
    assert [pod["metadata"]["name"] for pod in world.workers("failing")] == [world.status("failing")["lastAttempt"]["pod"]]


def test_a_service_counts_each_worker_that_failed_and_no_other() -> None:
    world = World(scripts={"failing": Script(outcomes=("ModelCorrupt",))})
    world.node("cpu-1")
    world.model()
    world.job("failing", batch=False, accelerator="cpu", replicas=2)
    world.run(until=60)

    ended = sum("ends: ModelCorrupt" in line for line in world.trace.lines)
    assert ended > 3
    assert world.status("failing")["failedAttempts"] == ended

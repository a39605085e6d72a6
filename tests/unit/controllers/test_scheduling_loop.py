"""The fleet-wide loop: when it decides, whom it wakes, and that an answer is used only once. In virtual time."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend
from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask, SlackWorker
from inference_operator.scheduling.types import Decision, PlacementRequest
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools
from inference_operator.warmpools.slack import Lender
from inference_protocol.messages import ModelSource
from tests.builders import (
    SETTINGS,
    TOKENS,
    a_job,
    a_load,
    a_node,
    a_pod,
    a_request,
    an_option,
    some_scaling_metrics,
    somebodys_pod,
)
from tests.simulation.virtual_time import START, VirtualClock, run


@dataclass
class Fleet:
    """A fleet loop over a store that tests fill, with the wakes that it gave and when."""

    store: Store = field(default_factory=Store)
    wakes: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = SchedulingLoop(
            self.store, Pools(self.store, SETTINGS, VirtualClock(), TOKENS), SETTINGS, VirtualClock(), self.wake
        )
        self.room(1)

    def room(self, cores: int) -> None:
        self.store.nodes["node-1"] = a_node(cpu=str(cores))
        self.loop.touch()

    def wake(self, key: Request, *, urgent: bool = False) -> None:
        self.wakes.append((round(asyncio.get_running_loop().time(), 2), key.name + ("!" if urgent else "")))

    def want(self, placement_request: PlacementRequest | None, name: str | None = None) -> None:
        self.loop.want(
            placement_request.key if placement_request is not None else job_request(Key("default", str(name))), placement_request
        )

    def decision(self, placement_request: PlacementRequest) -> Decision | None:
        return self.loop.decision(placement_request.key)


def a_fresh_request(
    name: str = "n", *, deadline_in: float | None = None, seconds: float = 30.0, workers: int = 1
) -> PlacementRequest:
    """A need in the loop's own time."""
    deadline = START + timedelta(seconds=deadline_in) if deadline_in is not None else None
    return replace(a_request(name, an_option(seconds=seconds), workers=workers), created=START, deadline=deadline)


def with_loop(fleet: Fleet, main: Coroutine[Any, Any, None]) -> None:
    async def both() -> None:
        task = asyncio.create_task(fleet.loop.run())
        try:
            await main
        finally:
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError), f"the loop ended: {outcome!r}"

    run(both())


# When.


def test_a_want_is_answered_after_the_interval_and_wakes_its_job() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.want(a_fresh_request())
        await asyncio.sleep(1)

        assert fleet.wakes == [(0.05, "n!")]

    with_loop(fleet, main())


def test_a_burst_is_decided_together() -> None:
    fleet = Fleet()

    async def main() -> None:
        for n in range(5):
            fleet.want(a_fresh_request(f"n{n}"))
        await asyncio.sleep(1)

        assert sorted(fleet.wakes) == [(0.05, "n0!"), *((0.05, f"n{n}") for n in range(1, 5))]

    with_loop(fleet, main())


def test_nothing_new_wakes_nobody() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.want(a_fresh_request())
        await asyncio.sleep(1)
        fleet.want(a_fresh_request())
        fleet.loop.touch()
        await asyncio.sleep(100)

        assert len(fleet.wakes) == 1

    with_loop(fleet, main())


def test_room_that_appears_wakes_who_waits() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.store.put_pod(somebodys_pod(cpu="1"))
        fleet.want(a_fresh_request())
        await asyncio.sleep(10)
        fleet.room(2)
        await asyncio.sleep(1)

        assert fleet.wakes == [(0.05, "n"), (10.05, "n!")]

    with_loop(fleet, main())


def test_nothing_new_goes_to_a_node_whose_worker_does_not_answer() -> None:
    fleet = Fleet()
    fleet.store.silent_nodes = frozenset({"node-1"})
    placement_request = a_fresh_request()

    async def main() -> None:
        fleet.want(placement_request)
        await asyncio.sleep(1)
        waits = fleet.decision(placement_request)
        assert waits is not None and waits.pending is not None and "do not answer" in waits.pending.message

        fleet.store.silent_nodes = frozenset()
        fleet.loop.touch()
        await asyncio.sleep(1)
        placed = fleet.decision(placement_request)
        assert placed is not None and placed.assignments

    with_loop(fleet, main())


def test_moving_counts_wake_nobody() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.store.put_pod(somebodys_pod(cpu="1"))
        fleet.want(a_fresh_request())
        await asyncio.sleep(10)
        fleet.store.nodes["node-2"] = replace(a_node("node-2", cpu="500m"))
        fleet.loop.touch()
        await asyncio.sleep(1)

        assert fleet.wakes == [(0.05, "n")]

    with_loop(fleet, main())


def test_time_alone_brings_a_new_decision_when_work_becomes_late() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.store.put_pod(somebodys_pod(cpu="1"))
        firm = replace(a_fresh_request(deadline_in=100, seconds=30), firm=True)
        fleet.want(firm)
        await asyncio.sleep(69)
        assert len(fleet.wakes) == 1
        await asyncio.sleep(2)
        decision = fleet.decision(firm)

        assert len(fleet.wakes) == 2
        assert decision is not None and decision.pending is not None and decision.pending.final

    with_loop(fleet, main())


# An answer is used only once.


def test_what_is_not_wanted_any_more_has_no_answer() -> None:
    fleet = Fleet()

    async def main() -> None:
        placement_request = a_fresh_request()
        fleet.want(placement_request)
        await asyncio.sleep(1)
        fleet.want(None, "n")

        assert fleet.decision(placement_request) is None

    with_loop(fleet, main())


def test_places_that_were_given_are_not_given_again_for_the_rest() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.room(2)
        fleet.want(a_fresh_request(workers=3))
        await asyncio.sleep(1)
        decision = fleet.decision(a_fresh_request())
        assert decision is not None and len(decision.assignments) == 2
        # Two workers were created; the job now wants one more, and looks before the next pass.
        rest = a_fresh_request(workers=1)
        fleet.want(rest)
        left = fleet.decision(rest)

        assert left is None or left.assignments == ()

    with_loop(fleet, main())


def test_a_need_that_changed_is_answered_anew() -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.want(a_fresh_request())
        await asyncio.sleep(1)
        changed = replace(a_fresh_request(), revision="r2")
        fleet.want(changed)
        await asyncio.sleep(1)
        decision = fleet.decision(changed)

        assert decision is not None and decision.revision == "r2"
        assert len(fleet.wakes) == 2

    with_loop(fleet, main())


# What users can come up with must not end the loop: without it the whole operator ends.


def an_ancient_deadline() -> PlacementRequest:
    return replace(a_fresh_request(), deadline=datetime(1, 1, 1, tzinfo=UTC))


def a_deadline_at_the_end_of_time() -> PlacementRequest:
    return replace(a_fresh_request(), deadline=datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))


def work_of_ages() -> PlacementRequest:
    option = replace(an_option(), estimate=Estimate(2.0, 1e13, measured=True))
    return replace(a_request("n", option), created=START, deadline=START + timedelta(seconds=60))


@pytest.mark.parametrize(
    "placement_request",
    [
        pytest.param(
            an_ancient_deadline(),
            id="deadline: 0001-01-01T00:00:00Z",
        ),
        pytest.param(a_deadline_at_the_end_of_time(), id="deadline: 9999-12-31T23:59:59Z"),
        pytest.param(
            work_of_ages(),
            id="input.items: 9007199254740992",
        ),
    ],
)
def test_no_need_ends_the_loop(placement_request: PlacementRequest) -> None:
    fleet = Fleet()

    async def main() -> None:
        fleet.room(2)
        fleet.want(placement_request)
        await asyncio.sleep(1)
        fleet.want(a_fresh_request("other"))
        await asyncio.sleep(1)

        decision = fleet.decision(a_fresh_request("other"))
        assert decision is not None and decision.assignments

    with_loop(fleet, main())


# Slack.


def test_work_that_waits_has_the_slack_of_a_service_once_its_load_has_fallen() -> None:
    """No event tells of it."""
    fleet = Fleet()
    fleet.store.nodes.clear()
    service = a_job("web", serve=True)
    pod = a_pod(service)
    fleet.store.put_pod(pod)
    busy, calm = (some_scaling_metrics(a_load(p95)) for p95 in (0.2, 0.01))
    source = ModelSource("m", "1", "file:///m.onnx")
    worker = SlackWorker(service.key, pod.key, "node-1", "cpu", 1.0)
    lent = ServiceSlack(service.key, source, Backend.ONNX, 8, (), workers=(worker,))
    batch = replace(a_fresh_request("batch"), slack=SlackTask("default", source, Backend.ONNX, 1, ()))

    async def main() -> None:
        fleet.store.scaling_metrics[service.uid] = busy
        fleet.loop.lend(job_request(service.key), Lender(service.uid, 0.05, lent))
        fleet.want(batch)
        await asyncio.sleep(20)
        assert [name for _, name in fleet.wakes] == ["batch"]

        fleet.store.scaling_metrics[service.uid] = calm
        await asyncio.sleep(6)
        assert [name for _, name in fleet.wakes] == ["batch", "batch!"]
        decision = fleet.decision(batch)
        assert decision is not None and decision.assignments[0].warm_worker == pod.key

        fleet.loop.lend(job_request(service.key), None)
        await asyncio.sleep(6)
        decision = fleet.decision(batch)
        assert decision is not None and not decision.assignments

    with_loop(fleet, main())


# Namespaces.


def test_a_job_of_another_namespace_that_comes_and_goes_wakes_nobody_who_waits() -> None:
    """Ten thousand waiting jobs would be looked at for each small job of another namespace."""
    fleet = Fleet()
    holder = somebodys_pod("holder", cpu="1")
    fleet.store.pods[holder.key] = holder
    other = replace(a_fresh_request("other"), key=job_request(Key("elsewhere", "other")))

    async def main() -> None:
        fleet.want(a_fresh_request())
        await asyncio.sleep(1)
        fleet.wakes.clear()
        for _ in range(3):
            fleet.want(other)
            await asyncio.sleep(1)
            fleet.loop.want(other.key, None)
            await asyncio.sleep(1)

    with_loop(fleet, main())

    assert {name for _, name in fleet.wakes} == {"other"}
    found = fleet.decision(a_fresh_request())
    assert found is not None and found.pending is not None and found.pending.reason is Reason.NO_FREE_CAPACITY

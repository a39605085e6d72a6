"""Workers that lie to the operator: what they cost it, and what it says of their jobs."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from inference_protocol.messages import Progress
from tests.simulation.cluster import Script, SimulatedCluster
from tests.simulation.world import World, writes_of

if TYPE_CHECKING:
    import pytest

    from inference_operator.kube.ports import WorkerAddress
    from inference_protocol.messages import Telemetry


def test_a_worker_that_says_otherwise_of_its_model_each_second_costs_few_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lie was a write of its job's status, and one more of its model's."""
    dice, told = Random(1), SimulatedCluster.telemetry

    async def lie(cluster: SimulatedCluster, worker: WorkerAddress) -> Telemetry | None:
        answer = await told(cluster, worker)
        if answer is None or answer.model is None:
            return answer
        facts = {"provider": dice.choice(("A", "B")), "batch_size": dice.randrange(1, 99), "not_batched_because": dice.choice("xy")}
        return msgspec.structs.replace(answer, model=msgspec.structs.replace(answer.model, **facts))

    monkeypatch.setattr(SimulatedCluster, "telemetry", lie)
    world = World()
    world.node("a")
    world.model(seconds={"cpu": 30.0})
    world.job("s", batch=False)
    world.run(300.0)

    assert writes_of(world, "s") <= 10
    assert world.writes["inferencemodels", "m"] <= 10


def test_a_worker_that_says_it_has_done_more_than_there_is_makes_no_status_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    dice, told = Random(1), SimulatedCluster.telemetry

    async def lie(cluster: SimulatedCluster, worker: WorkerAddress) -> Telemetry | None:
        answer = await told(cluster, worker)
        if answer is None:
            return answer
        total, completed, failed, resumed = (dice.choice((0, 1, 30, 2**53)) for _ in range(4))
        return msgspec.structs.replace(answer, progress=Progress(total, completed, failed, resumed))

    monkeypatch.setattr(SimulatedCluster, "telemetry", lie)
    world = World()
    world.node("a")
    world.model(seconds={"cpu": 30.0})
    world.job("b", deadline_at=500.0)
    world.scripts["b"] = Script(work=250.0)
    world.run(300.0)

    # What a status claims is held to the truth at each write.
    assert world.status("b")["progress"] == {"total": 30, "completed": 30, "failed": 0}

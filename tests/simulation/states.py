"""Every state that objects of ours come to in the simulation, for those who judge them: Argo CD's scripts and kstatus."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import pytest

from inference_operator.api.schema import rfc3339
from tests.simulation.api import At, Raw, SimulatedApi
from tests.simulation.test_contention import a_full_cluster, an_infeasible_deadline
from tests.simulation.test_deadlines import firm_jobs
from tests.simulation.test_failures import a_failing_job, a_quota
from tests.simulation.test_generations import a_world_of_edits
from tests.simulation.test_serving import a_roll_out
from tests.simulation.test_warm_pools import a_burst
from tests.simulation.virtual_time import START
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = {"inferencejobs": "InferenceJob", "inferencemodels": "InferenceModel"}


def until_its_end() -> World:
    """A service that ends when its author wants it to."""
    world = World()
    world.node("cpu-1")
    world.model()
    world.job("served", batch=False, accelerator="cpu", serve={"until": rfc3339(START.replace(minute=1))})
    return world.run(until=90)


def at_rest() -> World:
    """A job that its author holds back, and a service that has nobody to serve."""
    world = World()
    world.node("cpu-1")
    world.model()
    world.job("held", accelerator="cpu", suspend=True)
    world.job("asleep", batch=False, accelerator="cpu", replicas=0, serve={"minReplicas": 0})
    return world.run(until=30)


WORLDS: dict[str, Callable[[], object]] = {
    "a service with an end": until_its_end,
    "at rest": at_rest,
    "a roll-out with room": lambda: a_roll_out(gpus=4),
    "a roll-out without room": lambda: a_roll_out(gpus=2, seed=1),
    "a failing job": a_failing_job,
    "a quota": a_quota,
    "a full cluster": a_full_cluster,
    "an infeasible deadline": an_infeasible_deadline,
    "firm jobs": firm_jobs,
    "a warm pool": a_burst,
    "edits": lambda: a_world_of_edits(3)[0].run(until=300),
}


@cache
def states_of(name: str) -> tuple[tuple[str, Raw], ...]:
    """Kind and object of each state of one of the worlds, and of the same one on its way out."""
    seen: dict[str, tuple[str, Raw]] = {}
    put = SimulatedApi.put

    def recorded(api: SimulatedApi, at: At, body: Raw) -> Raw:
        raw = put(api, at, body)
        if (kind := KINDS.get(at.plural)) is not None:
            meta = {key: raw["metadata"][key] for key in ("name", "generation")}
            state = {"metadata": meta, "spec": raw["spec"], "status": raw["status"]}
            for one in (state, {**state, "metadata": {**meta, "deletionTimestamp": rfc3339(START)}}):
                seen[json.dumps(one, sort_keys=True)] = (kind, one)
        return raw

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedApi, "put", recorded)
        WORLDS[name]()
    assert len(seen) > 5
    return tuple(seen.values())

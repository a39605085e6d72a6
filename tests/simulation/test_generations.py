"""observedGeneration says that a spec was acted on or refused: what a status stamps is looked up in the workers of that moment.

Flux, Argo CD and `kubectl wait` believe a status once its observedGeneration is the spec's generation (kubernetes/community,
contributors/devel/sig-architecture/api-conventions.md, "Typical status properties").
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from inference_operator.errors import RefusedError
from tests.kstatus import kstatus
from tests.simulation.api import At, Raw
from tests.simulation.cluster import Script, config_of, number_of
from tests.simulation.world import World

SEEDS = range(8)
JOBS = {"served": False, "other": False, "batch": True}
EDITS: list[dict[str, Any]] = [
    {"modelVersion": "1"},
    {"modelVersion": "2"},
    {"batchSize": 1},
    {"batchSize": 4},
    {"priority": 3},
    {"suspend": True},
    {"suspend": False},
    {"nodeSelector": {"zone": "moon"}},
    {"nodeSelector": {}},
    {"template": {"env": [{"name": "APP_PLACE", "value": "forbidden"}]}},
    {"template": {"env": [{"name": "APP_PLACE", "value": "fine"}]}},
    {"template": {}},
]


def forbid(at: At, body: Raw) -> None:
    """A policy of the cluster, in the words of an admission webhook."""
    if at.plural == "pods" and environment(body) == {"APP_PLACE": "forbidden"}:
        raise RefusedError(
            403, "Forbidden", f'admission webhook "policy" denied the request: pod {at.name} has a forbidden APP_PLACE'
        )


def environment(pod: Raw) -> dict[str, str]:
    """What the job's template has put into the worker's environment."""
    return {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "APP_PLACE"}


def is_made_of(pod: Raw, spec: Raw) -> bool:
    """Whether a worker is what a spec asks for; a batch keeps a worker of another template."""
    config = config_of(pod)
    wanted = {one["name"]: one["value"] for one in spec.get("template", {}).get("env", [])}
    same = (config.model.version, config.batch_size) == (spec["modelVersion"], spec.get("batchSize", 1))
    return same and ("input" in spec or environment(pod) == wanted)


@dataclass
class Watcher:
    """Judges each status when it is written."""

    world: World
    faults: list[str] = field(default_factory=list)
    written: int = 0
    _ended: dict[str, int] = field(default_factory=dict)

    def take(self, verb: str, at: At, raw: Raw) -> None:
        if (verb, at.plural) != ("apply", "inferencejobs"):
            return
        generation = raw["status"]["observedGeneration"]
        conditions = {one["type"]: one for one in raw["status"]["conditions"]}
        if conditions.get("Succeeded", {}).get("status", "Unknown") != "Unknown":
            self._ended.setdefault(at.name, generation)
        if generation != raw["metadata"]["generation"] or self._ended.get(at.name, generation) != generation:
            # Nobody believes it; and what an edit of an ended job does is tested where ends are.
            return
        self.written += 1
        if not self._is_true(at.name, raw, conditions):
            self.faults.append(f"{at.name} {generation}: {raw['spec']} is not what {raw['status']} says")

    def _is_true(self, name: str, raw: Raw, conditions: dict[str, Raw]) -> bool:
        spec = raw["spec"]
        reason = raw["status"]["reason"]
        forbidden = any(one["value"] == "forbidden" for one in spec.get("template", {}).get("env", []))
        if (reason == "PodRefused" and not forbidden) or (reason == "NoNodeFits" and not spec.get("nodeSelector")):
            return False
        if any(one["observedGeneration"] != raw["status"]["observedGeneration"] for one in conditions.values()):
            return False
        if kstatus(raw) != "Current":
            return True
        staying = [pod for pod in self.world.living(name) if "deletionTimestamp" not in pod["metadata"]]
        if spec.get("suspend"):
            return "Suspended" in conditions and not staying
        if "input" in spec:
            return is_made_of(max(self.world.workers(name), key=number_of), spec)
        answering = [pod for pod in self.world.answering(name) if is_made_of(pod, spec)]
        return len(answering) >= spec["replicas"] and all(is_made_of(pod, spec) for pod in staying)


def a_world_of_edits(seed: int) -> tuple[World, Watcher]:
    dice = random.Random(seed)
    world = World(seed=seed, scripts={"batch": Script(work=60.0, resumes=True)})
    world.node("cpu-1")
    world.node("cpu-2")
    world.model(versions=("1", "2"))
    world.api.admission.append(forbid)
    watcher = Watcher(world)
    world.api.listeners.append(watcher.take)
    for name, batch in JOBS.items():
        replicas: dict[str, Any] = {} if batch else {"replicas": 2}
        world.job(name, batch=batch, accelerator="cpu", modelVersion="1", **replicas)
    for _ in range(18):
        world.change(dice.choice(list(JOBS)), at=dice.uniform(2.0, 150.0), **dice.choice(EDITS))
    return world, watcher


@pytest.mark.parametrize("seed", SEEDS)
def test_a_generation_that_was_not_acted_on_is_never_stamped(seed: int) -> None:
    world, watcher = a_world_of_edits(seed)
    world.run(until=300)

    assert watcher.faults == []
    assert watcher.written > 20
    for raw in world.api.all("inferencejobs").values():
        assert raw["status"]["observedGeneration"] == raw["metadata"]["generation"], raw["metadata"]["name"]


def test_a_cure_of_what_was_refused_is_tried_at_once() -> None:
    """The pause after a refusal was of the spec that was refused."""
    world = World()
    world.node("cpu-1")
    world.model()
    world.api.admission.append(forbid)
    watcher = Watcher(world)
    world.api.listeners.append(watcher.take)
    bad = {"env": [{"name": "APP_PLACE", "value": "forbidden"}]}
    world.job("served", batch=False, accelerator="cpu", modelVersion="1", replicas=1, template=bad)
    world.change("served", at=100.0, template={})
    reasons: list[object] = []
    world.at(99.0, lambda: reasons.append(world.status("served")["reason"]))
    world.at(110.0, lambda: reasons.append(world.status("served")["reason"]))
    world.run(until=111)

    assert reasons == ["PodRefused", "Serving"]
    assert watcher.faults == []


def test_a_new_object_is_in_progress_until_the_operator_has_looked_at_it() -> None:
    world = World()
    world.job("new")
    verdicts: list[str] = []
    world.at(0.1001, lambda: verdicts.append(kstatus(world.api.objects[At("inferencejobs", "default", "new")])))
    world.run(until=1)

    assert verdicts == ["InProgress"]

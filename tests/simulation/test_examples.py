"""The example manifests, applied as shipped, show what they say."""

from pathlib import Path

import yaml

from tests.simulation.api import At
from tests.simulation.world import World

MANIFESTS = Path(__file__).resolve().parents[2] / "examples" / "manifests"


def applied(*files: str) -> World:
    world = World()
    world.node("cpu-1")
    for raw in (raw for file in files for raw in yaml.safe_load_all((MANIFESTS / file).read_text())):
        at = At(f"{raw['kind'].lower()}s", raw["metadata"]["namespace"], raw["metadata"]["name"])
        world.at(0.0, lambda at=at, raw=raw: world.api.put(at, raw))  # type: ignore[misc]
    return world.run(until=30)


def test_a_deadline_that_can_not_be_met_is_refused_as_the_example_says() -> None:
    """It succeeded when applied as shipped: nothing was known of the model's speed, and its deadline was years away."""
    world = applied("10-models.yaml", "70-too-late.yaml")
    job = world.api.objects[At("inferencejobs", "demo", "too-late")]

    assert job["status"]["reason"] == "DeadlineInfeasible"
    assert "or later, or set deadlinePolicy to Soft" in next(
        c["message"] for c in job["status"]["conditions"] if c["type"] == "Stalled"
    )
    assert world.api.all("pods") == {}

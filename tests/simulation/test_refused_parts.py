"""A namespace that takes no more of what goes with a service: it is ending, or a policy or a quota keeps it out."""

import pytest

from inference_operator.errors import RefusedError
from tests.simulation.api import At, Raw
from tests.simulation.world import World


def refusing(plural: str) -> World:
    """From the beginning, in the words of Kubernetes' own admission."""
    world = World()
    world.node("a")
    world.model(seconds={"cpu": 30.0})
    world.job("s", batch=False, replicas=2)

    def admit(at: At, _: Raw) -> None:
        if at.plural == plural:
            text = f'{plural} "{at.name}" is forbidden: unable to create new content in namespace default because it is being terminated'
            raise RefusedError(403, "Forbidden", text)

    world.api.admission.append(admit)
    return world


def test_a_budget_of_somebody_else_that_has_the_name_of_ours_is_looked_at_ever_more_seldom() -> None:
    """A tenant had the operator ask as fast as it may, and so kept it from all others."""
    world = refusing("nothing")
    world.at(0.0, lambda: world.api.put(At("poddisruptionbudgets", "default", "s-workers"), {"metadata": {"name": "s-workers"}}))
    world.run(300.0)

    assert 1 <= world.api.requests["create", "poddisruptionbudgets"] <= 20
    assert world.status("s")["phase"] == "Serving"


@pytest.mark.parametrize("plural", ["poddisruptionbudgets", "services", "endpointslices", "pods"])
def test_what_is_refused_is_asked_for_ever_more_seldom(plural: str) -> None:
    world = refusing(plural)
    world.run(300.0)

    # Callers wait for endpoints: they are tried every five seconds.
    assert 1 <= world.api.requests["create", plural] <= (70 if plural == "endpointslices" else 20)


@pytest.mark.parametrize("seconds", [0.0, 100.0])
def test_a_budget_that_a_webhook_changes_is_applied_ever_more_seldom(seconds: float) -> None:
    """It was applied at each look, and each had the next."""
    world, applied = refusing("nothing"), list[str]()
    create, apply = world.api.create, world.api.apply

    def changed(body: Raw) -> Raw:
        if body["kind"] != "PodDisruptionBudget":
            return body
        applied.append(body["metadata"]["name"])
        return {**body, "spec": {**body["spec"], "minAvailable": 2}}

    world.at(seconds, lambda: setattr(world.api, "create", lambda path, body: create(path, changed(body))))
    world.at(seconds, lambda: setattr(world.api, "apply", lambda path, body: apply(path, changed(body))))
    world.change("s", at=150.0, replicas=3)
    world.change("s", at=160.0, replicas=4)
    world.run(400.0)

    assert 1 <= len(applied) <= 30


def test_a_budget_comes_once_nobody_keeps_it_out() -> None:
    world = refusing("poddisruptionbudgets")
    world.at(100.0, world.api.admission.clear)
    world.run(300.0)

    assert [at.name for at in world.api.all("poddisruptionbudgets")] == ["s-workers"]

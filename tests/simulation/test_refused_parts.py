"""A namespace that takes no more of what goes with a service: it is ending, or a policy or a quota keeps it out."""

import asyncio

import pytest

from inference_operator.errors import RefusedError
from tests.simulation.api import At, Raw, locate
from tests.simulation.cluster import Script
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


def test_slices_that_a_webhook_stamps_are_applied_ever_more_seldom() -> None:
    """Eighty requests a second, for one service."""
    world, applied = refusing("nothing"), list[str]()
    apply = world.api.apply

    def stamped(body: Raw) -> Raw:
        if body["kind"] != "EndpointSlice":
            return body
        applied.append(body["metadata"]["name"])
        return {**body, "endpoints": [{**one, "zone": f"zone-{len(applied)}"} for one in body["endpoints"]]}

    world.at(1.0, lambda: setattr(world.api, "apply", lambda path, body: apply(path, stamped(body))))
    world.run(100.0)

    assert 1 <= len(applied) <= 15
    assert world.taking("s") == {"a"}


def test_a_budget_comes_once_nobody_keeps_it_out() -> None:
    world = refusing("poddisruptionbudgets")
    world.at(100.0, world.api.admission.clear)
    world.run(300.0)

    assert [at.name for at in world.api.all("poddisruptionbudgets")] == ["s-workers"]


def keeping(world: World, plural: str) -> list[float]:
    """A policy lets nothing of a kind be deleted; return when it was asked to."""
    delete, asked = world.api.delete, list[float]()

    async def deny(path: str, *, uid: str) -> None:
        if locate(path).plural == plural:
            asked.append(asyncio.get_running_loop().time())
            raise RefusedError(403, "Forbidden", f"admission webhook denied the request: {path} stays")
        await delete(path, uid=uid)

    world.api.delete = deny  # type: ignore[method-assign]
    return asked


def test_a_budget_that_may_not_be_deleted_keeps_no_worker_from_going() -> None:
    """Nothing was done about the service any more, and its status told of two workers for ever."""
    world = refusing("nothing")
    asked = keeping(world, "poddisruptionbudgets")
    world.change("s", at=100.0, replicas=1)
    world.run(400.0)

    assert (len(world.living("s")), world.status("s")["desiredReplicas"]) == (1, 1)
    assert 1 <= len(asked) <= 30


def test_workers_that_ended_and_may_not_be_deleted_hold_no_other_attempt_back() -> None:
    """No further attempt was ever made, and the status told of a start that had passed."""
    world = refusing("nothing")
    world.job("b", maxAttempts=5)
    world.scripts["b"] = Script(outcomes=(*["ModelUnreachable"] * 4, "Succeeded"))
    asked = keeping(world, "pods")
    world.run(600.0)

    assert (world.status("b")["phase"], world.status("b")["attempts"]) == ("Succeeded", 5)
    # Four pods stay in the end.
    assert 1 <= len(asked) <= 4 * 50

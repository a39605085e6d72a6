"""Roll-outs in a namespace whose quota has no room beside the old workers: one at a time makes room, and never for nothing."""

import asyncio

import pytest

from inference_operator.api.quantity import parse_quantity
from inference_operator.errors import RefusedError
from tests.simulation.api import At, Raw
from tests.simulation.test_claims import revisions_of
from tests.simulation.world import World

OURS = "web"


def forbid(at: At, resource: str, *, requested: str, used: str, limited: str) -> None:
    """In the words of Kubernetes' own admission."""
    amounts = ", ".join(
        f"{word}: {resource}={amount}"
        for word, amount in zip(("requested", "used", "limited"), (requested, used, limited), strict=True)
    )
    raise RefusedError(403, "Forbidden", f'pods "{at.name}" is forbidden: exceeded quota: team, {amounts}')


def serving(replicas: int, cpu: str = "1") -> World:
    world = World()
    world.node("cpu-1", cpu=64)
    world.model(seconds={"cpu": 30.0})
    world.job(OURS, batch=False, replicas=replicas, resources={"requests": {"cpu": cpu}})
    world.watch_answering(OURS, since=15)
    return world


def limit_pods(world: World, limit: int, *, lag: float = 0.0) -> None:
    """From now on; who leaves is counted for `lag` seconds more, as by Kubernetes' quota controller."""
    seen: list[tuple[float, int]] = []

    def admit(at: At, _: Raw) -> None:
        now = asyncio.get_running_loop().time()
        seen.append((now, len(world.living(OURS)) + len(world.living("rival"))))
        used = max(count for time, count in seen if time >= now - lag)
        if at.plural == "pods" and used >= limit:
            forbid(at, "pods", requested="1", used=str(used), limited=str(limit))

    world.api.admission.append(admit)


def limit_cpu(world: World, limit: int, *, others: int = 0) -> None:
    """From now on; `others` is what somebody else has in use."""

    def cpu_of(pod: Raw) -> int:
        return parse_quantity(str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]))

    def admit(at: At, body: Raw) -> None:
        if at.plural != "pods":
            return
        used = others + sum(map(cpu_of, world.living(OURS)))
        if used + cpu_of(body) > limit:
            forbid(at, "requests.cpu", requested=str(cpu_of(body)), used=str(used), limited=str(limit))

    world.api.admission.append(admit)


def limit_limits(world: World, limit: int) -> None:
    """A quota on the sum of all limits, which are above the requests."""

    def cpu_of(pod: Raw) -> int:
        return parse_quantity(str(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]))

    def admit(at: At, body: Raw) -> None:
        used = sum(map(cpu_of, world.living(OURS)))
        if at.plural == "pods" and used + cpu_of(body) > limit:
            forbid(at, "limits.cpu", requested=str(cpu_of(body)), used=str(used), limited=str(limit))

    world.api.admission.append(admit)


def least_of(world: World) -> int:
    """The smallest number of workers that ever answered; where no pod changed, those that answer still."""
    return world.least_answering.get(OURS, len(world.answering(OURS)))


def roll_out(world: World, **more: object) -> World:
    world.change(OURS, at=40, template={"env": [{"name": "APP_A", "value": "b"}]}, **more)
    return world.run(until=400)


@pytest.mark.parametrize(("replicas", "least"), [(1, 0), (2, 1), (3, 2)])
def test_a_roll_out_ends_in_a_quota_that_has_room_for_the_service_alone(replicas: int, least: int) -> None:
    """SeldonIO/seldon-core#916: the new pods were refused for ever, and the old revision stayed."""
    world = serving(replicas)
    limit_pods(world, replicas)
    roll_out(world)

    assert (len(world.answering(OURS)), len(revisions_of(world, OURS)), world.created(OURS)) == (replicas, 1, 2 * replicas)
    assert world.status(OURS)["phase"] == "Serving"
    assert least_of(world) == least


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_roll_out_ends_in_a_quota_on_limits_that_are_above_the_requests(replicas: int) -> None:
    """What an old worker gives back was taken for its request, so that its successor never seemed to fit."""
    world = World()
    world.node("cpu-1", cpu=64)
    world.model(seconds={"cpu": 30.0})
    world.job(OURS, batch=False, replicas=replicas, resources={"requests": {"cpu": "1"}, "limits": {"cpu": "4"}})
    limit_limits(world, 4 * replicas)
    roll_out(world)

    assert (len(world.answering(OURS)), len(revisions_of(world, OURS)), world.created(OURS)) == (replicas, 1, 2 * replicas)


def test_workers_make_room_one_at_a_time_where_the_quota_is_counted_late() -> None:
    """Refused by an old count, the successor of the first must not cost a second."""
    world = serving(3)
    limit_pods(world, 3, lag=3.0)
    roll_out(world)

    assert (len(world.answering(OURS)), len(revisions_of(world, OURS)), world.created(OURS)) == (3, 1, 6)
    assert least_of(world) == 2


@pytest.mark.parametrize("limit", [2, 3])
def test_a_roll_out_ends_in_a_quota_that_has_room_for_fewer_than_are_wanted(limit: int) -> None:
    """What was refused before a worker left says nothing of the room since: with it, all but one left at once."""
    world = serving(limit + 1)
    limit_pods(world, limit)
    roll_out(world)

    assert (len(world.answering(OURS)), len(revisions_of(world, OURS)), world.created(OURS)) == (limit, 1, 2 * limit)
    assert least_of(world) == limit - 1


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("limit", [0, 1], ids=["none", "for one"])
def test_nobody_leaves_for_a_quota_that_has_no_room_even_then(replicas: int, limit: int) -> None:
    """The quota was lowered below what runs: a worker that left would have no successor."""
    world = serving(replicas)
    world.at(35.0, lambda: limit_pods(world, min(limit, replicas - 1)))
    roll_out(world)

    assert len(world.answering(OURS)) == least_of(world) == replicas
    assert world.status(OURS)["conditions"][-1]["reason"] == "QuotaExceeded"


@pytest.mark.parametrize(("others", "created"), [(0, 2), (1, 1)], ids=["it fits then", "it does not"])
def test_nobody_leaves_for_a_larger_successor_that_would_not_fit_then(others: int, created: int) -> None:
    world = serving(1)
    limit_cpu(world, 2, others=others)
    roll_out(world, resources={"requests": {"cpu": "2"}})

    assert (len(world.answering(OURS)), world.created(OURS)) == (1, created)
    assert least_of(world) == 2 - created


def test_one_that_answers_stays_where_somebody_else_takes_the_room_that_was_made() -> None:
    world = serving(3)
    limit_pods(world, 3)
    world.at(41.0, lambda: world.job("rival", batch=False, replicas=3, resources={"requests": {"cpu": "1"}}))
    roll_out(world)

    assert least_of(world) >= 1
    assert world.created(OURS) <= 6

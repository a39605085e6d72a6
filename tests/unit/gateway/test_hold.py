"""Who may wait for a worker, and what it is told otherwise."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.hold import HELD_BYTES, Asked, Bounds, Refusal, asked, left, refusal
from inference_operator.gateway.holding import Holding, Outlook
from inference_operator.gateway.snapshot import Backend, Service

MOST = Bounds(2, 2 * HELD_BYTES)
NONE = Bounds(0, 0)
ROUTE = "http:default/m"
ASLEEP = Service("default", "m", "1", True, (), ServeGateway(idle_seconds=5))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"inference-timeout-ms": "1500"}, 1.5),
        ({"grpc-timeout": "20S"}, 20.0),
        ({"grpc-timeout": "20S", "inference-timeout-ms": "100"}, 0.1),
        ({"inference-timeout-ms": "soon", "grpc-timeout": "1w"}, None),
        ({"inference-timeout-ms": "inf"}, None),
        ({"inference-timeout-ms": "-3"}, 0.0),
    ],
)
def test_a_deadline_is_read_from_either_header(headers: dict[str, str], seconds: float | None) -> None:
    assert asked(headers).seconds == seconds


@pytest.mark.parametrize(("length", "size"), [("10", 10), ("99999999999", HELD_BYTES), ("", HELD_BYTES), ("-1", HELD_BYTES)])
def test_a_request_counts_what_envoy_keeps_of_it(length: str, size: int) -> None:
    assert asked({"content-length": length}).size == size


def test_what_is_left_is_told_in_the_callers_own_headers() -> None:
    assert left({"grpc-timeout": "10S"}, 4.0) == {"grpc-timeout": "6000m"}
    assert left({"inference-timeout-ms": "500"}, 4.0) == {"inference-timeout-ms": "1"}
    assert left({"inference-timeout-ms": "soon"}, 4.0) == {}


@pytest.mark.parametrize(
    ("request_", "waiting", "expected", "problem", "status"),
    [
        (Asked(None, 1), NONE, 5.0, None, None),
        (Asked(6.0, 1), NONE, 5.0, None, None),
        (Asked(4.0, 1), NONE, None, None, None),
        (Asked(4.0, 1), NONE, 5.0, None, 504),
        (Asked(None, 1), Bounds(2, 2), 5.0, None, 429),
        (Asked(None, HELD_BYTES), Bounds(1, 2 * HELD_BYTES - 1), 5.0, None, 429),
        (Asked(None, 1), NONE, 5.0, "no node fits", 503),
    ],
)
def test_who_may_wait(request_: Asked, waiting: Bounds, expected: float | None, problem: str | None, status: int | None) -> None:
    refused = refusal(request_, waiting, MOST, expected, problem)

    assert (refused.status if refused is not None else None) == status
    assert refused is None or expected is None or refused.retry_seconds >= expected


@dataclass
class World:
    """A service, and who woke it."""

    service: Service = ASLEEP
    outlook: Outlook = field(default_factory=Outlook)
    woken: int = 0
    taken: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.taken.set()

    def holding(self, seconds: float = 5.0) -> Holding:
        return Holding(
            lambda route: self.service if route == ROUTE else None,
            lambda _: self.outlook,
            self.wake,
            self.told,
            asyncio.get_running_loop().time,
            MOST,
            seconds,
        )

    async def wake(self, _: Service) -> None:
        self.woken += 1

    async def told(self) -> None:
        await self.taken.wait()


def headers(**more: str) -> dict[str, str]:
    return {"inference-route": ROUTE, **{name.replace("_", "-"): value for name, value in more.items()}}


async def test_a_request_goes_on_once_there_is_a_worker_with_what_is_left_of_its_time() -> None:
    world = World()
    holding = world.holding()
    waiting = asyncio.create_task(holding.check(headers(inference_timeout_ms="4000")))
    begun = asyncio.get_running_loop().time()
    await asyncio.sleep(0.02)
    assert world.woken == 1 and not waiting.done()

    world.service = replace(ASLEEP, backends=(Backend("10.0.0.1", "a"),))
    holding.look_again()
    told = await waiting

    spent = 1000 * (asyncio.get_running_loop().time() - begun)
    assert isinstance(told, dict) and 4000 - spent - 1 <= int(told["inference-timeout-ms"]) < 3900


async def test_a_request_goes_on_no_sooner_than_envoys_know_of_the_worker() -> None:
    world = World()
    holding = world.holding()
    world.taken.clear()
    waiting = asyncio.create_task(holding.check(headers()))
    await asyncio.sleep(0)
    world.service = replace(ASLEEP, backends=(Backend("10.0.0.1", "a"),))
    holding.look_again()

    done, _ = await asyncio.wait([waiting], timeout=0.3)
    world.taken.set()

    assert not done and await asyncio.wait_for(waiting, 60) == {}


async def test_a_request_of_a_service_that_is_up_or_gone_is_let_through_once_envoys_know_that() -> None:
    world = World(replace(ASLEEP, backends=(Backend("10.0.0.1", "a"),)))
    world.taken.clear()
    waiting = asyncio.create_task(world.holding().check(headers()))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    world.taken.set()
    assert await asyncio.wait_for(waiting, 60) == {}

    assert await world.holding().check(headers()) == {}
    assert await world.holding().check({"inference-route": "http:default/gone"}) == {}
    assert not world.woken


async def test_who_can_not_wait_wakes_the_service_all_the_same() -> None:
    world = World(outlook=Outlook(expected_seconds=10.0))
    told = await world.holding().check(headers(inference_timeout_ms="100"))

    assert isinstance(told, Refusal) and told.status == 504 and world.woken == 1


async def test_places_are_bounded_and_come_free_whoever_leaves() -> None:
    holding = World().holding()
    waiting = [asyncio.create_task(holding.check(headers())) for _ in range(2)]
    await asyncio.sleep(0.01)
    refused = await holding.check(headers())
    assert isinstance(refused, Refusal) and refused.status == 429

    # A caller that hangs up.
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    another = asyncio.create_task(holding.check(headers()))
    await asyncio.sleep(0.01)
    assert not another.done()
    for task in (*waiting, another):
        task.cancel()


async def test_nobody_waits_longer_than_the_setting_says() -> None:
    told = await World().holding(0.05).check(headers())

    assert isinstance(told, Refusal) and told.status == 504


async def test_who_waits_hears_that_no_worker_will_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_operator.gateway.holding._LOOK_SECONDS", 0.01)
    world = World()
    waiting = asyncio.create_task(world.holding().check(headers()))
    await asyncio.sleep(0.03)
    world.outlook = Outlook(problem="no node fits")
    told = await waiting

    assert told == Refusal(503, "no node fits")

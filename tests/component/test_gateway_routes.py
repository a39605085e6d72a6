"""Routes of a real Envoy: who gets how much, and who only a copy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.snapshot import Service
from tests.component.doors import Counting, Plane, plane
from tests.component.operators import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

INFER = "/default/v2/models/m/infer"


@pytest.fixture
async def workers() -> AsyncIterator[Counting]:
    made = Counting()
    yield made
    await made.end()


async def many(
    door: Plane, count: int, path: str = INFER, headers: dict[str, str] | None = None, *, callers: int = 20
) -> list[tuple[int, str]]:
    """So many requests by so many callers at a time."""

    async def call(number: int) -> list[tuple[int, str]]:
        return [(await door.ask(path, headers))[:2] for _ in range(number)]

    found = await asyncio.gather(*(call(count // callers) for _ in range(callers)))
    return [one for answers in found for one in answers]


async def test_a_canary_gets_its_share_of_ten_thousand_requests(workers: Counting, tmp_path: Path) -> None:
    stable = Service("default", "m", "1", True, (await workers.start("stable", 1),))
    canary = Service("default", "m", "2", False, (await workers.start("canary", 2),), ServeGateway(traffic_percent=10))
    async with plane(tmp_path, stable, canary) as door:
        await door.until("/default/v2/models/m/versions/2/infer", "canary")
        workers.asked.clear()
        # What a caller says of the draw is not listened to.
        answers = await many(door, 10_000, headers={"inference-draw": "5"})

        assert all(status == 200 for status, _ in answers)
        assert 950 <= workers.asked["canary"] <= 1050 and workers.asked.total() == 10_000, workers.asked
        # Who names a version gets it.
        assert {text for _, text in await many(door, 100, "/default/v2/models/m/versions/1/infer")} == {"stable"}


async def test_a_mirror_gets_copies_and_changes_no_answer(workers: Counting, tmp_path: Path) -> None:
    stable = Service("default", "m", "1", True, (await workers.start("stable", 1),))
    shadow = Service("default", "m", "2", False, (await workers.start("shadow", 2),), ServeGateway(mirror_percent=100))
    async with plane(tmp_path, stable, shadow) as door:
        await door.until(INFER, "stable")
        await asyncio.sleep(0.2)
        workers.asked.clear()
        answers = await many(door, 1000)

        assert set(answers) == {(200, "stable")}
        await until(lambda: workers.asked["shadow"] == 1000, f"a copy of each: {workers.asked}")


async def test_a_canary_without_a_worker_loses_nobodys_request(workers: Counting, tmp_path: Path) -> None:
    backend = await workers.start("stable", 1)
    stable = Service("default", "m", "1", True, (backend,))
    canary = Service("default", "m", "2", False, (), ServeGateway(traffic_percent=50))
    async with plane(tmp_path, stable, canary) as door:
        await door.until(INFER, "stable")
        assert set(await many(door, 200)) == {(200, "stable")}

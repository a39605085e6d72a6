"""Routes of a real Envoy: who gets how much, and who only a copy."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from inference_operator.api.gateway import ServeGateway, TrafficDistribution
from inference_operator.gateway.snapshot import Backend, Service
from tests import loopback
from tests.component.doors import Counting, Plane, plane
from tests.component.operators import until

if TYPE_CHECKING:
    from pathlib import Path

INFER = "/default/v2/models/m/infer"


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
        # Once one is copied, all later ones are.
        await door.until(INFER, "stable")
        await until(lambda: workers.asked["shadow"], "the first copy")
        before = workers.asked["stable"] - workers.asked["shadow"]
        answers = await many(door, 1000)

        assert set(answers) == {(200, "stable")}
        await until(lambda: workers.asked["stable"] - workers.asked["shadow"] == before, f"a copy of each: {workers.asked}")


async def test_a_canary_without_a_worker_loses_nobodys_request(workers: Counting, tmp_path: Path) -> None:
    backend = await workers.start("stable", 1)
    stable = Service("default", "m", "1", True, (backend,))
    canary = Service("default", "m", "2", False, (), ServeGateway(traffic_percent=50))
    async with plane(tmp_path, stable, canary) as door:
        await door.until(INFER, "stable")
        assert set(await many(door, 200)) == {(200, "stable")}


async def test_a_request_over_the_bound_is_told_429_and_when_to_come_again(workers: Counting, tmp_path: Path) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: web.Request) -> None:
        inside.set()
        await go_on.wait()

    service = Service("default", "m", "1", True, (await workers.start("worker", 1),), ServeGateway(max_parallel_requests=1))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "worker")
        workers.acts["worker"] = wait
        first = asyncio.create_task(door.ask(INFER))
        await inside.wait()
        status, text, headers = await door.ask(INFER)
        go_on.set()

        assert status == 429 and headers["Retry-After"] == "1" and "too many requests" in json.loads(text)["error"]
        assert (await first)[0] == 200


async def test_what_a_worker_has_no_room_for_is_told_in_its_words_and_asks_no_worker_again(
    workers: Counting, tmp_path: Path
) -> None:
    """Tried again, it would cost workers under load time for requests that they can't answer anyway."""

    async def full(_: web.Request) -> web.Response:
        return web.json_response({"error": "full"}, status=429, headers={"Retry-After": "7"})

    service = Service("default", "m", "1", True, tuple([await workers.start(name, n) for n, name in enumerate("ab", 1)]))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "a")
        workers.acts |= {"a": full, "b": full}
        workers.asked.clear()
        status, text, headers = await door.ask(INFER)
        assert (status, text, headers["Retry-After"]) == (429, '{"error": "full"}', "7")
        answers = await many(door, 1000, callers=100)
        assert {status for status, _ in answers} == {429} and workers.asked.total() == 1001, workers.asked


async def test_a_worker_that_refuses_connections_costs_nobody_an_answer(workers: Counting, tmp_path: Path) -> None:
    there = await workers.start("there", 1)
    service = Service("default", "m", "1", True, (there,))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "there")
        # No health check has told of it yet: its first requests find nobody.
        door.say(replace(service, backends=(there, Backend(loopback.address(9), "gone"))))
        assert set(await many(door, 200)) == {(200, "there")}


async def test_who_has_just_woken_is_asked_before_envoy_has_checked_it(workers: Counting, tmp_path: Path) -> None:
    """A check that fails stands for one that hasn't come yet."""
    workers.unready.add("a")
    a, b = await workers.start("a", 1), await workers.start("b", 2)
    service, other = Service("default", "m", "1", True, ()), Service("default", "other", "1", True, (b,))
    async with plane(tmp_path, service, other) as door:
        await door.until("/default/v2/models/other/infer", "b")
        door.say(replace(service, backends=(replace(a, first=True),)))
        await door.word.taken()
        assert set(await many(door, 50)) == {(200, "a")}
        # The next one is checked, and neither its coming nor the other's leaving is a gap.
        door.say(replace(service, backends=(replace(a, first=True), b)))
        asking = asyncio.create_task(many(door, 300, callers=3))
        await door.until(INFER, "b")
        door.say(replace(service, backends=(replace(a, draining=True), replace(b, first=True))))
        assert {status for status, _ in await asking} == {200}
        await door.until(INFER, "b")


async def test_a_silent_worker_costs_a_caller_its_deadline_and_no_more(workers: Counting, tmp_path: Path) -> None:
    over = asyncio.Event()

    async def silent(_: web.Request) -> None:
        await over.wait()

    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "worker")
        await door.ask(INFER, {"Inference-Timeout-Ms": "5000"})
        # The worker knows the caller's word, and Envoy's, which counts down while it tries again.
        assert workers.headers["worker"]["Inference-Timeout-Ms"] == "5000"
        assert workers.headers["worker"]["x-envoy-expected-rq-timeout-ms"] == "5250"
        workers.acts["worker"] = silent
        begun = asyncio.get_running_loop().time()
        status, text, _ = await door.ask(INFER, {"Inference-Timeout-Ms": "100"})

        # The worker is silent still: Envoy has told it, a quarter of a second after the deadline.
        assert status == 504 and "deadline" in json.loads(text)["error"]
        assert asyncio.get_running_loop().time() - begun >= 0.1
        over.set()


async def test_a_caller_can_not_order_retries_or_timeouts_of_envoy(workers: Counting, tmp_path: Path) -> None:
    async def fails(_: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.Response(status=500)

    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "worker")
        workers.acts["worker"] = fails
        workers.asked.clear()
        orders = {"x-envoy-retry-on": "5xx", "x-envoy-max-retries": "5", "x-envoy-upstream-rq-timeout-ms": "1"}
        assert (await door.ask(INFER, orders))[0] == 500
        assert workers.asked["worker"] == 1


@pytest.mark.parametrize("said", ["soon", "-5", "1e9999", "nan", "inf", "0x10", "", "1.5", "99999999999999999999"])
async def test_an_odd_deadline_is_left_to_the_worker(workers: Counting, tmp_path: Path, said: str) -> None:
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "worker")
        assert (await door.ask(INFER, {"Inference-Timeout-Ms": said}))[:2] == (200, "worker")
        assert "lua" not in door.envoy.log.lower(), door.envoy.log[-500:]


async def test_a_session_stays_with_its_worker_and_sessions_spread(workers: Counting, tmp_path: Path) -> None:
    backends = tuple([await workers.start(name, number) for number, name in enumerate("abc", 1)])
    service = Service("default", "m", "1", True, backends, ServeGateway(affinity_header="session-id"))
    async with plane(tmp_path, service) as door:
        for name in "abc":
            await door.until(INFER, name)
        chosen = {}
        for session in map(str, range(60)):
            answers = await many(door, 5, headers={"session-id": session}, callers=1)
            assert len(set(answers)) == 1
            chosen[session] = answers[0][1]
        assert set(chosen.values()) == set("abc")

        # A worker that goes takes its own sessions with it, and hardly another: the table is made anew.
        left = {session for session, name in chosen.items() if name == "c"}
        door.say(replace(service, backends=backends[:2]))
        while (await door.ask(INFER, {"session-id": min(left)}))[1] == "c":
            await asyncio.sleep(0.01)
        moved = {session for session, name in chosen.items() if (await door.ask(INFER, {"session-id": session}))[1] != name}
        assert left <= moved and len(moved - left) <= 3, (left, moved)


async def test_a_session_with_more_than_its_share_is_answered_by_others_too(workers: Counting, tmp_path: Path) -> None:
    async def slow(_: web.Request) -> None:
        await asyncio.sleep(0.05)

    backends = tuple([await workers.start(name, number) for number, name in enumerate("abc", 1)])
    service = Service("default", "m", "1", True, backends, ServeGateway(affinity_header="session-id"))
    async with plane(tmp_path, service) as door:
        for name in "abc":
            await door.until(INFER, name)
        workers.acts |= dict.fromkeys("abc", slow)
        workers.asked.clear()
        await many(door, 600, headers={"session-id": "hot"}, callers=60)
        # Half as many again as the average: half of all, not all.
        assert max(workers.asked.values()) < 400, workers.asked


async def test_requests_stay_in_the_envoys_zone_while_its_workers_answer(workers: Counting, tmp_path: Path) -> None:
    near, far = await workers.start("near", 1), await workers.start("far", 2)
    backends = (replace(near, zone="b"), replace(far, zone="a"))
    options = ServeGateway(traffic_distribution=TrafficDistribution.PREFER_SAME_ZONE)
    service = Service("default", "m", "1", True, backends, options)
    async with plane(tmp_path, service, zone="b") as door:
        await door.until(INFER, "near")
        await until(lambda: workers.probed["far"], "a look at the far one")
        assert set(await many(door, 100)) == {(200, "near")}
        door.say(replace(service, backends=(replace(backends[0], draining=True), backends[1])))
        await door.until(INFER, "far")
        assert set(await many(door, 100)) == {(200, "far")}

"""Who gets what: a canary's share, a mirror's copies, and two workers of which one is twice as slow."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.gateway.callers import Pool, connect, open_loop, request
from bench.gateway.stage import PATH, Gateway, Paced, answers, gateway, paced, plain_envoy
from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.weights import weights
from inference_protocol.messages import HTTP_PORT
from tests import loopback

_THROUGH = f"/bench{PATH}"
_REQUESTS, _CALLERS = 10_000, 16
_FAST, _SLOW = 0.010, 0.020
# Of what both can answer.
_SHARE, _SECONDS, _WINDOW_SECONDS = 0.7, 15.0, 5.0


async def shares(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """What a canary of 10 % gets of 10,000 requests, and how many answers a mirror of all changes."""
    found = []
    async with paced(loopback.address(4), "stable", 0.0) as stable, paced(loopback.address(5), "other", 0.0) as other:
        first = Service("bench", "m", "1", True, (Backend(loopback.address(4), "a"),))
        canary, mirror = (
            Service("bench", "m", "2", False, (Backend(loopback.address(5), "b"),), options)
            for options in (ServeGateway(traffic_percent=10), ServeGateway(mirror_percent=100))
        )
        async with gateway(folder, first, canary) as told:
            await answers("127.0.0.1", told.port, f"/bench{PATH.replace('/infer', '/versions/2/infer')}")
            for _ in range(rounds):
                told.say(first, canary)
                await asyncio.sleep(0.5)
                stable.asked = other.asked = 0
                await _many(told.port)
                share = other.asked / _REQUESTS
                told.say(first, mirror)
                await asyncio.sleep(0.5)
                other.asked = 0
                changed = sum(body != b"stable" for body in await _many(told.port))
                await asyncio.sleep(0.5)
                found.append({"part": "shares", "canaryPercent": share * 100, "answersChanged": changed, "copies": other.asked})
    return found


async def _many(port: int) -> list[bytes]:
    async def call() -> list[bytes]:
        caller = await connect("127.0.0.1", port)
        return [(await caller.ask(request(b"{}", _THROUGH)))[1] for _ in range(_REQUESTS // _CALLERS)]

    return [body for bodies in await asyncio.gather(*(call() for _ in range(_CALLERS))) for body in bodies]


async def two_speeds(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The p99 of each way to split requests between two workers, by turns; the clairvoyant one knows when each will be free."""
    fast, slow = loopback.address(6), loopback.address(7)
    rate = _SHARE * (1 / _FAST + 1 / _SLOW)
    found = []
    async with paced(fast, "fast", _FAST) as one, paced(slow, "slow", _SLOW) as other:
        workers = [one, other]
        with (
            plain_envoy(folder, [fast, slow], "LEAST_REQUEST") as (least, _),
            plain_envoy(folder, [fast, slow], "ROUND_ROBIN") as (turns, _),
        ):
            async with _weighed(folder, {fast: one, slow: other}) as told:
                ways: dict[str, Callable[[], Awaitable[int]]] = {
                    "clairvoyant": _clairvoyant({fast: _FAST, slow: _SLOW}),
                    "gateway": _by(told.port, _THROUGH),
                    "leastRequest": _by(least, PATH),
                    "roundRobin": _by(turns, PATH),
                }
                await open_loop(ways["gateway"], rate=rate, seconds=2 * _WINDOW_SECONDS + 1, seed=99)
                for number in range(rounds):
                    for way, ask in ways.items():
                        await asyncio.sleep(0.5)
                        before = [worker.asked for worker in workers]
                        seen = await open_loop(ask, rate=rate, seconds=_SECONDS, seed=number)
                        slows = workers[1].asked - before[1]
                        row = {"p50Ms": round(seen.quantile(50), 1), "p99Ms": round(seen.quantile(99), 1), "lost": seen.lost}
                        found.append({"part": "speeds", "way": way, **row, "slowShare": round(slows / len(seen.answers), 3)})
    return found


@asynccontextmanager
async def _weighed(folder: Path, workers: dict[str, Paced]) -> AsyncIterator[Gateway]:
    """An Envoy that is told of weights as the operator makes them, of what each worker says of its speed."""
    service = Service("bench", "m", "1", True, tuple(Backend(address, address) for address in workers))
    async with gateway(folder, service) as told:

        async def reweigh() -> None:
            known: dict[str, int] = {}
            while True:
                await asyncio.sleep(_WINDOW_SECONDS)
                known.update(weights(known, {address: paced.seconds for address, paced in workers.items()}))
                told.say(service, weights=known)

        task = asyncio.create_task(reweigh())
        try:
            await answers("127.0.0.1", told.port, _THROUGH)
            yield told
        finally:
            task.cancel()


def _by(port: int, path: str) -> Callable[[], Awaitable[int]]:
    pool, given = Pool("127.0.0.1", port), request(b"{}", path)
    return lambda: pool.ask(given)


def _clairvoyant(seconds: dict[str, float]) -> Callable[[], Awaitable[int]]:
    """To whoever is done first with all it has, this request included."""
    pools, free_at, given = {a: Pool(a, HTTP_PORT) for a in seconds}, dict.fromkeys(seconds, 0.0), request(b"{}", PATH)

    async def ask() -> int:
        now = asyncio.get_running_loop().time()
        done = {address: max(free_at[address], now) + takes for address, takes in seconds.items()}
        chosen = min(done, key=lambda address: done[address])
        free_at[chosen] = done[chosen]
        return await pools[chosen].ask(given)

    return ask

"""Under load: beside an Envoy with a static route, at twice the capacity with deadlines, and with 15,000 connections."""

import asyncio
import random
import resource
from pathlib import Path
from typing import Any

from bench.gateway.callers import Pool, Seen, closed_loop, connect, open_loop, request
from bench.gateway.stage import BODY, PATH, answers, gateway, plain_envoy, worker
from bench.proc import cpu_seconds, memory_mib
from inference_operator.gateway.snapshot import Backend, Service
from inference_protocol.messages import HTTP_PORT
from tests import loopback

_THROUGH = f"/bench{PATH}"
_CALLERS, _SECONDS = 16, 5.0
# Short and often, so that whatever else the machine does meets both.
_TURNS, _TURN_SECONDS = 8, 1.0
# So many keep the worker's batches full.
_SATURATING = 64
_DEADLINE_SECONDS = 0.1
_FEW, _MANY = 100, 15_000


def _service(address: str) -> Service:
    return Service("bench", "m", "1", True, (Backend(address, "a"),))


async def beside_plain(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The same worker through our Envoy and through a plain one by turns: answers a second, p99, and the Envoys' CPU."""
    address, found = loopback.address(1), []
    with worker(folder, address), plain_envoy(folder, [address], "LEAST_REQUEST") as (plain, pid):
        async with gateway(folder, _service(address)) as told:
            await answers("127.0.0.1", told.port, _THROUGH)
            await answers("127.0.0.1", plain, PATH)
            ways = {"plain": (plain, PATH, pid), "gateway": (told.port, _THROUGH, told.envoy.process.pid)}
            for number in range(rounds * _TURNS):
                for way in sorted(ways, reverse=bool(number % 2)):
                    port, path, process = ways[way]
                    before = cpu_seconds(process)
                    seen = await closed_loop("127.0.0.1", port, request(BODY, path), callers=_CALLERS, seconds=_TURN_SECONDS)
                    used = cpu_seconds(process) - before
                    found.append(
                        {
                            "part": "plain",
                            "way": way,
                            "rate": round(seen.rate),
                            "p99Ms": round(seen.quantile(99), 2),
                            "lost": seen.lost,
                            "envoyCpuMicroseconds": round(used / len(seen.answers) * 1e6),
                        }
                    )
    return found


async def goodput(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """What is answered within 100 ms when twice as much comes as the worker can answer, over that; and the same without Envoy."""
    address, found = loopback.address(2), []
    # A model that takes milliseconds: callers and Envoy are to have the rest of the machine.
    with worker(folder, address, steps=400, width=256):
        body = BODY.replace(b"[1, 64]", b"[1, 256]").replace(b"0.5", b"0.5, 0.5, 0.5, 0.5")
        async with gateway(folder, _service(address)) as told:
            await _answers_to(told.port, body)
            given = {"Inference-Timeout-Ms": f"{_DEADLINE_SECONDS * 1e3:.0f}"}
            ways = {"gateway": ("127.0.0.1", told.port, _THROUGH), "direct": (address, HTTP_PORT, PATH)}
            for number in range(rounds):
                most = await closed_loop(address, HTTP_PORT, request(body, PATH), callers=_SATURATING, seconds=_SECONDS)
                for way, (host, port, path) in sorted(ways.items(), reverse=bool(number % 2)):
                    over = await _over(Pool(host, port), request(body, path, given), 2 * most.rate, number)
                    timely = sum(taken <= _DEADLINE_SECONDS for taken in over.good) / over.seconds
                    row = {"part": "goodput", "way": way, "capacity": round(most.rate, 1), "timely": round(timely, 1)}
                    found.append(row | {"share": round(timely / most.rate, 3), "statuses": over.statuses})
    return found


async def _over(pool: Pool, given: bytes, rate: float, seed: int) -> Seen:
    seen = await open_loop(lambda: pool.ask(given), rate=rate, seconds=_SECONDS, seed=seed)
    pool.close()
    return seen


async def _answers_to(port: int, body: bytes) -> None:
    pool = Pool("127.0.0.1", port)
    for _ in range(600):
        if await pool.ask(request(body, _THROUGH)) == 200:
            break
        await asyncio.sleep(0.1)
    pool.close()


async def connections(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The same load over 100 and over 15,000 connections by turns."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < _MANY + 1000:
        return [{"part": "connections", "void": f"{hard} open files are allowed"}]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address, found = loopback.address(3), []
    try:
        with worker(folder, address):
            async with gateway(folder, _service(address)) as told:
                await answers("127.0.0.1", told.port, _THROUGH)
                few = [await connect("127.0.0.1", told.port) for _ in range(_FEW)]
                for number in range(rounds):
                    many = [await connect("127.0.0.1", told.port) for _ in range(_MANY)]
                    for name, callers in (("many", many), ("few", few)):
                        free, chance = list(callers), random.Random(number)

                        async def ask(free: list[Any] = free, chance: random.Random = chance) -> int:
                            caller = free.pop(chance.randrange(len(free)))
                            status, _ = await caller.ask(request(BODY, _THROUGH))
                            free.append(caller)
                            return int(status)

                        seen = await open_loop(ask, rate=300, seconds=2 * _SECONDS, seed=number)
                        found.append(
                            {
                                "part": "connections",
                                "connections": len(callers),
                                "p50Ms": round(seen.quantile(50), 2),
                                "p99Ms": round(seen.quantile(99), 2),
                                "lost": seen.lost,
                                "envoyMib": round(memory_mib(told.envoy.process.pid)[0]),
                            }
                        )
                        if name == "many":
                            for caller in many:
                                caller.close()
                            await asyncio.sleep(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return found

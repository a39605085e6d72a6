"""What is lost while things end: callers without a pause, who never try again, through two Envoys before two real workers."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from bench.gateway.callers import connect, request
from bench.gateway.stage import BODY, PATH, Gateway, answers, gateway, worker
from inference_operator.gateway.snapshot import Backend, Service
from inference_protocol.messages import HTTP_PORT
from tests import loopback

_THROUGH = f"/bench{PATH}"
_CALLERS = 4
# Before and after what happens.
_SETTLE_SECONDS = 1.5


class Callers:
    """Each stays with the Envoy that it has a connection to, and takes the other when that one is no more to be had."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.answered = 0
        self.lost: list[str] = []
        self._tasks = [asyncio.create_task(self._call(number)) for number in range(_CALLERS)]

    async def _call(self, number: int) -> None:
        caller = None
        while True:
            if caller is None or caller.closed:
                with suppress(OSError):
                    caller = await connect("127.0.0.1", self.ports[number % len(self.ports)])
                number += 1
                if caller is None or caller.closed:
                    await asyncio.sleep(0)
                    continue
            status, body = await caller.ask(request(BODY, _THROUGH))
            self.answered += status == 200
            if status != 200:
                self.lost.append(f"{status} {body[:80]!r}")

    async def during(self, what: str, act: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        """What is lost while something happens."""
        await asyncio.sleep(_SETTLE_SECONDS)
        answered, lost = self.answered, len(self.lost)
        await act()
        await asyncio.sleep(_SETTLE_SECONDS)
        row = {"part": "lost", "what": what, "answered": self.answered - answered, "lost": len(self.lost) - lost}
        return row | ({"as": sorted(set(self.lost[lost:]))[:3]} if self.lost[lost:] else {})

    def end(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()


async def lost(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """One row for each thing that ends, in each round."""
    found = []
    for number in range(rounds):
        made = folder / f"lost-{number}"
        made.mkdir()
        found += await _round(made, [loopback.address(40 + 10 * number + n) for n in range(3)])
    return found


async def _round(folder: Path, addresses: list[str]) -> list[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        workers = {a: stack.enter_context(worker(folder, a)) for a in addresses[:2]}
        doors = [await stack.enter_async_context(gateway(folder, _service(addresses[:2]), name=f"envoy-{n}")) for n in (1, 2)]
        for address in workers:
            await answers(address, HTTP_PORT, PATH)
        for door in doors:
            await answers("127.0.0.1", door.port, _THROUGH)
        callers = Callers([door.port for door in doors])

        async def leave(leaving: str, staying: list[str]) -> None:
            workers[leaving].send_signal(signal.SIGTERM)
            # The operator hears of it from the API server.
            await asyncio.sleep(0.1)
            _say(doors, staying, leaving)
            await asyncio.to_thread(workers[leaving].wait)

        async def roll_out() -> None:
            workers[addresses[2]] = stack.enter_context(worker(folder, addresses[2]))
            await answers(addresses[2], HTTP_PORT, PATH)
            _say(doors, addresses[1:])
            await leave(addresses[1], addresses[2:])

        async def control_plane() -> None:
            for door in doors:
                await door.restart(2.0)
            # They come back to it within two seconds.
            await asyncio.sleep(2.5)

        async def stop() -> None:
            callers.ports = callers.ports[:1]
            doors[1].say(_service(addresses[2:]), leaving=True)
            await asyncio.sleep(3)
            doors[1].envoy.end()

        async def kill() -> None:
            doors[0].envoy.end()

        try:
            return [
                await callers.during("drain", lambda: leave(addresses[0], addresses[1:2])),
                await callers.during("rollOut", roll_out),
                await callers.during("operatorKilled", control_plane),
                await callers.during("envoyStopped", stop),
                # All callers are on this one now; what is under way in it is lost.
                await callers.during("envoyKilled", kill),
            ]
        finally:
            callers.end()


def _service(there: list[str], leaving: str = "") -> Service:
    backends = [Backend(a, a) for a in there] + ([Backend(leaving, leaving, draining=True)] if leaving else [])
    return Service("bench", "m", "1", True, tuple(backends))


def _say(doors: list[Gateway], there: list[str], leaving: str = "") -> None:
    for door in doors:
        door.say(_service(there, leaving))

"""From zero: a burst of 500 requests for a model without a worker, which starts for them."""

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.gateway.callers import Seen, connect, request
from bench.gateway.stage import BODY, PATH, answers, gateway, worker
from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.hold import Bounds
from inference_operator.gateway.holding import Holding, Outlook
from inference_operator.gateway.snapshot import Backend, Service
from inference_protocol.messages import HTTP_PORT
from tests import loopback

_BURST = 500
_THROUGH = f"/bench{PATH}"


async def from_zero(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """How long after its worker answers the first request is answered, and how many of the burst are not."""
    return [await _once(folder, loopback.address(20 + number), f"zero-{number}") for number in range(rounds)]


async def _once(folder: Path, address: str, name: str) -> dict[str, Any]:
    service = Service("bench", "m", "1", True, (), ServeGateway(idle_seconds=1))
    woken, said = asyncio.Event(), {"now": service}

    async def wake(_: Service) -> None:
        woken.set()

    async def taken() -> None:
        await told.word.taken()

    most = Bounds(2 * _BURST, 1 << 30)
    holding = Holding(lambda _: said["now"], lambda _: Outlook(), wake, taken, time.monotonic, most, most_seconds=60.0)
    async with gateway(folder, service, holding=holding, name=name) as told:
        await _listens(told.port)
        burst = [asyncio.create_task(_ask(told.port)) for _ in range(_BURST)]
        await woken.wait()
        with worker(folder, address):
            begun = time.perf_counter()
            # As the operator hears it: from the kubelet, which asks the worker.
            await answers(address, HTTP_PORT, PATH)
            ready = time.perf_counter()
            said["now"] = Service("bench", "m", "1", True, (Backend(address, "a", first=True),), service.options)
            told.say(said["now"])
            holding.look_again()
            done = await asyncio.gather(*burst)
    seen = Seen([(at - begun, status) for at, status in done])
    first = min(at for at, status in done if status == 200) - ready
    last = max(at for at, _ in done) - ready
    return {
        "part": "zero",
        "startSeconds": round(ready - begun, 2),
        "firstAfterSeconds": round(first, 3),
        "lastAfterSeconds": round(last, 3),
        "lost": seen.lost,
    }


async def _listens(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                (await connect("127.0.0.1", port)).close()
                return
            except OSError:
                await asyncio.sleep(0.05)


async def _ask(port: int) -> tuple[float, int]:
    caller = await connect("127.0.0.1", port)
    status, _ = await caller.ask(request(BODY, _THROUGH))
    caller.close()
    return time.perf_counter(), status

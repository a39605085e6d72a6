"""What mutual TLS adds to the operator's questions: CPU of its own client, for one worker that is asked again and again."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference_operator.controllers import worker_client
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.kube.ports import WorkerAddress
from inference_operator.runtime.bounded_http import BoundedHttp
from tests.process import models
from tests.process.harness import Place, Worker, a_config
from tests.process.test_identity import a_world, has_certificate, meant, until
from tests.unit.controllers.test_worker_client import leading

_POLLS, _BLOCK = 4000, 200


def polls() -> dict[str, float]:
    """Microseconds of the operator's CPU for one question, in plain HTTP and by mutual TLS, on connections that stay."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(Path(scratch))
        try:
            return asyncio.run(_measure(place))
        finally:
            place.end()


async def _measure(place: Place) -> dict[str, float]:
    async with a_world(place) as world, BoundedHttp() as http:
        plain = place.start(a_config(place.put("plain.onnx", models.two_outputs())))
        mutual = world.start(place.root / "identity-of-it")
        await until(lambda: plain.answers("/v2/health/ready") == 200, "the plain worker")
        await has_certificate(mutual)
        sides: dict[str, tuple[WorkerHttpClient, Callable[[], None]]] = {
            "plain": (WorkerHttpClient(http, leading()), _at("HTTP_PORT", plain, "port")),
            "mutual": (world.client, _at("CONTROL_PORT", mutual, "control_port")),
        }
        cpu = dict.fromkeys(sides, 0.0)
        for turn in range(-1, _POLLS // _BLOCK):
            for name, (client, aim) in sides.items():
                aim()
                before = time.process_time()
                await _ask(client, meant())
                # The first turn connects.
                cpu[name] += time.process_time() - before if turn >= 0 else 0.0
        return {name: round(seconds / _POLLS * 1e6, 1) for name, seconds in cpu.items()}


async def _ask(client: WorkerHttpClient, worker: WorkerAddress) -> None:
    for _ in range(_BLOCK):
        assert await client.telemetry(worker) is not None


def _at(constant: str, worker: Worker, port: str) -> Callable[[], None]:
    number: Any = getattr(worker, port)
    return lambda: setattr(worker_client, constant, number)

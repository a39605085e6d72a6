"""A real worker behind a real Envoy that both send traces, callers of both protocols, and what is asked of each request's trace."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import numpy as np
import tritonclient.grpc.aio as over_grpc
import tritonclient.http.aio as over_http

from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.settings import GatewayTracing
from inference_protocol.messages import GRPC_PORT, HTTP_PORT
from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from tests import loopback
from tests.component.doors import plane
from tests.process import models
from tests.process.harness import QUICK_DRAIN, Place, a_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.collectors import Seen
    from tests.component.doors import Plane
    from tests.process.harness import Worker

SESSION = "agent"
WIDTH = 64
ROW = np.full((1, WIDTH), 0.5, np.float32)
# Clocks are read one after another, and times are rounded.
_TREMBLE = 1000.0
ENVOY, WORKER = "inference-gateway", "inference-worker"


@dataclass(frozen=True)
class Asked:
    """A request that was sent, and the span of its caller."""

    trace: str
    span: str
    session: str


@dataclass
class Stage:
    """Both of them, under way."""

    plane: Plane
    worker: Worker

    @property
    def door(self) -> str:
        return f"127.0.0.1:{self.plane.port}"

    async def ask(self, count: int, *, sampled: bool, callers: int = 8, start: int = 0) -> list[Asked]:
        """So many requests, half of them over gRPC."""
        turns = iter(range(start, start + count))
        sent: list[Asked] = []

        async def call() -> None:
            async with (
                over_http.InferenceServerClient(f"{self.door}/default") as http,
                over_grpc.InferenceServerClient(self.door) as grpc,
            ):
                for number in turns:
                    one = Asked(f"{random.getrandbits(128):032x}", f"{random.getrandbits(64):016x}", f"agent-{number}")
                    headers = {
                        "traceparent": f"00-{one.trace}-{one.span}-{'01' if sampled else '00'}",
                        "tracestate": "tests=1",
                        SESSION: one.session,
                    }
                    await (_over_grpc(grpc, headers) if number % 2 else _over_http(http, headers))
                    sent.append(one)

        await asyncio.gather(*(call() for _ in range(callers)))
        return sent


async def _over_http(client: over_http.InferenceServerClient, headers: dict[str, str]) -> None:
    given = over_http.InferInput("x", ROW.shape, "FP32")
    given.set_data_from_numpy(ROW)
    assert (await client.infer("net", [given], headers=headers)).as_numpy("y").shape == ROW.shape


async def _over_grpc(client: over_grpc.InferenceServerClient, headers: dict[str, str]) -> None:
    given = over_grpc.InferInput("x", ROW.shape, "FP32")
    given.set_data_from_numpy(ROW)
    more = {"inference-namespace": "default", "inference-model": "net"}
    assert (await client.infer("net", [given], headers={**headers, **more})).as_numpy("y").shape == ROW.shape


@asynccontextmanager
async def stage(folder: Path, collector: str, *, percent: float = 0.0, frontends: int = 0, steps: int = 2) -> AsyncIterator[Stage]:
    """A worker with a model, behind a door; both tell this collector. With many `steps` requests gather for shared runs."""
    place = Place(folder)
    address = loopback.address(1)
    try:
        worker = place.start(
            a_config(place.put("m.onnx", models.slow(width=WIDTH, steps=steps)), batch_size=8, session_header=SESSION),
            patches=QUICK_DRAIN,
            variables={
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
                "OTEL_BSP_SCHEDULE_DELAY": "200",
                "INFERENCE_ADDRESS": address,
                "INFERENCE_HTTP_PORT": str(HTTP_PORT),
                "INFERENCE_GRPC_PORT": str(GRPC_PORT),
                FRONTENDS_VARIABLE: str(frontends),
            },
        )
        tracing = GatewayTracing(collector, percent)
        service = Service("default", "net", "1", True, (Backend(address, "worker"),))
        async with plane(folder, service, tracing=tracing) as door:
            await _ready(door)
            yield Stage(door, worker)
    finally:
        place.end()


async def _ready(door: Plane) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with door.session.get(f"http://127.0.0.1:{door.port}/default/v2/models/net/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


def whole(spans: Sequence[Seen]) -> bool:
    """Whether all of a request's spans are there."""
    return len(spans) >= 5


def check(spans: Sequence[Seen], asked: Asked) -> None:
    """One trace a request: Envoy's span in its caller's, its try of a worker in that, the worker's in that, wait and run inside."""
    by_name = {("try" if s.name.startswith("router") else "request") if s.service == ENVOY else s.name: s for s in spans}
    assert sorted(by_name) == ["inference", "queue", "request", "run", "try"] and len(spans) == 5, spans
    request, tried, inference, queue, run = (by_name[name] for name in ("request", "try", "inference", "queue", "run"))
    assert {s.trace for s in spans} == {asked.trace}
    parents = [(request, asked.span), (tried, request.id), (inference, tried.id), (queue, inference.id), (run, inference.id)]
    assert all(span.parent == parent for span, parent in parents), spans
    for outer, inner in ((request, tried), (tried, inference), (inference, queue), (inference, run)):
        assert outer.begun - _TREMBLE <= inner.begun <= inner.ended <= outer.ended + _TREMBLE, (outer, inner)
    assert queue.ended <= run.begun + _TREMBLE
    said = inference.attributes
    assert (said["inference.model.name"], said["inference.model.version"]) == ("net", "1")
    assert (said["inference.outcome"], int(said["inference.rows"]), said["session.id"]) == ("answered", 1, asked.session)
    assert int(run.attributes["inference.batch.rows"]) >= 1

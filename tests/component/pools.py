"""Two real workers of one model, and a real operator that picks between them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np

from inference_protocol.messages import HTTP_PORT
from tests.component import foreign_gateways
from tests.component.operators import PATIENCE_SECONDS
from tests.component.warm_node import WarmNode, all_ready, served_by_two
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.foreign_gateways import Gateway
    from tests.component.operators import Operator, Ward
    from tests.component.warm_node import Warm

WIDTH = 128
# Milliseconds for a row: whoever has requests has them when it is asked.
MODEL = models.slow(width=WIDTH, steps=150)
PATH = "/default/v2/models/digits/infer"


def body(rows: int) -> dict[str, Any]:
    data = np.full((rows, WIDTH), 0.5).ravel().tolist()
    return {"inputs": [{"name": "x", "shape": [rows, WIDTH], "datatype": "FP32", "data": data}]}


@dataclass
class Pool:
    """What a test has: two workers, and the operator that picks."""

    node: WarmNode
    operator: Operator
    picker: int
    folder: Path
    session: aiohttp.ClientSession

    @property
    def addresses(self) -> list[str]:
        return [worker.address for worker in self.node.workers]

    async def served(self, worker: Warm) -> int:
        """Requests that a worker has had."""
        return (await self.node._telemetry(worker)).requests_total

    async def each(self) -> list[int]:
        return [await self.served(worker) for worker in self.node.workers]

    async def infer(self, url: str, rows: int = 1, *, timeout_ms: float | None = None) -> tuple[int, str, dict[str, str]]:
        headers = {} if timeout_ms is None else {"inference-timeout-ms": str(timeout_ms)}
        async with self.session.post(f"http://{url}{PATH}", json=body(rows), headers=headers) as answer:
            return answer.status, await answer.text(), {name.lower(): value for name, value in answer.headers.items()}

    async def prefers(self, url: str, worker: Warm) -> None:
        """Wait until five requests in a row reach this worker: then the operator has heard of the other's load."""
        reached = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while reached < 5:
                before = await self.served(worker)
                assert (await self.infer(url))[0] == 200
                reached = reached + 1 if await self.served(worker) > before else 0

    @asynccontextmanager
    async def gateway(self, **options: Any) -> AsyncIterator[Gateway]:
        made = foreign_gateways.start(self.folder, self.picker, self.addresses, **options)
        try:
            await self._listens(made)
            yield made
        finally:
            made.end()

    async def _listens(self, gateway: Gateway) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                assert gateway.process.poll() is None, gateway.log[-3000:]
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return

    @asynccontextmanager
    async def loaded(self, worker: Warm) -> AsyncIterator[None]:
        """A worker with callers of its own, who come by no gateway."""
        stop = False

        async def load() -> None:
            url = f"http://{worker.address}:{HTTP_PORT}/v2/models/digits/infer"
            while not stop:
                async with self.session.post(url, json=body(8)) as answer:
                    await answer.read()

        tasks = [asyncio.create_task(load()) for _ in range(8)]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (await self.node._telemetry(worker)).in_flight:
                    await asyncio.sleep(0.01)
            yield
        finally:
            stop = True
            await asyncio.gather(*tasks)


@asynccontextmanager
async def two_workers(server: ApiServer, ward: Ward, tmp_path: Path) -> AsyncIterator[Pool]:
    """Both are ready, and a request has passed."""
    node = served_by_two(server, tmp_path, MODEL)
    (picker,) = free_ports(1)
    settings = {"telemetrySeconds": 0.1, "gateway": {"endpointPicker": {"enabled": True, "port": picker}}}
    operator = await ward.lead(server, settings=settings)
    await all_ready(node, 2)
    await operator.says("endpoint picker listens")
    async with aiohttp.ClientSession() as session:
        made = Pool(node, operator, picker, tmp_path, session)
        async with made.gateway() as gateway:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await made.infer(gateway.url))[0] != 200:
                    await asyncio.sleep(0.05)
        yield made
    await node.end()

"""The endpoint picker as a gateway of somebody else asks it: a real Envoy, a real operator, real workers."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
import tritonclient.grpc.aio as over_grpc

from inference_protocol.messages import HTTP_PORT
from tests.component import foreign_gateways
from tests.component.objects import a_model, a_node, a_server
from tests.component.warm_node import CLAIM, WarmNode, all_ready
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

    async def infer(self, gateway: Gateway, rows: int = 1, *, timeout_ms: float | None = None) -> tuple[int, str, dict[str, str]]:
        headers = {} if timeout_ms is None else {"inference-timeout-ms": str(timeout_ms)}
        url = f"http://{gateway.url}{PATH}"
        async with self.session.post(url, json=body(rows), headers=headers) as answer:
            return answer.status, await answer.text(), {name.lower(): value for name, value in answer.headers.items()}

    @asynccontextmanager
    async def gateway(self, **options: Any) -> AsyncIterator[Gateway]:
        made = foreign_gateways.start(self.folder, self.picker, self.addresses, **options)
        try:
            await self._listens(made)
            yield made
        finally:
            made.end()

    async def _listens(self, gateway: Gateway) -> None:
        async with asyncio.timeout(20):
            while True:
                assert gateway.process.poll() is None, gateway.log[-3000:]
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return


@pytest.fixture
async def pool(server: ApiServer, ward: Ward, tmp_path: Path) -> AsyncIterator[Pool]:
    node = WarmNode(server, tmp_path / "node", runs_jobs=True, patches={})
    (node.claim / "model.onnx").write_bytes(MODEL)
    model = a_model()
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(MODEL).hexdigest()}"}
    model["spec"] = {"versions": [version]}
    for obj in (a_node(), model, a_server("served", replicas=2, serve={"minReplicas": 2})):
        server.create(obj)
    (picker,) = free_ports(1)
    settings = {"telemetrySeconds": 0.1, "gateway": {"endpointPicker": {"enabled": True, "port": picker}}}
    operator = await ward.lead(server, settings=settings)
    await all_ready(node, 2)
    await operator.says("endpoint picker listens")
    async with aiohttp.ClientSession() as session:
        made = Pool(node, operator, picker, tmp_path, session)
        async with made.gateway() as gateway:
            async with asyncio.timeout(30):
                while (await made.infer(gateway))[0] != 200:
                    await asyncio.sleep(0.05)
        yield made
    await node.end()


@pytest.mark.parametrize("options", [{}, {"original": True}, {"body": "NONE"}, {"body": "BUFFERED"}], ids=str)
async def test_a_request_reaches_a_worker_however_the_gateway_shows_it_and_balances(pool: Pool, options: dict[str, Any]) -> None:
    before = sum(await pool.each())
    async with pool.gateway(**options) as gateway:
        answers = await asyncio.gather(*(pool.infer(gateway, rows=5) for _ in range(20)))

    assert [status for status, *_ in answers] == [200] * 20, gateway.log[-2000:]
    assert sum(await pool.each()) == before + 20


async def test_a_busy_worker_gets_nothing_while_another_is_idle(pool: Pool) -> None:
    busy, idle = pool.node.workers
    stop = False

    async def load() -> None:
        url = f"http://{busy.address}:{HTTP_PORT}/v2/models/digits/infer"
        while not stop:
            async with pool.session.post(url, json=body(8)) as answer:
                await answer.read()

    tasks = [asyncio.create_task(load()) for _ in range(8)]
    try:
        async with asyncio.timeout(20):
            while not (await pool.node._telemetry(busy)).in_flight:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        before = await pool.served(idle)
        async with pool.gateway() as gateway:
            for _ in range(40):
                assert (await pool.infer(gateway))[0] == 200
        assert await pool.served(idle) == before + 40
    finally:
        stop = True
        await asyncio.gather(*tasks)


async def test_a_deadline_that_nobody_meets_is_refused_before_any_worker_hears_of_it(pool: Pool) -> None:
    async with pool.gateway() as gateway:
        loop = asyncio.get_running_loop()
        # Until workers have been measured.
        end = loop.time() + 22
        while loop.time() < end:
            await asyncio.gather(*(pool.infer(gateway) for _ in range(8)))
            if (await pool.infer(gateway, timeout_ms=0.01))[0] == 429:
                break
        before = await pool.each()

        status, text, headers = await pool.infer(gateway, timeout_ms=0.01)

        assert status == 429 and "in time" in text and int(headers["retry-after"]) >= 1
        assert await pool.each() == before
        assert (await pool.infer(gateway, timeout_ms=30_000))[0] == 200


async def test_only_workers_that_the_gateway_allows_are_picked(pool: Pool) -> None:
    chosen, other = pool.node.workers
    before = await pool.served(other)
    async with pool.gateway(subset=[f"{chosen.address}:{HTTP_PORT}"]) as gateway:
        for _ in range(10):
            assert (await pool.infer(gateway))[0] == 200
    async with pool.gateway(subset=["10.9.9.9:1"]) as gateway:
        status, _, headers = await pool.infer(gateway)

    assert status == 503 and headers["retry-after"] == "1"
    assert await pool.served(other) == before


@pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "BUFFERED"])
async def test_a_grpc_request_is_read_for_its_models_name_and_arrives_whole(pool: Pool, mode: str) -> None:
    rows = np.full((100, WIDTH), 0.5, np.float32)
    given = [over_grpc.InferInput("x", rows.shape, "FP32")]
    given[0].set_data_from_numpy(rows)
    async with pool.gateway(body=mode) as gateway, over_grpc.InferenceServerClient(gateway.url) as client:
        answer = await client.infer("digits", given, headers={"inference-namespace": "default"})
        with pytest.raises(Exception, match="no model is served as default/absent"):
            await client.infer("absent", given, headers={"inference-namespace": "default"})

    assert answer.as_numpy("y").shape == rows.shape


async def test_without_a_picker_a_gateway_fails_open_or_closed_as_it_was_told(pool: Pool) -> None:
    async with pool.gateway(body="NONE", fail_open=True) as opened, pool.gateway(body="NONE") as closed:
        assert (await pool.infer(closed))[0] == 200
        pool.operator.kill()

        answers = [await pool.infer(opened) for _ in range(10)]
        assert [status for status, *_ in answers] == [200] * 10, answers
        assert (await pool.infer(closed))[0] >= 500

"""The endpoint picker as a gateway of somebody else asks it: a real Envoy, a real operator, real workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.grpc.aio as over_grpc

from inference_protocol.messages import HTTP_PORT
from tests.component.operators import PATIENCE_SECONDS
from tests.component.pools import WIDTH, Pool, two_workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.operators import Ward


@pytest.fixture
async def pool(server: ApiServer, ward: Ward, tmp_path: Path) -> AsyncIterator[Pool]:
    async with two_workers(server, ward, tmp_path) as made:
        yield made


@pytest.mark.parametrize("options", [{}, {"original": True}, {"body": "NONE"}, {"body": "BUFFERED"}], ids=str)
async def test_a_request_reaches_a_worker_however_the_gateway_shows_it_and_balances(pool: Pool, options: dict[str, Any]) -> None:
    before = sum(await pool.each())
    async with pool.gateway(**options) as gateway:
        answers = await asyncio.gather(*(pool.infer(gateway.url, rows=5) for _ in range(20)))

    assert [status for status, *_ in answers] == [200] * 20, gateway.log[-2000:]
    assert sum(await pool.each()) == before + 20


async def test_a_busy_worker_gets_nothing_while_another_is_idle(pool: Pool) -> None:
    busy, idle = pool.node.workers
    async with pool.loaded(busy), pool.gateway() as gateway:
        await pool.prefers(gateway.url, idle)
        before = await pool.served(idle)
        for _ in range(40):
            assert (await pool.infer(gateway.url))[0] == 200
    assert await pool.served(idle) == before + 40


@pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "NONE"])
async def test_a_burst_is_spread_before_any_worker_has_told_of_it(pool: Pool, mode: str) -> None:
    before = await pool.each()
    async with pool.gateway(body=mode) as gateway:
        await asyncio.gather(*(pool.infer(gateway.url, rows=64) for _ in range(16)))

    shares = [now - then for now, then in zip(await pool.each(), before, strict=True)]
    assert sum(shares) == 16 and min(shares) >= 6, shares


async def test_a_deadline_that_nobody_meets_is_refused_before_any_worker_hears_of_it(pool: Pool) -> None:
    async with pool.gateway() as gateway:
        loop = asyncio.get_running_loop()
        # Until workers have been measured.
        end = loop.time() + PATIENCE_SECONDS
        while loop.time() < end:
            await asyncio.gather(*(pool.infer(gateway.url) for _ in range(8)))
            if (await pool.infer(gateway.url, timeout_ms=0.01))[0] == 429:
                break
        before = await pool.each()

        status, text, headers = await pool.infer(gateway.url, timeout_ms=0.01)

        assert status == 429 and "in time" in text and int(headers["retry-after"]) >= 1
        assert await pool.each() == before
        assert (await pool.infer(gateway.url, timeout_ms=30_000))[0] == 200


async def test_only_workers_that_the_gateway_allows_are_picked(pool: Pool) -> None:
    chosen, other = pool.node.workers
    before = await pool.served(other)
    async with pool.gateway(subset=[f"{chosen.address}:{HTTP_PORT}"]) as gateway:
        for _ in range(10):
            assert (await pool.infer(gateway.url))[0] == 200
    async with pool.gateway(subset=["10.9.9.9:1"]) as gateway:
        status, _, headers = await pool.infer(gateway.url)

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
        assert (await pool.infer(closed.url))[0] == 200
        pool.operator.kill()

        answers = [await pool.infer(opened.url) for _ in range(10)]
        assert [status for status, *_ in answers] == [200] * 10, answers
        assert (await pool.infer(closed.url))[0] >= 500

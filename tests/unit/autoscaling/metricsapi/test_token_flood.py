"""400 callers with junk for tokens, over real TLS, before a real client of an API server that counts: the HPA's check waits for none."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from inference_operator.autoscaling.metricsapi import service
from inference_operator.autoscaling.metricsapi.budget import ReviewClients
from inference_operator.kube.client import Kube, api_session
from inference_operator.kube.connection import Connection
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.runtime.clock import ServerClock, SystemClock
from tests.unit.autoscaling.metricsapi.pki import client_context
from tests.unit.autoscaling.metricsapi.test_server import METRIC, Bench, remote

JUNK = 400


class ApiServer:
    """Reviews, in the order in which they come."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.held = asyncio.Event()
        self.held.set()

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body["kind"])
        if body["kind"] == "SubjectAccessReview":
            return web.json_response({**body, "status": {"allowed": True}})
        token = body["spec"]["token"]
        if token != "good":
            await self.held.wait()
            return web.json_response({**body, "status": {"authenticated": False}})
        return web.json_response({**body, "status": {"authenticated": True, "user": {"username": "jane"}}})

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner


async def flood(bench: Bench, codes: Counter[int]) -> None:
    connector = aiohttp.TCPConnector(ssl=client_context(bench.ca, None), limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(number: int) -> None:
            headers = {"Authorization": f"Bearer junk-{number}"}
            url = f"https://127.0.0.1:{bench.service._port}{METRIC}"
            async with session.get(url, headers=headers, server_hostname="metrics.system.svc") as response:
                if response.status == 429:
                    assert response.headers["Retry-After"] == "1"
                    assert (await response.json())["reason"] == "TooManyRequests"
                codes[response.status] += 1

        await asyncio.gather(*(one(number) for number in range(JUNK)))


async def test_junk_tokens_delay_neither_the_hpa_nor_a_token_that_was_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HURRY_SECONDS", 0.01)
    server, codes, clock = ApiServer(), Counter[int](), SystemClock()
    runner = await server.start()
    connection = Connection(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
    async with api_session(ServerClock()) as session:
        reviews = ReviewClients(*(Kube(connection, session, TokenBucket(10, 20, clock.monotonic)) for _ in range(3)))
        bench = Bench(tmp_path, reviews)
        serving = asyncio.create_task(bench.service.serve())
        await asyncio.wait_for(bench.serving(), 20)
        known = {"Authorization": "Bearer good"}
        assert (await bench.ask(headers=known))[0] == 200
        server.asked.clear()
        server.held.clear()
        junk = asyncio.create_task(flood(bench, codes))
        try:
            while codes[429] < 100:
                assert not junk.done(), junk.exception()
                assert len(server.asked) <= service._MOST_DIRECT, "junk is queued and not shed"
                await asyncio.sleep(0.01)
            hpa: tuple[int, Any] = await bench.ask(client=bench.proxy(), headers=remote())
            # The answer about this token has become too old: it is reviewed anew.
            for cache in (bench.service._front._tokens._good, bench.service._front._direct._cache):
                cache._kept.clear()
            good = await bench.ask(headers=known)
            reviewed = Counter(server.asked)
        finally:
            server.held.set()
            await asyncio.gather(junk, return_exceptions=True)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await runner.cleanup()

    assert (hpa[0], good[0]) == (200, 200)
    assert codes[429] + codes[401] == JUNK
    # Whatever the flood, so many of its tokens were under review: the rest was shed.
    assert reviewed["TokenReview"] <= service._MOST_DIRECT + 1
    assert reviewed["SubjectAccessReview"] == 2

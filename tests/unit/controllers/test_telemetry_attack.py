"""320 workers that take the connection and say nothing, over real sockets, beside one that answers."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace

import pytest
from aiohttp import web

from inference_operator.controllers import worker_client
from inference_operator.controllers.telemetry import Telemetry
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.kube.ports import WorkerAddress
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_operator.runtime.clock import SystemClock
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry as Record
from inference_protocol.messages import encode
from tests.builders import a_job, a_pod
from tests.unit.controllers.test_worker_client import leading

SILENT = 320
READY = Record(ready=True, draining=False)


class Counting(WorkerHttpClient):
    """Which addresses have been asked to the end, with or without an answer."""

    def __init__(self, http: BoundedHttp) -> None:
        super().__init__(http, leading())
        self.over: set[str] = set()

    async def telemetry(self, worker: WorkerAddress) -> Record | None:
        answer = await super().telemetry(worker)
        self.over.add(worker.address)
        return answer


async def test_silent_workers_hold_no_sample_of_another_namespace_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=encode(READY))

    app = web.Application()
    app.router.add_get("/telemetry", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    monkeypatch.setattr(worker_client, "HTTP_PORT", port)
    # Nobody is given up before the test's end, however slow the machine is.
    monkeypatch.setattr(worker_client, "_TELEMETRY_SECONDS", 3600.0)
    # The kernel takes the connections; nobody reads.
    addresses = [f"127.0.{2 + number // 250}.{1 + number % 250}" for number in range(SILENT)]
    silent = [socket.create_server((address, port)) for address in addresses]
    store = Store()
    bad, good = a_job("bad", namespace="bad", serve=True), a_job("good", namespace="good", serve=True)
    for number, address in enumerate(addresses, 1):
        store.put_pod(replace(a_pod(bad, number), address=address))
    worker = replace(a_pod(good), address="127.0.0.1")
    store.put_pod(worker)
    heard = 0

    async with BoundedHttp() as http:
        client = Counting(http)

        def hear(answers: Mapping[str, Record | None]) -> None:
            nonlocal heard
            heard += answers.get(worker.uid) == READY

        telemetry = Telemetry(store, client, SystemClock(), lambda _: None, seconds=0.3, after_round=(hear,))
        running = asyncio.create_task(telemetry.run())
        try:
            async with asyncio.timeout(60):
                while heard < 3:
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            for one in silent:
                one.close()
            await runner.cleanup()
    # Three samples were told while not one of the silent ones had been given up.
    assert client.over & set(addresses) == set()

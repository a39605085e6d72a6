"""An Envoy that a control plane in the test's own process tells, before workers that only count: for what routes do."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
from aiohttp import web
from tritonclient.grpc import service_pb2 as pb

from inference_operator.gateway.door import Door
from inference_operator.gateway.resources import of_zones, resources
from inference_operator.gateway.server import Word, serve
from inference_operator.gateway.snapshot import Backend, Service
from inference_protocol.messages import GRPC_PORT, HEALTH_PORT, HTTP_PORT, READY_PATH
from tests import loopback
from tests.component import envoys
from tests.component.operators import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path


@dataclass
class Counting:
    """Workers by HTTP, each at an address of its own, that count what they are asked and answer with their name."""

    asked: Counter[str] = field(default_factory=Counter)
    # How often somebody wanted to know whether they are ready.
    probed: Counter[str] = field(default_factory=Counter)
    headers: dict[str, Mapping[str, str]] = field(default_factory=dict)
    # Who says that it isn't ready.
    unready: set[str] = field(default_factory=set)
    # What a worker does before it answers, by its name.
    acts: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse | None]]] = field(default_factory=dict)
    _runners: list[web.AppRunner] = field(default_factory=list)

    async def start(self, name: str, number: int, secured: ssl.SSLContext | None = None) -> Backend:
        """A worker that answers at the address of that number, and its probes at a port of their own."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.path in ("/v2/health/ready", READY_PATH):
                self.probed[name] += 1
                return web.Response(status=503 if name in self.unready else 200)
            self.asked[name] += 1
            self.headers[name] = request.headers.copy()
            await request.read()
            if (act := self.acts.get(name)) is not None and (said := await act(request)) is not None:
                return said
            return web.Response(text=name)

        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, loopback.address(number), HTTP_PORT, ssl_context=secured).start()
        await web.TCPSite(runner, loopback.address(number), HEALTH_PORT).start()
        return Backend(loopback.address(number), name)

    async def end(self) -> None:
        for runner in self._runners:
            await runner.cleanup()


@asynccontextmanager
async def by_grpc(address: str) -> AsyncIterator[list[dict[str, str]]]:
    """A worker by gRPC at the address: says that it is ready, answers with the model's name; and the metadata of what it heard."""
    heard: list[dict[str, str]] = []

    async def ready(_: bytes, context: Any) -> bytes:
        heard.append(dict(context.invocation_metadata()))
        return pb.ModelReadyResponse(ready=True).SerializeToString()

    async def infer(request: bytes, context: Any) -> bytes:
        heard.append(dict(context.invocation_metadata()))
        return pb.ModelInferResponse(model_name=pb.ModelInferRequest.FromString(request).model_name).SerializeToString()

    handlers = {
        name: grpc.unary_unary_rpc_method_handler(call) for name, call in {"ModelReady": ready, "ModelInfer": infer}.items()
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    server.add_insecure_port(f"{address}:{GRPC_PORT}")
    await server.start()
    try:
        yield heard
    finally:
        await server.stop(None)


@dataclass
class Plane:
    """What a test says to its Envoy."""

    word: Word
    port: int
    envoy: envoys.Envoy
    session: aiohttp.ClientSession
    options: dict[str, Any]
    # What callers trust, where the door speaks TLS.
    trusted: ssl.SSLContext | None = None

    def say(self, *services: Service, weights: Mapping[str, int] | None = None) -> None:
        found = resources(services, weights or {}, Door(self.port, 1 << 20, **self.options))
        self.word.say(found, of_zones(services, weights or {}, audited=self.options.get("audit", False)))

    async def ask(
        self, path: str, headers: Mapping[str, str] | None = None, *, body: bytes = b"{}"
    ) -> tuple[int, str, Mapping[str, str]]:
        """Status, text and headers of an answer."""
        url = f"{'https' if self.trusted else 'http'}://127.0.0.1:{self.port}{path}"
        async with self.session.post(url, data=body, headers=headers, ssl=self.trusted or False) as answer:
            return answer.status, await answer.text(), answer.headers

    async def until(self, path: str, wanted: str, headers: Mapping[str, str] | None = None) -> None:
        """Wait until a worker of that name answers."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    if (await self.ask(path, headers))[1] == wanted:
                        return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.02)


@asynccontextmanager
async def plane(
    folder: Path, *services: Service, trusted: ssl.SSLContext | None = None, zone: str = "", **options: Any
) -> AsyncIterator[Plane]:
    """An Envoy that is told of these services."""
    port, control = loopback.free_ports(2)
    word = Word()
    listening = asyncio.Event()
    serving = asyncio.create_task(serve(word, control, lambda _: listening.set()))
    await listening.wait()
    envoy = envoys.start(folder, control=control, door=port, zone=zone)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            made = Plane(word, port, envoy, session, options, trusted)
            made.say(*services)
            yield made
    finally:
        envoy.end()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

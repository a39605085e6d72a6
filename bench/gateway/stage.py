"""What the gateway is measured with: workers, real and of a known speed, an Envoy that we tell, and one with static routes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gateway.callers import connect, request
from bench.report import ROOT
from dev.envoy import ensure_envoy
from inference_operator.gateway.door import Door
from inference_operator.gateway.holding import Holding
from inference_operator.gateway.resources import resources
from inference_operator.gateway.server import Word, serve
from inference_operator.gateway.snapshot import Service
from inference_operator.tenants import NO_TENANTS, Tenants
from inference_protocol.messages import CONFIG_VARIABLE, HTTP_PORT, AnswerCache, ModelSource, WorkerConfig, encode
from tests import loopback
from tests.component import envoys
from tests.process import models

WIDTH = 64
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH}]}).encode()
PATH = "/v2/models/m/infer"
_PATIENCE_SECONDS = 60.0


@contextmanager
def worker(
    folder: Path,
    address: str,
    *,
    steps: int = 2,
    width: int = WIDTH,
    model_file: bytes | None = None,
    cache: AnswerCache | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker, of a model of so many steps unless its file is given."""
    volume = folder / f"volumes-{address}" / "data"
    volume.mkdir(parents=True, exist_ok=True)
    (volume / "model.onnx").write_bytes(model_file or models.slow(width=width, steps=steps))
    model = ModelSource(name="m", version="1", uri="pvc://data/model.onnx")
    config = WorkerConfig(
        namespace="bench", job="bench", uid="bench", attempt=1, model=model, providers=("CPUExecutionProvider",), cache=cache
    )
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("protocol", "worker-image")),
        "INFERENCE_ADDRESS": address,
        "INFERENCE_VOLUME_ROOT": str(volume.parent),
        "INFERENCE_TERMINATION_PATH": str(folder / f"report-{address}"),
        CONFIG_VARIABLE: encode(config).decode(),
    }
    with (folder / f"worker-{address}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "inference_worker"], env=variables, stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass
class Paced:
    """A worker of one runner that takes the same time for each request, in the order of their coming."""

    name: str
    seconds: float
    asked: int = 0
    free_at: float = 0.0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        loop = asyncio.get_running_loop()
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
                if b"/v2/health" not in lines[0]:
                    self.asked += 1
                    begun = loop.time()
                    self.free_at = max(self.free_at, begun) + self.seconds
                    await asyncio.sleep(self.free_at - begun)
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # The caller has gone, or the measurement is over.
            pass
        finally:
            writer.close()


@asynccontextmanager
async def paced(address: str, name: str, seconds: float) -> AsyncIterator[Paced]:
    """Serve one at an address."""
    made = Paced(name, seconds)
    server = await asyncio.start_server(made.answer, address, HTTP_PORT)
    try:
        yield made
    finally:
        server.close()


class Gateway:
    """An Envoy that is told by this process."""

    def __init__(self, folder: Path, holding: Holding | None, name: str, tenants: Tenants = NO_TENANTS) -> None:
        self.port, self._control = loopback.free_ports(2)
        self._holding = holding
        self.name = name
        self._tenants = tenants
        self.word = Word()
        self._serving: asyncio.Task[None] | None = None
        self.envoy = envoys.start(folder, control=self._control, door=self.port, name=name)

    def say(self, *services: Service, weights: dict[str, int] | None = None, leaving: bool = False) -> None:
        """Tell it anew; one that is `leaving` sends its callers away."""
        told = resources(services, weights or {}, Door(self.port, 1 << 26, tenants=self._tenants))
        self.word.say(told, leaving=frozenset({self.name} if leaving else ()))

    async def serve(self) -> None:
        """Begin to tell."""
        listening = asyncio.Event()
        self._serving = asyncio.create_task(serve(self.word, self._control, lambda _: listening.set(), self._holding))
        await listening.wait()

    async def leave(self) -> None:
        """Tell nothing any more: the operator is gone."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def restart(self, seconds: float) -> None:
        """Be gone so long, and tell again."""
        await self.leave()
        await asyncio.sleep(seconds)
        await self.serve()


@asynccontextmanager
async def gateway(
    folder: Path, *services: Service, holding: Holding | None = None, name: str = "told", tenants: Tenants = NO_TENANTS
) -> AsyncIterator[Gateway]:
    """One that leads to these services."""
    made = Gateway(folder, holding, name, tenants)
    made.say(*services)
    await made.serve()
    try:
        yield made
    finally:
        made.envoy.end()
        await made.leave()


@contextmanager
def plain_envoy(folder: Path, addresses: list[str], policy: str) -> Iterator[tuple[int, int]]:
    """An Envoy with one static route and the policy, without anything of ours; its port and process."""
    (port,) = loopback.free_ports(1)
    endpoints = [{"endpoint": {"address": _address(address, HTTP_PORT)}} for address in addresses]
    cluster = {
        "name": "workers",
        "type": "STATIC",
        "lb_policy": policy,
        "load_assignment": {"cluster_name": "workers", "endpoints": [{"lb_endpoints": endpoints}]},
        "circuit_breakers": {"thresholds": [{"max_connections": 100000, "max_pending_requests": 100000, "max_requests": 100000}]},
    }
    api = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{api}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "plain",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "workers", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{api}.http.router.v3.Router"}}],
    }
    listener = {
        "name": "door",
        "address": _address("0.0.0.0", port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    config = folder / f"plain-{port}.json"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    command = [
        str(ensure_envoy()),
        "--config-path",
        str(config),
        "--concurrency",
        "1",
        "--use-dynamic-base-id",
        "--log-level",
        "error",
    ]
    with (folder / f"plain-{port}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


async def answers(host: str, port: int, path: str, headers: dict[str, str] | None = None) -> None:
    """Wait until a request is answered."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            try:
                caller = await connect(host, port)
                status, _ = await caller.ask(request(BODY, path, headers))
                caller.close()
                if status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)

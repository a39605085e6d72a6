"""What the gateway adds: one caller asks a worker directly and through Envoy by turns, over HTTP and gRPC.

The real Envoy with the chart's bootstrap, told by the operator's own control plane in this process, before one worker on the CPU.
"""

import asyncio
import http.client
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

from bench.gateway.stage import BODY, WIDTH, Gateway, gateway, worker
from bench.proc import cpu_seconds, memory_mib
from inference_operator.gateway.snapshot import Backend, Service
from inference_protocol.messages import GRPC_PORT, HTTP_PORT
from tests import loopback

_REQUESTS = 2000
_ROWS = np.full((1, WIDTH), 0.5, np.float32)
_PATIENCE_SECONDS = 60.0
Ask = Callable[[], None]


async def added(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """So many rounds; a round asks each way so often."""
    address = loopback.address(1)
    service = Service("bench", "m", "1", True, (Backend(address, "a"),))
    with worker(folder, address):
        async with gateway(folder, service) as told:
            # The control plane of this process has nothing to do while nothing changes.
            return await asyncio.to_thread(_measure, address, told, rounds)


def _measure(address: str, told: Gateway, rounds: int) -> list[dict[str, Any]]:
    asks = {
        "http": (asks_http(address, HTTP_PORT, ""), asks_http("127.0.0.1", told.port, "/bench")),
        "grpc": (asks_grpc(address, GRPC_PORT), asks_grpc("127.0.0.1", told.port)),
    }
    for ask in (one for pair in asks.values() for one in pair):
        until(ask)
    return [_round(protocol, *pair, told.envoy.process.pid) for _ in range(rounds) for protocol, pair in asks.items()]


def _round(protocol: str, direct: Ask, through: Ask, envoy: int) -> dict[str, Any]:
    """One request each by turns, so that whatever else the machine does meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    before = cpu_seconds(envoy)
    for _ in range(_REQUESTS):
        for ask, taken in zip((direct, through), times, strict=True):
            begun = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - begun)
    cpu = (cpu_seconds(envoy) - before) / _REQUESTS
    p50 = [statistics.median(taken) * 1000 for taken in times]
    p99 = [statistics.quantiles(taken, n=100)[98] * 1000 for taken in times]
    return {
        "part": "added",
        "protocol": protocol,
        "directP50Ms": round(p50[0], 3),
        "throughP50Ms": round(p50[1], 3),
        "addedMs": round(p50[1] - p50[0], 3),
        "directP99Ms": round(p99[0], 3),
        "throughP99Ms": round(p99[1], 3),
        "envoyCpuMicroseconds": round(cpu * 1e6),
        "envoyMib": round(memory_mib(envoy)[0]),
    }


def asks_http(host: str, port: int, base: str) -> Ask:
    """A caller by HTTP, on one connection."""
    connection = http.client.HTTPConnection(host, port)

    def ask() -> None:
        if connection.sock is None:
            connected = socket.create_connection((host, port))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = connected
        connection.request("POST", f"{base}/v2/models/m/infer", BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(body)

    return ask


def asks_grpc(host: str, port: int) -> Ask:
    """A caller by gRPC, on one connection."""
    given = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, WIDTH])
    message = pb.ModelInferRequest(model_name="m", inputs=[given], raw_input_contents=[_ROWS.tobytes()]).SerializeToString()
    call = grpc.insecure_channel(f"{host}:{port}").unary_unary("/inference.GRPCInferenceService/ModelInfer")

    def ask() -> None:
        call(message, timeout=5, metadata=(("inference-namespace", "bench"),))

    return ask


def until(ask: Ask) -> None:
    """Wait until it is answered."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            ask()
            return
        except (OSError, http.client.HTTPException, grpc.RpcError):
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)

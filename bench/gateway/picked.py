"""What the endpoint picker adds: one caller asks by turns through an Envoy that asks nobody, and through ones that ask it.

The picker is a process of its own: `python -m bench.gateway.picked ADDRESS PORT`, before one real worker on the CPU.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.gateway.added import Ask, asks_grpc, asks_http, until
from bench.gateway.stage import worker
from bench.proc import cpu_seconds
from bench.report import ROOT
from inference_operator.gateway.picker.server import EndpointPicker
from inference_operator.runtime.clock import SystemClock
from inference_operator.state.objects import Key
from inference_operator.state.store import Store
from tests import loopback
from tests.builders import a_job, a_pod
from tests.component import foreign_gateways

_REQUESTS = 1000
_WAYS: dict[str, dict[str, Any]] = {
    "alone": {"asks": False},
    "headers": {"body": "NONE"},
    "fullDuplex": {"body": "FULL_DUPLEX_STREAMED"},
}


async def picked(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """So many rounds; a round asks each way so often."""
    address, (port,) = loopback.address(1), loopback.free_ports(1)
    with worker(folder, address), _picker(address, port) as picker:
        gateways = {
            way: foreign_gateways.start(folder, port, [address], namespace="bench", **options) for way, options in _WAYS.items()
        }
        try:
            ports = {way: gateway.port for way, gateway in gateways.items()}
            return await asyncio.to_thread(_measure, ports, picker.pid, rounds)
        finally:
            for gateway in gateways.values():
                gateway.end()


@contextmanager
def _picker(address: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "bench.gateway.picked", address, str(port)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _measure(ports: dict[str, int], picker: int, rounds: int) -> list[dict[str, Any]]:
    http = {way: asks_http("127.0.0.1", port, "/bench") for way, port in ports.items()}
    # Without its bodies a gRPC request would have to name its model in the metadata.
    grpc = {way: asks_grpc("127.0.0.1", port) for way, port in ports.items() if way != "headers"}
    for ask in (*http.values(), *grpc.values()):
        until(ask)
    return [
        row for _ in range(rounds) for protocol, asks in (("http", http), ("grpc", grpc)) for row in _round(protocol, asks, picker)
    ]


def _round(protocol: str, asks: dict[str, Ask], picker: int) -> Iterator[dict[str, Any]]:
    """One request each by turns, so that whatever else the machine does meets all."""
    times: dict[str, list[float]] = {way: [] for way in asks}
    before = cpu_seconds(picker)
    for _ in range(_REQUESTS):
        for way, ask in asks.items():
            begun = time.perf_counter()
            ask()
            times[way].append(time.perf_counter() - begun)
    cpu = (cpu_seconds(picker) - before) / (_REQUESTS * (len(asks) - 1))
    p50 = {way: statistics.median(taken) * 1000 for way, taken in times.items()}
    for way in asks:
        if way != "alone":
            yield {
                "part": "picked",
                "protocol": protocol,
                "way": way,
                "aloneP50Ms": round(p50["alone"], 3),
                "pickedP50Ms": round(p50[way], 3),
                "addedMs": round(p50[way] - p50["alone"], 3),
                "pickerCpuMicroseconds": round(cpu * 1e6),
            }


async def _serve(address: str, port: int) -> None:
    store = Store()
    job = a_job("bench", namespace="bench", serve=True)
    store.put_job(job)
    pod = a_pod(job, 1)
    store.put_pod(replace(pod, key=Key("bench", pod.key.name), uid="pod-1", address=address))
    await EndpointPicker(store, SystemClock(), port).serve()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))

"""Large tensors: Arrow Flight beside the worker's HTTP, gRPC and shared memory, from 100 kB to 64 MB each way.

All take an array of numpy to ONNX Runtime's Identity in another process, on loopback, and bring an array back. The worker is the
shipped process, with its queue and its checks; behind Flight is the bare session. The ways take turns within a round, so that what
else the machine does falls on all. CPU is the client's and the server's own.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import proc
from bench.report import Result, at_most
from bench.tensors import ways
from bench.tensors.ways import Way
from bench.worker.installs import packages
from tests.loopback import free_ports
from tests.process import models
from tests.process.harness import Place, a_config, until

HERE = Path(__file__).resolve().parent
# Bytes of a tensor, and how many requests each way has in a turn and a round.
_SIZES = {100_000: (50, 6), 1_000_000: (25, 6), 8_000_000: (6, 5), 64_000_000: (2, 4)}
_MOST = max(_SIZES)
_ROUNDS = 5
FLIGHT = ("flight", "flightCalls")
OURS = ("http", "httpLean", "grpc", "sharedMemory")
# Flight is worth building from here on.
_WORTH = 1.3
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """A way, and the process at its other end."""

    name: str
    ask: Way
    pid: int


def run(rounds: int) -> Result:
    """So many rounds of each size."""
    with ExitStack() as stack:
        sides = list(_sides(stack))
        rows = [row for number in range(rounds or _ROUNDS) for size in _SIZES for row in _round(sides, size, number)]
    return Result(rows, list(_targets(rows)))


def _targets(rows: list[Row]) -> Iterator[Any]:
    for size in _SIZES:
        least = {name: min_of(rows, size, names, "p50Ms") for name, names in (("ours", OURS), ("flight", FLIGHT))}
        ratio = least["ours"] / least["flight"]
        yield at_most(f"flight-{size}", f"p50 of the best of ours over Flight's, {size / 1e6:g} MB each way", ratio, _WORTH)


def min_of(rows: list[Row], size: int, names: tuple[str, ...], key: str) -> float:
    """The least of these ways' medians over all rounds."""
    found = [[row[key] for row in rows if row["bytes"] == size and row["way"] == name] for name in names]
    return min(float(statistics.median(each)) for each in found if each)


def _round(sides: list[Side], size: int, number: int) -> list[Row]:
    block, turns = _SIZES[size]
    array = np.random.default_rng(number).random((1, size // 4), np.float32)
    for side in sides:
        assert np.array_equal(side.ask(array), array), side.name
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    client, server = dict.fromkeys(taken, 0.0), dict.fromkeys(taken, 0.0)
    for turn in range(turns):
        # Nobody always comes after the same other.
        for side in sides[turn % len(sides) :] + sides[: turn % len(sides)]:
            before = time.process_time(), proc.cpu_seconds(side.pid)
            for _ in range(block):
                begun = time.perf_counter()
                answer = side.ask(array)
                taken[side.name].append(time.perf_counter() - begun)
                assert answer.shape == array.shape
                del answer
            client[side.name] += time.process_time() - before[0]
            server[side.name] += proc.cpu_seconds(side.pid) - before[1]
    return [
        {
            "round": number,
            "bytes": size,
            "way": name,
            "p50Ms": round(statistics.median(seconds) * 1e3, 3),
            "quartilesMs": [round(each * 1e3, 3) for each in statistics.quantiles(seconds, n=4)[::2]],
            "clientCpuMs": round(client[name] / len(seconds) * 1e3, 3),
            "serverCpuMs": round(server[name] / len(seconds) * 1e3, 3),
        }
        for name, seconds in taken.items()
    ]


def _sides(stack: ExitStack) -> Iterator[Side]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    arrow = packages(HERE / "flight.txt")
    place = Place(folder)
    stack.callback(place.end)
    model = place.put("net.onnx", models.identity(shape=["N", "W"]))
    worker = place.start(a_config(model, shared_memory=True)).wait_ready()
    pid = worker.process.pid
    yield Side("http", stack.enter_context(ways.http(worker.port)), pid)
    yield Side("httpLean", stack.enter_context(ways.lean(worker.port)), pid)
    yield Side("grpc", stack.enter_context(ways.grpc(worker.grpc_port)), pid)
    yield Side("sharedMemory", stack.enter_context(ways.memory(worker.port, _MOST)), pid)
    port, server = stack.enter_context(_flight(place.claim / "net.onnx", arrow))
    yield Side("flight", stack.enter_context(ways.flight(port, arrow, kept=True)), server)
    yield Side("flightCalls", stack.enter_context(ways.flight(port, arrow, kept=False)), server)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _flight(model: Path, arrow: Path) -> Iterator[tuple[int, int]]:
    (port,) = free_ports(1)
    command = [sys.executable, str(HERE / "flight_server.py"), str(model), str(port)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(arrow)}) as process:
        try:
            until(lambda: process.poll() is not None or _listens(port), "the Flight server")
            yield port, process.pid
        finally:
            process.kill()

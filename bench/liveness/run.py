"""CPU and memory of the failure detector: a thousand workers, each polled every 250 ms, all of whom answer.

The operator's own prober and connections, against workers that answer at once in a process of their own.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.report import Result, Target, at_most
from inference_operator.liveness.prober import Prober
from inference_operator.runtime.clock import SystemClock
from inference_operator.runtime.pings import Pings
from inference_operator.state.store import Store
from inference_protocol.messages import LIVE_PATH
from tests.builders import a_job, a_pod
from tests.loopback import free_ports

_WORKERS, _NODES = 1000, 100
_SECONDS = 10.0
CORES, MEBIBYTES = 0.1, 20.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"


def run(rounds: int) -> Result:
    """So many times."""
    (port,) = free_ports(1)
    with _workers(port):
        found = [asyncio.run(_measure(port)) for _ in range(rounds or 3)]
    return Result(found, list(_targets(found)))


def _targets(found: list[dict[str, Any]]) -> Iterator[Target]:
    yield at_most("cores", "cores for 1,000 workers, worst", max(one["cores"] for one in found), CORES)
    yield at_most("memory", "MiB for 1,000 workers, worst", max(one["mebibytes"] for one in found), MEBIBYTES)
    yield at_most("wrong", "workers suspected that answer, worst", max(one["wrong"] for one in found), 0)


async def _measure(port: int) -> dict[str, Any]:
    store = Store()
    for number in range(_WORKERS):
        job = a_job(f"job-{number // 10}", serve=True)
        store.put_job(job)
        address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        store.put_pod(replace(a_pod(job, number + 1, node=f"node-{number % _NODES}", uid=f"pod-{number}"), address=address))
    before = _resident()
    prober = Prober(store, Pings(LIVE_PATH, port), SystemClock(), lambda _: None, lambda: None)
    polls = asyncio.create_task(prober.run())
    await asyncio.sleep(2.0)
    cpu, wall = time.process_time(), time.monotonic()
    wrong = 0
    for _ in range(int(_SECONDS)):
        await asyncio.sleep(1.0)
        wrong = max(wrong, len(store.suspected))
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    polls.cancel()
    return {
        "workers": _WORKERS,
        "cores": round(cpu / wall, 4),
        "mebibytes": round((_resident() - before) / 2**20, 2),
        "wrong": wrong,
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def _workers(port: int) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=answer_all, args=(port,), daemon=True)
    process.start()
    try:
        time.sleep(2.0)
        yield
    finally:
        process.kill()
        process.join()


def answer_all(port: int) -> None:
    """Be every worker."""

    class Worker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport

        def data_received(self, data: bytes) -> None:  # noqa: ARG002 -- whatever is asked
            self._transport.write(_ANSWER)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Worker, "0.0.0.0", port, backlog=4096)
        await server.serve_forever()

    asyncio.run(serve())

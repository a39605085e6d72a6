"""`python -m bench.autoscaling.load PLAN.json`: open-loop callers whose rate changes, each request on a connection of its own.

A connection each, because a Service balances connections, not requests: what keeps its connection never meets a new worker.
Arrivals are a Poisson process, and a request's latency counts from the moment it was meant to be sent.

Each connection has the next port in turn. The kernel gives ports again after some three thousand connections. Until two minutes
have passed, conntrack then sends what comes from such a port to the worker that it led to before, which may be gone.
"""

import asyncio
import errno
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path

NOT_ANSWERED = 0
# What Linux gives to clients by default.
_PORTS = range(32768, 61000)
_PORTS_A_SECOND = 40


@dataclass(frozen=True, slots=True)
class Plan:
    """Whom to ask, what, and how often: `rates` are (until second, requests a second), in order; or the very `times`, if any."""

    host: str
    path: str
    body: str
    rates: list[tuple[float, float]]
    result: str
    port: int = 8000
    seed: int = 1
    times: list[float] = field(default_factory=list)
    patience_seconds: float = 30.0

    def save(self, path: Path) -> None:
        """Write it for the process."""
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Answered:
    """One request: when it was meant to be sent (time.time()), how long that took to be answered, and the HTTP status."""

    time: float
    seconds: float
    status: int


def arrivals(plan: Plan) -> list[float]:
    """Seconds from the start."""
    if plan.times:
        return plan.times
    dice = random.Random(plan.seed)
    at, found, begin = 0.0, [], 0.0
    for until, rate in plan.rates:
        at = max(at, begin)
        while rate > 0:
            at += dice.expovariate(rate)
            if at >= until:
                break
            found.append(at)
        begin = until
        at = until
    return found


async def run(plan: Plan) -> None:
    """Send everything; one line a request goes to the result as it is answered."""
    head = f"POST {plan.path} HTTP/1.1\r\nHost: {plan.host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    data = f"{head}Content-Length: {len(plan.body)}\r\n\r\n{plan.body}".encode()
    start, wall, ports = time.monotonic(), time.time(), _ports()
    with Path(plan.result).open("w", buffering=1) as out:  # noqa: ASYNC230 -- a line at a time, to the page cache

        async def ask(at: float) -> None:
            status = await _status(plan, data, ports)
            out.write(f"{wall + at:.4f} {time.monotonic() - start - at:.5f} {status}\n")

        tasks: set[asyncio.Task[None]] = set()
        for at in arrivals(plan):
            if (early := at - (time.monotonic() - start)) > 0:
                await asyncio.sleep(early)
            task = asyncio.create_task(ask(at))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks)


async def _status(plan: Plan, data: bytes, ports: Iterator[int]) -> int:
    try:
        async with asyncio.timeout(plan.patience_seconds):
            reader, writer = await _connected(plan, ports)
            try:
                writer.write(data)
                line = await reader.readline()
                await reader.read()
                return int(line.split()[1])
            finally:
                writer.close()
    except (OSError, TimeoutError, IndexError, ValueError):
        return NOT_ANSWERED


def _ports() -> Iterator[int]:
    """All of them over and over. They begin by the clock, so that callers who follow others don't take up their ports."""
    begin = int(time.time() * _PORTS_A_SECOND) % len(_PORTS)
    return cycle([*_PORTS[begin:], *_PORTS[:begin]])


async def _connected(plan: Plan, ports: Iterator[int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from the next port that is free."""
    while True:
        try:
            return await asyncio.open_connection(plan.host, plan.port, local_addr=("0.0.0.0", next(ports)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def read(path: Path) -> list[Answered]:
    """What has been answered so far; a line that is being written is left out."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    fields = (line.split() for line in whole.splitlines())
    return sorted((Answered(float(t), float(s), int(c)) for t, s, c in fields), key=lambda a: a.time)


if __name__ == "__main__":
    text = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(run(Plan(**text)))

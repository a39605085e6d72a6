"""Callers by HTTP/1.1 that cost little themselves: prepared bytes, one request at a time on a connection."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Seen:
    """What became of requests: seconds and status of each. Status 0 is a connection that ended."""

    answers: list[tuple[float, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> list[float]:
        """Seconds of those that were answered."""
        return [taken for taken, status in self.answers if status == 200]

    @property
    def lost(self) -> int:
        """How many were not answered."""
        return len(self.answers) - len(self.good)

    @property
    def statuses(self) -> dict[str, int]:
        """How many had each status."""
        return dict(Counter(str(status) for _, status in self.answers))

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.good) / self.seconds

    def quantile(self, percent: int) -> float:
        """Milliseconds of the answers."""
        return statistics.quantiles(self.good, n=100)[percent - 1] * 1e3


def request(body: bytes, path: str, headers: dict[str, str] | None = None) -> bytes:
    """A POST as it goes over the wire."""
    given = {"Host": "bench", "Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    return f"POST {path} HTTP/1.1\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in given.items()).encode() + b"\r\n" + body


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._data += data
        head = self._data.find(b"\r\n\r\n")
        if head < 0:
            return
        lines = bytes(self._data[:head]).lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
        if len(self._data) < head + 4 + length:
            return
        body = bytes(self._data[head + 4 : head + 4 + length])
        self._data.clear()
        if b"connection: close" in lines:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((int(lines[0].split()[1]), body))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the signature is asyncio's
        """See asyncio.Protocol."""
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((0, b""))

    def close(self) -> None:
        """End the connection."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    async def ask(self, given: bytes) -> tuple[int, bytes]:
        """Status and body."""
        if self.closed or self._transport is None:
            return 0, b""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(given)
        return await self._answer


async def connect(host: str, port: int) -> Caller:
    """A connection."""
    _, made = await asyncio.get_running_loop().create_connection(Caller, host, port)
    return made


async def closed_loop(host: str, port: int, given: bytes, *, callers: int, seconds: float) -> Seen:
    """Each caller asks again as soon as it has its answer."""
    seen, end = Seen(), time.perf_counter() + seconds

    async def call() -> None:
        caller = await connect(host, port)
        while (begun := time.perf_counter()) < end:
            status, _ = await caller.ask(given)
            seen.answers.append((time.perf_counter() - begun, status))
            if caller.closed:
                caller = await connect(host, port)
        caller.close()

    begun = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    seen.seconds = time.perf_counter() - begun
    return seen


async def open_loop(ask: Callable[[], Awaitable[int]], *, rate: float, seconds: float, seed: int) -> Seen:
    """Requests come by chance, whether or not those before are answered; each counts from when it was due."""
    seen, chance, loop = Seen(), random.Random(seed), asyncio.get_running_loop()
    begun = loop.time()
    due, tasks = begun, set[asyncio.Task[None]]()

    async def one(due: float) -> None:
        status = await ask()
        seen.answers.append((loop.time() - due, status))

    while (due := due + chance.expovariate(rate)) < begun + seconds:
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        task = asyncio.create_task(one(due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    seen.seconds = loop.time() - begun
    return seen


class Pool:
    """Connections that are used again."""

    def __init__(self, host: str, port: int) -> None:
        self._where = host, port
        self._free: list[Caller] = []

    async def ask(self, given: bytes) -> int:
        """The status of an answer."""
        caller = self._free.pop() if self._free else None
        try:
            caller = caller if caller is not None and not caller.closed else await connect(*self._where)
        except OSError:
            return 0
        status, _ = await caller.ask(given)
        if not caller.closed:
            self._free.append(caller)
        return status

    def close(self) -> None:
        """End all."""
        for caller in self._free:
            caller.close()

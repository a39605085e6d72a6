"""A server whose answers take a known time, for a look at the clients themselves: one queue, one server, drawn service times.

It computes nothing, so what both clients see depends on what else the machine does as little as anything can.
"""

import asyncio
import random
import sys
import time

# Seconds; drawn once, so that each run of requests meets the same ones in the same order.
_MEAN, _COUNT, _SEED = 0.008, 4096, 5
# After so long without requests the next is taken for the first of a run.
_PAUSE_SECONDS = 0.4
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


class Queue:
    """First come, first served."""

    def __init__(self) -> None:
        drawn = random.Random(_SEED)
        self._services = [drawn.expovariate(1 / _MEAN) for _ in range(_COUNT)]
        self._next = 0
        self._free = 0.0

    def end_of_next(self) -> float:
        """When the request that comes now is done, in seconds of time.monotonic()."""
        now = time.monotonic()
        if now - self._free > _PAUSE_SECONDS:
            self._next = 0
        self._free = max(now, self._free) + self._services[self._next % _COUNT]
        self._next += 1
        return self._free


async def serve(port: int) -> None:
    """Answer on loopback until killed."""
    queue = Queue()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if b"content-length:" in head:
                    await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                if head.startswith(b"post"):
                    await asyncio.sleep(queue.end_of_next() - time.monotonic())
                writer.write(_ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))

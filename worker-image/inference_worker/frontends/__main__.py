"""`python -m inference_worker.frontends LINK CONTROL ARENA BUDGET CONNECTIONS`: one frontend, started by its worker.

LINK, CONTROL and ARENA are open files: the socket to the worker, that by which connections come, and the memory for bodies. It ends
when its worker does, which tells by closing them; the signals that a terminal or a kubelet sends are for the worker.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys

import msgspec
import uvloop

from inference_worker.allocator import keep_freed_memory
from inference_worker.frontends.arena import Allocator
from inference_worker.frontends.handover import Kind, receive
from inference_worker.frontends.link import Link
from inference_worker.frontends.messages import Alive, AnnounceEnd, Drain, FromFrontend, FromWorker
from inference_worker.frontends.relay import Relay
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.connections import Connections
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http2 import Http2Protocol

log = logging.getLogger(__name__)

ALIVE_SECONDS = 1.0
# Of a drain: the worker ends this process when it waits no longer.
_FOR_EVER_SECONDS = 1e6


class Frontend:
    """The connections of one process."""

    def __init__(self, control: socket.socket, relay: Relay, connections: Connections) -> None:
        self._control = control
        self._relay = relay
        self._connections = connections
        self._background = Background()
        self._draining = False
        self._taken = self._lost = 0
        self._arriving: set[asyncio.Task[None]] = set()
        self.gone = asyncio.Event()

    def take(self, message: FromWorker) -> None:
        """Do as the worker says."""
        match message:
            case AnnounceEnd():
                self._connections.announce_end()
            case Drain():
                self._background.spawn(self._drain())
            case _:
                self._relay.take(message)

    def accept(self) -> None:
        """Take the connections that the worker hands over."""
        while (handed := receive(self._control)) is not None:
            kind, connection = handed
            if connection is None:
                # Counted as taken: the worker would think for good that it is on its way, and wait for it at its end.
                self._taken += 1
                self._lost += 1
                continue
            task = asyncio.get_running_loop().create_task(self._connect(kind, connection))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _connect(self, kind: Kind, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._protocol(kind), connection)
        self._taken += 1

    def _protocol(self, kind: Kind) -> asyncio.Protocol:
        if kind is Kind.HTTP:
            return HttpProtocol(self._relay.request, self._connections)
        return Http2Protocol(self._relay.stream, self._connections)

    async def _drain(self) -> None:
        self.accept()
        if self._arriving:
            await asyncio.wait(self._arriving)
        self._draining = True
        self._tell_alive()
        await self._connections.drained(_FOR_EVER_SECONDS)
        self._tell_alive()

    def _tell_alive(self) -> None:
        self._relay.link.tell(Alive(len(self._connections.open), self._taken, self._draining))

    async def beat(self) -> None:
        """Say again and again that all is well."""
        while True:
            self._tell_alive()
            if self._lost:
                log.warning("%d connections were closed: this process may open no further files", self._lost)
                self._lost = 0
            await asyncio.sleep(ALIVE_SECONDS)


async def _run(link: socket.socket, control: socket.socket, arena: int, budget: int, connections: int) -> None:
    loop = asyncio.get_running_loop()
    relay = Relay(Allocator(arena))
    held = Connections(Budget(budget), limit=connections)
    frontend = Frontend(control, relay, held)
    decoder = msgspec.msgpack.Decoder(list[FromWorker])
    joined: Link[FromFrontend, FromWorker] = Link(decoder, frontend.take, frontend.gone.set)
    relay.link = joined
    await loop.create_unix_connection(lambda: joined, sock=link)
    loop.add_reader(control.fileno(), frontend.accept)
    keeping = loop.create_task(frontend.beat()), loop.create_task(held.keep_swept())
    await frontend.gone.wait()
    for each in keeping:
        each.cancel()


def main(arguments: list[str]) -> None:
    """Serve until the worker is gone."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s frontend: %(message)s")
    link, control, arena, budget, connections = map(int, arguments)
    sockets = socket.socket(fileno=link), socket.socket(fileno=control)
    for each in sockets:
        each.setblocking(False)
    uvloop.run(_run(*sockets, arena, budget, connections))


if __name__ == "__main__":
    main(sys.argv[1:])
    logging.shutdown()
    # Threads that inflate for callers who are gone need not be waited for.
    os._exit(0)

"""The worker's frontends: started before its model is loaded, given connections, and replaced when they die or fall silent."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from inference_worker.frontends import arena
from inference_worker.frontends.handover import Kind, pair, send
from inference_worker.frontends.link import Link
from inference_worker.frontends.messages import Alive, AnnounceEnd, Drain, FromFrontend, FromWorker
from inference_worker.frontends.remote import HandleRequest, HandleStream, Remote
from inference_worker.serve.budget import Budget
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES

log = logging.getLogger(__name__)

MODULE = "inference_worker.frontends"
"""What a frontend runs."""

FRONTENDS_VARIABLE = "INFERENCE_FRONTENDS"
_MOST, _CPUS_EACH = 4, 3
_SILENT_SECONDS, _STARTING_SECONDS = 10.0, 60.0
_LOOK_SECONDS = 1.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
_ACCEPTED_AT_ONCE = 64
# A body needs its own length, and its head beside it.
_SPARE_BYTES = 1 << 20


def frontends_of(environment: Mapping[str, str], *, on_device: bool, cpus: int) -> int:
    """How many a worker has: none where the CPUs run the model, since they would only take them from it."""
    if (said := environment.get(FRONTENDS_VARIABLE)) is not None:
        return int(said)
    return min(_MOST, cpus // _CPUS_EACH) if on_device else 0


def is_silent(now: float, begun: float, alive_at: float | None) -> bool:
    """Whether a frontend has said nothing for too long. One that has yet to start may take longer: the next would be as slow."""
    return now - begun > _STARTING_SECONDS if alive_at is None else now - alive_at > _SILENT_SECONDS


@dataclass(frozen=True, slots=True)
class Limits:
    """What all frontends together may hold: bytes of requests and answers, and connections."""

    budget_bytes: int
    connections: int

    def shared_by(self, number: int) -> "Limits":
        """One of `number` frontends' share; always enough for the largest body."""
        return Limits(max(self.budget_bytes // number, BODY_LIMIT_BYTES + _SPARE_BYTES), max(1, self.connections // number))


class Frontend:
    """One of them, as long as it lives. `connections` is how many it has, those on their way to it among them."""

    def __init__(self, limits: Limits, remote: Callable[[arena.Reader], Remote], heard: Callable[[], None]) -> None:
        """`heard` is called whenever it has said something of itself."""
        self._limits = limits
        self._remote_of = remote
        self._heard = heard
        self._gone = asyncio.Event()
        self._handing: socket.socket | None = None
        self._remote: Remote | None = None
        self.link: Link[FromWorker, FromFrontend] | None = None
        self._handed = 0
        self.connections = 0
        self.draining = False
        self.alive_at: float | None = None

    @property
    def ready(self) -> bool:
        """Whether it takes connections."""
        return self.alive_at is not None and not self._gone.is_set()

    def hand(self, kind: Kind, connection: socket.socket) -> bool:
        """Give it a connection; whether it has taken it."""
        if self._handing is None or not send(self._handing, kind, connection):
            return False
        self._handed += 1
        self.connections += 1
        return True

    async def run(self) -> None:
        """Start it and wait for its end. What its callers asked is given up then."""
        loop = asyncio.get_running_loop()
        memory = arena.create(self._limits.budget_bytes)
        ours, theirs = socket.socketpair()
        handing, handed = pair()
        try:
            self._remote = self._remote_of(arena.Reader(memory))
            process = await self._start(theirs, handed, memory)
        finally:
            os.close(memory)
            theirs.close()
            handed.close()
        for each in (ours, handing):
            each.setblocking(False)
        decoder = msgspec.msgpack.Decoder(list[FromFrontend])
        link: Link[FromWorker, FromFrontend] = Link(decoder, self._take, self._gone.set)
        self.link = self._remote.link = link
        self._handing = handing
        try:
            await loop.create_unix_connection(lambda: link, sock=ours)
            await self._watched(process)
        finally:
            self._gone.set()
            self._handing = None
            handing.close()
            link.close()
            self._remote.abandon()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start(self, theirs: socket.socket, handed: socket.socket, memory: int) -> asyncio.subprocess.Process:
        files = theirs.fileno(), handed.fileno(), memory
        numbers = *files, self._limits.budget_bytes, self._limits.connections
        isolated = ["-I"] if sys.flags.isolated else []
        command = [sys.executable, *isolated, "-m", MODULE, *map(str, numbers)]
        return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, pass_fds=files)

    async def _watched(self, process: asyncio.subprocess.Process) -> None:
        """Return when it is gone, or silent for too long."""
        begun, silent = time.monotonic(), 0
        while not self._gone.is_set() and process.returncode is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _LOOK_SECONDS)
            # Twice: what it has said may not have been heard because this process was busy.
            silent = silent + 1 if is_silent(time.monotonic(), begun, self.alive_at) else 0
            if silent > 1:
                log.error("frontend %d has said nothing for too long; it is replaced", process.pid)
                return
            if self._remote is not None:
                self._remote.free()

    def _take(self, message: FromFrontend) -> None:
        if isinstance(message, Alive):
            self.connections = message.connections + self._handed - message.taken
            self.draining = message.draining
            self.alive_at = time.monotonic()
            self._heard()
        elif self._remote is not None:
            self._remote.take(message)


class Frontends:
    """All of them, and the ports whose connections they are given."""

    def __init__(self, number: int, limits: Limits, budget: Budget, request: HandleRequest, stream: HandleStream) -> None:
        """`request` and `stream` answer what callers ask; `budget` is the worker's own, for what it makes of that."""
        self._limits = limits.shared_by(number)
        self._remote = lambda memory: Remote(memory, budget, request, stream)
        self._loop = asyncio.get_running_loop()
        self._ports: list[tuple[Kind, socket.socket]] = []
        self._accepting = False
        # Accepted, while no frontend had room.
        self._waiting: deque[tuple[Kind, socket.socket]] = deque()
        self._ended = False
        self._change = asyncio.Event()
        self._live: list[Frontend | None] = [None] * number
        self._keeping = [self._loop.create_task(self._keep(at)) for at in range(number)]

    @property
    def ready(self) -> bool:
        """Whether each of them takes connections."""
        return all(each is not None and each.ready for each in self._live)

    async def wait_ready(self) -> None:
        """Wait until each of them takes connections."""
        while not self.ready:
            self._change.clear()
            await self._change.wait()

    async def _keep(self, at: int) -> None:
        """Have one running until the end; those that die at once are started ever more seldom."""
        pause = _PAUSE_SECONDS
        while True:
            begun = time.monotonic()
            frontend = self._live[at] = Frontend(self._limits, self._remote, self._heard)
            try:
                await frontend.run()
            except OSError:
                log.exception("a frontend could not be started")
            self._live[at] = None
            self._change.set()
            if self._ended:
                return
            log.error("a frontend has ended; its callers are cut off, and another one takes its place")
            pause = _PAUSE_SECONDS if time.monotonic() - begun > _LONGEST_PAUSE_SECONDS else min(2 * pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause)

    def _heard(self) -> None:
        self._change.set()
        self._accept_on()

    # connections

    def listen(self, ports: Mapping[Kind, socket.socket]) -> None:
        """Take the connections of these listening sockets from now on."""
        self._ports = list(ports.items())
        for _, port in self._ports:
            port.setblocking(False)
        self._accept_on()

    def _accept_on(self) -> None:
        self._hand_waiting()
        if not self._accepting and self._ports and not self._waiting and self._by_load():
            self._accepting = True
            for kind, port in self._ports:
                self._loop.add_reader(port.fileno(), self._accept, kind, port)

    def _accept_no_more(self) -> None:
        """Leave callers in the backlog, where they wait until there is a frontend again."""
        if self._accepting:
            self._accepting = False
            for _, port in self._ports:
                self._loop.remove_reader(port.fileno())

    def _by_load(self) -> list[Frontend]:
        ready = [each for each in self._live if each is not None and each.ready]
        return sorted(ready, key=lambda each: each.connections)

    def _accept(self, kind: Kind, port: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._waiting or not self._by_load():
                self._accept_no_more()
                return
            try:
                connection, _ = port.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is left. The port would wake this process again and again.
                log.warning("a connection can't be taken: %s", error)
                self._accept_no_more()
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._waiting.append((kind, connection))
            self._hand_waiting()

    def _hand_waiting(self) -> None:
        """Hand over what is accepted. A frontend that is behind has no room for more, and the next one may have."""
        while self._waiting:
            kind, connection = self._waiting[0]
            if not any(each.hand(kind, connection) for each in self._by_load()):
                return
            self._waiting.popleft()
            connection.close()

    def close(self) -> None:
        """Take no new connections."""
        self._accept_no_more()
        self._hand_waiting()
        for _, port in (*self._ports, *self._waiting):
            port.close()
        self._ports = []
        self._waiting.clear()

    # the end

    def announce_end(self) -> None:
        """See Connections."""
        self._tell(AnnounceEnd())

    async def drained(self, seconds: float) -> int:
        """See Connections."""
        self._tell(Drain())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none_left(), seconds)
        return sum(each.connections for each in self._live if each is not None)

    async def _none_left(self) -> None:
        while any(each.connections or not each.draining for each in self._live if each is not None):
            self._change.clear()
            await self._change.wait()

    def _tell(self, message: FromWorker) -> None:
        self._ended = True
        for each in self._live:
            if each is not None and each.link is not None:
                each.link.tell(message)

    def end(self) -> None:
        """End them all."""
        self._ended = True
        for keeping in self._keeping:
            keeping.cancel()

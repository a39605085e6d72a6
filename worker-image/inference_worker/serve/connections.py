"""All open connections of a worker, of either protocol: drained at its end, and closed when nothing is said on them for long."""

import asyncio
import socket
import time
from typing import Protocol

from inference_worker.serve.budget import Budget
from inference_worker.serve.http_heads import KnownHeads

STALL_SECONDS = 30.0
LINGER_SECONDS = 2.0
"""How long what comes behind a refusal is read, without a look, so that its caller sees the refusal."""

SLOWEST_BYTES = 64 << 10
"""What a caller takes of its answers at least in STALL_SECONDS, while they wait for it."""

_SWEEP_SECONDS = 15.0
_LOOK_SECONDS = 0.2
_TCP_CLOSE = 7
"""The kernel's state of a connection that its other side has reset (tcp(7))."""
CONNECTION_LIMIT = 20_000
_SPARED_BYTES = 128 << 10
IDLE_SECONDS = 600.0
"""Longer than the time after which proxies and clients give up a kept connection themselves, so that we seldom race with one."""


class Connection(Protocol):
    """One caller's connection.

    `used` is when it last brought something (time.monotonic), `unread` how many bytes of answers wait for its caller to take them.
    """

    used: float
    unread: int

    @property
    def idle(self) -> bool:
        """Whether nobody waits for an answer here."""
        ...

    def announce_end(self) -> None:
        """Tell the caller, in the protocol's way, that this connection takes no more requests than those under way."""
        ...

    def end_stalled(self, before: float) -> None:
        """Give up what a caller began to send before then (time.monotonic) and has not ended, where nothing else does."""
        ...

    def close_when_idle(self) -> None:
        """Close now if nobody waits for an answer, else with the last answer. Break off what can't be closed."""
        ...

    def end_unread(self) -> None:
        """End now, since the caller takes no answers."""
        ...


class CallerTimers:
    """Of a connection: how long its caller may take to send what it has begun, and to take what it is sent.

    `_unsent` is what the transport held of its answers when it was last looked; a connection looks while that is full.
    """

    __slots__ = ("_stall", "_transport", "_unsent", "_untaken")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._untaken: asyncio.TimerHandle | None = None
        self._unsent = 0

    def end_unread(self) -> None:
        """See Connection."""
        raise NotImplementedError

    def _count_unread(self) -> None:
        """Say how many bytes of answers wait for the caller."""
        raise NotImplementedError

    def _watch_taken(self, transport: asyncio.Transport) -> None:
        """The transport is full: its caller has to take SLOWEST_BYTES in each STALL_SECONDS until it is not."""
        self._unsent = transport.get_write_buffer_size()
        self._untaken = asyncio.get_running_loop().call_later(STALL_SECONDS, self._check_taken)
        self._count_unread()

    def _check_taken(self) -> None:
        self._untaken = None
        if self._transport is None:
            return
        if self._unsent - self._transport.get_write_buffer_size() < SLOWEST_BYTES:
            self.end_unread()
        else:
            self._watch_taken(self._transport)

    def _clear_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _watch_leaving(self) -> None:
        """The caller sends nothing more. End with it: what it was sent last is reset where nobody is there to take it."""
        self._stall = None
        if self._transport is None:
            return
        reached = self._transport.get_extra_info("socket")
        if reached is not None and reached.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE:
            self.end_unread()
        else:
            self._stall = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._watch_leaving)

    def _clear_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


class Connections:
    """The set of them. While draining, each is closed after its next answer, and says so to its caller.

    `heads` are request heads that were parsed on any of them, `budget` is what all of them may hold.
    """

    def __init__(self, budget: Budget | None = None, *, limit: int = CONNECTION_LIMIT) -> None:
        """`limit` is how many connections there may be."""
        self.budget = budget or Budget()
        self.heads = KnownHeads(self.budget)
        self.open: set[Connection] = set()
        self._limit = limit
        self._slow: set[Connection] = set()
        self.draining = False
        self._none = asyncio.Event()
        self._none.set()

    def add(self, connection: Connection) -> bool:
        """A connection is there; whether it may stay."""
        if len(self.open) >= self._limit:
            return False
        self.open.add(connection)
        self._none.clear()
        return True

    def left_unread(self, connection: Connection, size: int) -> None:
        """So many bytes of answers wait for a caller. Where all callers leave too many, the one that leaves most is ended."""
        self.budget.hold(size - connection.unread)
        connection.unread = size
        if not size:
            self._slow.discard(connection)
            return
        self._slow.add(connection)
        if self.budget.exceeded:
            worst = max(self._slow, key=lambda each: each.unread)
            if worst.unread > _SPARED_BYTES:
                worst.end_unread()

    def discard(self, connection: Connection) -> None:
        """A connection is gone."""
        self.left_unread(connection, 0)
        self.open.discard(connection)
        if not self.open:
            self._none.set()

    def announce_end(self) -> None:
        """From now on every answer is its connection's last."""
        self.draining = True
        for connection in list(self.open):
            connection.announce_end()

    async def drained(self, seconds: float) -> int:
        """Close idle connections, let the others have their answers, and count those that did not get them in time."""
        for connection in list(self.open):
            connection.close_when_idle()
        try:
            await asyncio.wait_for(self._none.wait(), seconds)
        except TimeoutError:
            return len(self.open)
        return 0

    async def keep_swept(self) -> None:
        """Sweep again and again."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()

    def sweep(self) -> None:
        """Close what has been silent for IDLE_SECONDS, and end what has come in halves for STALL_SECONDS."""
        now = time.monotonic()
        for connection in list(self.open):
            connection.end_stalled(now - STALL_SECONDS)
            if connection.used < now - IDLE_SECONDS and connection.idle:
                connection.close_when_idle()

"""The loop that sends each request at its intended moment, whatever has become of those before it."""

import ctypes
import os
import select
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.worker.client.spec import NOT_ANSWERED, Spec

# Waking from sleep takes a processor tens of microseconds: the last stretch before a send is waited out awake.
_AWAKE_SECONDS = 120e-6
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC, _NONBLOCK, _ABSOLUTE = 1, 0o4000, 1
clock = time.monotonic


class _Moment(ctypes.Structure):
    _fields_ = (("interval_s", ctypes.c_long), ("interval_ns", ctypes.c_long), ("s", ctypes.c_long), ("ns", ctypes.c_long))


class Wire(Protocol):
    """A protocol's connections."""

    def send(self, number: int) -> bool:
        """Send a request; False when no connection is free for it now."""
        ...


class Driver:
    """Sends, waits for sockets, and notes the moments. All times are seconds of time.monotonic()."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.poller = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        count = max(1, int(spec.rate * spec.seconds))
        self.start = clock() + 0.05
        self.intended = self.start + _offsets(spec, count)
        self.sent = [0.0] * count
        self.done = [0.0] * count
        self.status = [NOT_ANSWERED] * count
        self.tails: list[bytes] = [b""] * count
        self.doubled = 0
        self.left = count
        self.again: list[int] = []
        self._idle = 0.0
        self._timer = _LIBC.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
        self.watch(self._timer, self._drain_timer)

    def watch(self, fd: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        """Call the handler with the events of a descriptor."""
        self.handlers[fd] = handler
        self.poller.register(fd, mask)

    def forget(self, fd: int) -> None:
        """Stop watching, before the descriptor is closed."""
        del self.handlers[fd]
        self.poller.unregister(fd)

    def finish(self, number: int, status: int, tail: bytes = b"") -> None:
        """An answer has come, or will not come any more. One answer too many is counted, not taken."""
        if self.status[number] != NOT_ANSWERED:
            self.doubled += 1
            return
        self.done[number] = clock()
        self.status[number] = status
        self.tails[number] = tail
        self.left -= 1

    def run(self, wire: Wire) -> None:
        """Send everything, then wait for what is still out."""
        intended = self.intended.tolist()
        count, following = len(intended), 0
        serial = self.spec.arrivals == "serial"
        give_up = intended[-1] + self.spec.grace_seconds
        while self.left and (now := clock()) < give_up:
            while self.again and wire.send(self.again[-1]):
                self.again.pop()
            due = following < count and intended[following] <= now
            if due and serial and count - self.left < following:
                due = False
            if due and wire.send(following):
                self.sent[following] = now
                following += 1
                self._events(0.0)
                continue
            blocked = due or following >= count or serial
            self._wait(now, now + 0.01 if blocked else intended[following], awake=count - self.left < following)

    def _wait(self, now: float, until: float, *, awake: bool) -> None:
        # While an answer is out the client stays awake, too: its own waking must not be measured as the server's latency.
        if not awake and until - now > _AWAKE_SECONDS:
            self._arm(until - _AWAKE_SECONDS)
            events = self.poller.poll()
            self._idle += clock() - now
            self._dispatch(events)
        elif not self._events(0.0):
            self._idle += clock() - now

    def _events(self, timeout: float) -> bool:
        events = self.poller.poll(timeout)
        self._dispatch(events)
        return bool(events)

    def _dispatch(self, events: list[tuple[int, int]]) -> None:
        for fd, mask in events:
            # An earlier event of this round may have closed it.
            if (handler := self.handlers.get(fd)) is not None:
                handler(mask)

    def _arm(self, until: float) -> None:
        seconds = int(until)
        moment = _Moment(0, 0, seconds, int((until - seconds) * 1e9) or 1)
        _LIBC.timerfd_settime(self._timer, _ABSOLUTE, ctypes.byref(moment), None)

    def _drain_timer(self, _mask: int) -> None:
        os.read(self._timer, 8)

    def save(self) -> None:
        """Leave the moments for whoever started the client."""
        took = max(clock() - self.start, 1e-9)
        size = self.spec.tail_bytes
        tails = b"".join(tail[-size:].rjust(size, b"\0") for tail in self.tails) if size else b""
        np.savez(
            self.spec.result,
            intended=self.intended - self.start,
            sent=np.array(self.sent) - self.start,
            done=np.array(self.done) - self.start,
            status=np.array(self.status),
            busy=1 - self._idle / took,
            doubled=self.doubled,
            tails=np.frombuffer(tails, np.uint8).reshape(-1, size or 1),
        )


def _offsets(spec: Spec, count: int) -> NDArray[np.float64]:
    if spec.arrivals == "serial":
        return np.zeros(count)
    if spec.arrivals == "constant":
        return np.arange(count) / spec.rate
    gaps = np.random.default_rng(spec.seed).exponential(1 / spec.rate, count)
    return np.cumsum(gaps)

"""How a download goes on: broken off when told to stop, and when too little comes."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import StoppedError, WorkerError

# A server that sends less in this time is given up: a download that drips would hold a device for days.
_SLOW_SECONDS = 30.0
_SLOWEST_BYTES = 256 << 10
_LOOK_SECONDS = 0.1


class Pace:
    """How a download goes on. `taken` counts its bytes; `faults` say why it was broken off, for who raises one to take away."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        """`stop` is asked ten times a second."""
        self.taken = 0
        self.faults: list[Exception] = []
        self._stop = stop
        self._done = threading.Event()

    def watch(self, raw: socket.socket, url: str) -> None:
        """Break the connection off when told to stop, or when too little comes. Ends with `end`."""
        since, before = time.monotonic(), 0
        while not self._done.wait(_LOOK_SECONDS):
            if self._stop():
                self.faults.append(StoppedError(url))
            elif time.monotonic() - since >= _SLOW_SECONDS:
                if (came := self.taken - before) < _SLOWEST_BYTES:
                    text = f"{url}: {came} bytes came in {_SLOW_SECONDS:g} s, and {_SLOWEST_BYTES} must; use a faster server"
                    self.faults.append(WorkerError(WorkerReason.MODEL_UNREACHABLE, text))
                since, before = time.monotonic(), self.taken
            if self.faults:
                with suppress(OSError):
                    raw.shutdown(socket.SHUT_RDWR)
                return

    def end(self) -> None:
        """Nothing is waited for any more."""
        self._done.set()


@contextmanager
def paced(raw: socket.socket, url: str, stop: Callable[[], bool]) -> Iterator[Pace]:
    """A download over `raw`, broken off where it has to be. Raises why."""
    pace = Pace(stop)
    # In a thread: a read waits for as long as anything comes, and so does that of a head.
    watching = threading.Thread(target=pace.watch, args=(raw, url), name="watching", daemon=True)
    watching.start()
    try:
        yield pace
    except (OSError, http.client.HTTPException, WorkerError):
        if pace.faults:
            raise pace.faults.pop() from None
        raise
    finally:
        pace.end()
        watching.join()
    if pace.faults:
        raise pace.faults.pop()

"""When a batch may use what the requests leave of a device: a run at a time, and only where no request would be late for it.

A background run begins while no request waits or runs. One that comes meanwhile waits for its end, so a run must not be longer than
the time that requests have to spare: what the tightest deadlines of late left beyond their own runs, and what the latency target
leaves to a request that comes now. Without either there is nothing to miss. Work of the two kinds is never in one run: whose rows
are beside a caller's must not hang on a batch.
"""

import threading
import time
from collections.abc import Callable

from inference_worker.engines.engine import Cancellation, Engine, Shapes, Tensor, Tensors, shapes_of
from inference_worker.engines.wrapped import WrappedEngine

_WINDOW_SECONDS = 10.0
"""For how long a request's deadline is held to be what the next ones have, at least; at most twice that."""

_LOOK_SECONDS = 0.05
"""How long is waited at most before it is looked again: whoever waits may have been told to stop, and windows pass."""

_NONE = float("inf")
_FOLLOW = 0.2
_SHAPES = 64


class Slack:
    """Told of requests on the event loop; background runs wait in threads of their own."""

    def __init__(self, busy: Callable[[], bool], clock: Callable[[], float] = time.monotonic, *, most: float = _NONE) -> None:
        """`busy` says whether a request waits or runs; any thread may ask. `most` is the budget where no request has come."""
        self._busy = busy
        self._most = most
        self._clock = clock
        self._free = threading.Event()
        self._waiting = 0
        self._since = clock()
        self._tightest = self._before = _NONE

    def spare(self, seconds: float) -> None:
        """A request has come that has so many seconds beyond its own run and those before it."""
        self._turn(self._clock())
        self._tightest = min(self._tightest, max(0.0, seconds))

    def freed(self) -> None:
        """Nothing waits or runs any more."""
        if self._waiting:
            self._free.set()

    @property
    def budget(self) -> float:
        """The longest background run, in seconds, that makes no request late; infinite where none has a deadline or a target."""
        self._turn(self._clock())
        return min(self._tightest, self._before, self._most)

    def wait(self, seconds: float, stopped: Callable[[], bool]) -> bool:
        """Wait until a background run of so many seconds may begin; False where it was `stopped` before."""
        self._waiting += 1
        try:
            while not stopped():
                self._free.clear()
                if not self._busy() and seconds <= self.budget:
                    return True
                self._free.wait(_LOOK_SECONDS)
        finally:
            self._waiting -= 1
        return False

    def _turn(self, now: float) -> None:
        if now - self._since >= _WINDOW_SECONDS:
            self._before = self._tightest if now - self._since < 2 * _WINDOW_SECONDS else _NONE
            self._since, self._tightest = now, _NONE


class InSlack(WrappedEngine):
    """An engine whose runs wait for their turn behind the requests of the same device, one at a time.

    Nothing of it is prepared beside other runs: buffers that it held would be missing to requests. `ran` counts its runs, and
    `computed_seconds` is what they took of the device.
    """

    def __init__(
        self,
        engine: Engine,
        slack: Slack,
        stopped: Callable[[], bool],
        expected: Callable[[Tensors], float] = lambda _: 0.0,
    ) -> None:
        """Once `stopped`, whoever waits runs at once, and then sees by itself that it is to end.

        `expected` is how many seconds a run of such feeds should take that was not made yet; 0 where nobody knows.
        """
        super().__init__(engine)
        self._expected = expected
        self._slack = slack
        self._stopped = stopped
        self._seconds: dict[Shapes, float] = {}
        self.ran = 0
        self.computed_seconds = 0.0

    @property
    def device_runs(self) -> None:
        """See Engine."""
        return

    def stage(self, shapes: Shapes, *, wait: bool = True) -> None:
        """See Engine."""

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """See Engine."""
        shapes = shapes_of(feeds)
        known = self._seconds.get(shapes)
        self._slack.wait(self._expected(feeds) if known is None else known, self._stopped)
        begun = time.perf_counter()
        answers = self._engine.run(feeds, wanted, cancellation)
        taken = time.perf_counter() - begun
        self.ran += 1
        self.computed_seconds += taken
        if shapes in self._seconds or len(self._seconds) < _SHAPES:
            self._seconds[shapes] = taken if known is None else known + _FOLLOW * (taken - known)
        return answers

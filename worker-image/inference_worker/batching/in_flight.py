"""The runs of a model that are under way: when one of them ends by the forecast, and whether one hangs.

What hangs is decided here for the runs of requests and those of batches (`watched.py`) alike.
"""

from inference_worker.batching.ticket import Batch

STUCK_SECONDS = 60.0
"""A run that takes this long, and _STUCK_TIMES longer than the profile says, will not end by itself."""

_STUCK_TIMES = 100

FIRST_SECONDS = 1800.0
"""What a run has whose like was never measured, however large it is: it may compile for these shapes first."""


def hangs(seconds: float, expected: float | None) -> bool:
    """Whether a run that has taken so many seconds will not end by itself; `expected` is None where nothing is known of it."""
    return seconds > (FIRST_SECONDS if expected is None else max(STUCK_SECONDS, _STUCK_TIMES * expected))


def hanging(rows: int, seconds: float) -> str:
    """That a run hangs, in words."""
    return f"a run of {rows} rows has not ended for {seconds:.0f} s"


class InFlight:
    """The runs under way, in the order in which they compute: as many at a time as there are runners, while others are prepared.

    Instants are those of the batcher's clock. A prepared run begins when its turn comes.
    """

    __slots__ = ("_batches", "_runners")

    def __init__(self, runners: int) -> None:
        self._batches: list[Batch] = []
        self._runners = runners

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Batch) -> None:
        """Take note of a run that has begun, or is prepared."""
        self._batches.append(batch)

    def discard(self, batch: Batch, now: float) -> None:
        """Take note of a run that has ended."""
        at = self._batches.index(batch)
        del self._batches[at]
        if at < self._runners <= len(self._batches):
            self._batches[self._runners - 1].begun = now

    @property
    def requests(self) -> int:
        """Requests in these runs."""
        return sum(len(batch.tickets) for batch in self._batches)

    @property
    def _computing(self) -> list[Batch]:
        return self._batches[: self._runners]

    def seconds(self, now: float) -> float:
        """Seconds that these runs have computed so far, added up."""
        return sum(max(0.0, now - batch.begun) for batch in self._computing)

    def free_in(self, now: float) -> float:
        """Seconds until a runner is free for new work, by what is expected of the runs; 0 while one is."""
        if len(self._batches) < self._runners:
            return 0.0
        first = max(0.0, min(batch.begun + batch.expected for batch in self._computing) - now)
        return first + sum(batch.expected for batch in self._batches[self._runners :]) / self._runners

    def hung(self, now: float) -> Batch | None:
        """A run that will not end by itself."""
        for batch in self._computing:
            if hangs(now - batch.begun, batch.expected):
                return batch
        return None

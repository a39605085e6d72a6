"""The runs of a model that are under way: when one of them ends by the forecast, and whether one hangs."""

from inference_worker.batching.ticket import Batch

STUCK_SECONDS = 60.0
"""A run that takes this long, and _STUCK_TIMES longer than the profile says, will not end by itself."""

_STUCK_TIMES = 100


class InFlight:
    """At most as many runs as there are runners. Instants are those of the batcher's clock."""

    __slots__ = ("_batches", "_runners")

    def __init__(self, runners: int) -> None:
        self._batches: set[Batch] = set()
        self._runners = runners

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Batch) -> None:
        """Take note of a run that has begun."""
        self._batches.add(batch)

    def discard(self, batch: Batch) -> None:
        """Take note of a run that has ended."""
        self._batches.discard(batch)

    @property
    def requests(self) -> int:
        """Requests in these runs."""
        return sum(len(batch.tickets) for batch in self._batches)

    def seconds(self, now: float) -> float:
        """Seconds that these runs have taken so far, added up."""
        return sum(max(0.0, now - batch.begun) for batch in self._batches)

    def free_in(self, now: float) -> float:
        """Seconds until a runner is free for new work, by what is expected of the runs; 0 while one is."""
        if len(self._batches) < self._runners:
            return 0.0
        return max(0.0, min(batch.begun + batch.expected for batch in self._batches) - now)

    def hung(self, now: float) -> Batch | None:
        """A run that will not end by itself."""
        for batch in self._batches:
            if now - batch.begun > max(STUCK_SECONDS, _STUCK_TIMES * batch.expected):
                return batch
        return None

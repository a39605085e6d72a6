"""What is counted of a model's cache, and the series made of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class Result(StrEnum):
    """What came of a request that the cache was asked about."""

    HIT = "hit"
    MISS = "miss"
    COALESCED = "coalesced"
    REUSE = "reuse"
    PAST = "past"


class Kind(StrEnum):
    """What is kept: answers to be given again for the same bytes, or frames with theirs."""

    ANSWERS = "answers"
    FRAMES = "frames"


@dataclass(frozen=True, slots=True)
class Occupied:
    """What one kind takes now, and how often room was made since the start: for want of it, and by age."""

    bytes: int = 0
    entries: int = 0
    outgrown: int = 0
    expired: int = 0


@dataclass(slots=True)
class CacheCounts:
    """Since the start. `saved_seconds` are those of the runs that a request would have had for itself."""

    occupied: Callable[[], dict[Kind, Occupied]] = lambda: dict.fromkeys(Kind, Occupied())
    results: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(Result, 0))
    saved_seconds: float = 0.0

    @property
    def hits(self) -> int:
        """Requests that had no run of their own."""
        return sum(self.results[result] for result in (Result.HIT, Result.COALESCED, Result.REUSE))

    @property
    def misses(self) -> int:
        """Requests that had one, since nothing was kept for them."""
        return self.results[Result.MISS]

    def saved(self, result: Result, seconds: float) -> None:
        """Count a request that was answered without a run of its own."""
        self.results[result] += 1
        self.saved_seconds += seconds

    def collect(self, names: tuple[str, ...], labels: tuple[str, ...]) -> Iterator[Metric]:
        """The series, with a model's labels."""
        requests = CounterMetricFamily(
            "inference_cache_requests",
            "Requests by what the cache made of them: hit, reuse of a like frame, coalesced with one under way, miss, past it.",
            labels=(*names, "result"),
        )
        for result, count in self.results.items():
            requests.add_metric((*labels, result), count)
        yield requests
        saved = CounterMetricFamily(
            "inference_cache_saved_seconds", "Seconds of runs that the cache has spared the model.", labels=names
        )
        saved.add_metric(labels, self.saved_seconds)
        yield saved
        yield from self._of_room(names, labels)

    def _of_room(self, names: tuple[str, ...], labels: tuple[str, ...]) -> Iterator[Metric]:
        taken = GaugeMetricFamily("inference_cache_bytes", "Memory that the cache takes.", labels=(*names, "kind"))
        entries = GaugeMetricFamily(
            "inference_cache_entries", "Answers, or streams with a frame, that are kept.", labels=(*names, "kind")
        )
        gone = CounterMetricFamily(
            "inference_cache_evictions", "Entries that went: for want of room, or by age.", labels=(*names, "kind", "cause")
        )
        for kind, occupied in self.occupied().items():
            taken.add_metric((*labels, kind), occupied.bytes)
            entries.add_metric((*labels, kind), occupied.entries)
            gone.add_metric((*labels, kind, "room"), occupied.outgrown)
            gone.add_metric((*labels, kind, "age"), occupied.expired)
        yield from (taken, entries, gone)

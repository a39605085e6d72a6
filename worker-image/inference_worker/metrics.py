"""Every metric of the worker, in one place. Names are an API: docs/ lists them and a test compares.

Requests are counted in plain numbers and made into metrics when somebody scrapes: the library's own counters would cost more
than a small model's run (figures in docs/measurements.md).
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_protocol.sketch import HIGHEST_SECONDS, LOG_GAMMA, LOWEST_SECONDS, LatencySketch
from inference_worker.batching.batcher import Batcher
from inference_worker.batching.ticket import Counts, Timing
from inference_worker.tenant_metrics import of_tenants

if TYPE_CHECKING:
    from inference_worker.cache.counts import CacheCounts

# A series beside each counter that nothing reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY = CollectorRegistry()

# Those of OpenTelemetry's http.server.request.duration, and finer ones below 5 ms, where most CPU inference lives.
BUCKETS_MILLISECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000)
BUCKETS_SECONDS = tuple(milliseconds / 1e3 for milliseconds in BUCKETS_MILLISECONDS)
BUCKETS_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_FOLD = 1024
LABELS = ("namespace", "inference_job", "model", "version")

items_total = Counter("inference_batch_items_total", "Items of a batch task that were committed.", LABELS, registry=REGISTRY)

Values = npt.NDArray[np.float64]


class Distribution:
    """A histogram: counts by upper bound, the last for what is above all of them."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, values: Values) -> None:
        """Count values."""
        places = np.searchsorted(self.bounds, values)
        self.counts = (np.bincount(places, minlength=len(self.counts)) + self.counts).tolist()
        self.sum += float(values.sum())

    def in_milliseconds(self) -> "Distribution":
        """Return a distribution of seconds in milliseconds."""
        found = Distribution(BUCKETS_MILLISECONDS)
        found.counts, found.sum = self.counts, self.sum * 1e3
        return found

    @property
    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: how many were at most each bound."""
        total, found = 0, []
        for bound, count in zip((*map(str, map(float, self.bounds)), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


def _sketch_of(seconds: Values) -> LatencySketch:
    logarithms = np.log(np.clip(seconds, LOWEST_SECONDS, HIGHEST_SECONDS))
    buckets, counts = np.unique(np.ceil(logarithms / LOG_GAMMA).astype(np.int64), return_counts=True)
    return LatencySketch(dict(zip(buckets.tolist(), counts.tolist(), strict=True)))


class ModelMetrics:
    """What one model's callers met. Outlives a reload, so that counters never fall."""

    def __init__(self, labels: tuple[str, ...], *, ready: Callable[[], bool]) -> None:
        self.labels = labels
        self.codes: dict[int, int] = {}
        self._timings: list[tuple[Timing, float]] = []
        self._latency = Distribution(BUCKETS_SECONDS)
        self._queue = Distribution(BUCKETS_SECONDS)
        self._compute = Distribution(BUCKETS_SECONDS)
        self._rows = Distribution(BUCKETS_ROWS)
        self._sketch = LatencySketch()
        self.counts = Counts()
        self.batcher: Batcher | None = None
        self.cache: CacheCounts | None = None
        self._last_inference = 0.0
        self._ready = ready

    def answered(self, code: int) -> None:
        """Count a request by the status that its caller got (gRPC's as the HTTP status that means the same)."""
        self.codes[code] = self.codes.get(code, 0) + 1

    def ran(self, timing: Timing, seconds: float) -> None:
        """Count the times of a request that the model answered: `seconds` is all that passed from its last byte to its answer."""
        self._timings.append((timing, seconds))
        if len(self._timings) >= _FOLD:
            self._fold()

    def _fold(self) -> None:
        """Take the kept timings into the distributions: many at once, since one after another they would hold up all callers."""
        if not self._timings:
            return
        timings, self._timings = self._timings, []
        self._last_inference = time.time()
        seconds = np.array([seconds for _, seconds in timings])
        self._sketch.merge(_sketch_of(seconds))
        self._latency.observe(seconds)
        self._queue.observe(np.array([timing.queue for timing, _ in timings]))
        self._compute.observe(np.array([timing.compute for timing, _ in timings]))
        self._rows.observe(np.array([timing.rows for timing, _ in timings], np.float64))

    @property
    def sketch(self) -> LatencySketch:
        """Latencies from whole requests to their answers, seconds."""
        self._fold()
        return self._sketch

    @property
    def latency(self) -> Distribution:
        """From the whole request to its answer, seconds."""
        self._fold()
        return self._latency

    @property
    def queue(self) -> Distribution:
        """Seconds waited."""
        self._fold()
        return self._queue

    @property
    def compute(self) -> Distribution:
        """Seconds in the model."""
        self._fold()
        return self._compute

    @property
    def rows(self) -> Distribution:
        """Rows of the runs that answered."""
        self._fold()
        return self._rows

    @property
    def last_inference(self) -> float:
        """Unix time of the last answer, to the precision of the last look."""
        self._fold()
        return self._last_inference

    @property
    def requests(self) -> int:
        """Requests answered, whatever the answer."""
        return sum(self.codes.values())

    @property
    def asked(self) -> int:
        """Requests that came: answered, running or waiting."""
        under_way = self.batcher.waiting + self.batcher.in_flight if self.batcher is not None else 0
        return self.requests + under_way

    @property
    def failed(self) -> int:
        """Requests answered with an error."""
        return self.requests - self.codes.get(200, 0)

    def collect(self) -> Iterator[Metric]:
        """All series of this model."""
        latency = self.latency
        yield self._by_code()
        for name, text, distribution in (
            ("inference_latency_seconds", "From the whole request to its answer: parsing, queue, compute and encoding.", latency),
            ("inference_latency_ms", "The same in milliseconds.", latency.in_milliseconds()),
            ("inference_queue_seconds", "Time waited for the model.", self.queue),
            ("inference_compute_seconds", "Time in the model.", self.compute),
            ("inference_batch_rows", "Rows of the run that answered a request.", self.rows),
        ):
            family = HistogramMetricFamily(name, text, labels=LABELS)
            family.add_metric(self.labels, distribution.cumulative, distribution.sum)
            yield family
        yield _gauge("inference_ready", "1 when the model is loaded, verified, warmed and not draining.", self, int(self._ready()))
        yield from self._of_batcher()
        yield from of_tenants(LABELS, self.labels, self.counts.tenants)
        yield from self.cache.collect(LABELS, self.labels) if self.cache is not None else ()

    def _by_code(self) -> Metric:
        family = CounterMetricFamily("inference_requests", "Requests answered, by HTTP status.", labels=(*LABELS, "code"))
        for code, count in sorted(self.codes.items()):
            family.add_metric((*self.labels, str(code)), count)
        return family

    def _of_batcher(self) -> Iterator[Metric]:
        counts, batcher = self.counts, self.batcher
        waiting, running, state, ceiling = (0, 0, 0, 0)
        if batcher is not None:
            waiting, running = batcher.waiting, batcher.in_flight
            state, ceiling = int(batcher.breaker.state), batcher.ceilings.lowest or 0
        for name, text, value in (
            ("inference_queue_depth", "Requests that wait for the model.", waiting),
            ("inference_in_flight", "Requests in runs under way.", running),
            ("inference_breaker_state", "0 closed, 1 half-open, 2 open.", state),
            ("inference_memory_ceiling_rows", "Rows that fit the device; 0 when all do.", ceiling),
        ):
            yield _gauge(name, text, self, value)
        for name, text, value in (
            ("inference_shed", "Requests refused before they waited: full queue, no time, open breaker.", counts.shed),
            ("inference_expired", "Requests whose deadline passed while they waited.", counts.expired),
            ("inference_late", "Requests whose deadline passed while the model ran.", counts.late),
            ("inference_cancelled", "Requests whose caller left before the answer.", counts.cancelled),
            ("inference_runs", "Runs of the model.", counts.runs),
            ("inference_rows", "Rows that were run.", counts.rows),
            ("inference_wasted_rows", "Rows run for callers who had left, or were told that it was too late.", counts.wasted_rows),
            ("inference_breaker_opened", "Times that the circuit breaker opened.", counts.breaker_opened),
            ("inference_memory_halvings", "Runs that found no memory and were done again in halves.", counts.halvings),
        ):
            family = CounterMetricFamily(name, text, labels=LABELS)
            family.add_metric(self.labels, value)
            yield family


def _gauge(name: str, text: str, model: ModelMetrics, value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=LABELS)
    family.add_metric(model.labels, value)
    return family


class ModelCollector(Collector):
    """Makes the series of all models when they are asked for."""

    def __init__(self, models: Iterable[ModelMetrics]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """One family a name, whatever the number of models."""
        families: dict[str, Metric] = {}
        for model in self._models:
            for family in model.collect():
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        yield from families.values()
        resident = GaugeMetricFamily("inference_resident_bytes", "Memory of this worker's process.")
        resident.add_metric((), resident_bytes())
        yield resident


def sample() -> ModelMetrics:
    """A model that was never asked, for whoever wants to know what there is."""
    from inference_worker.cache.counts import CacheCounts

    made = ModelMetrics(("", "", "", ""), ready=lambda: False)
    made.cache = CacheCounts()
    return made


def resident_bytes() -> int:
    """Resident memory now; 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0

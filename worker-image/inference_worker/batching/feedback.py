"""What runs tell of their model: whether it works, what fits its device, how long it takes. Later requests go by it."""

from collections.abc import Callable

from inference_worker.batching.breaker import Breaker
from inference_worker.batching.execute import Report
from inference_worker.batching.forecast import Forecast
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.rows import Bucket
from inference_worker.batching.ticket import Counts
from inference_worker.errors import WorkerError, out_of_memory

# Shapes whose answers are remembered; callers choose them, so there must be an end.
_SHAPES_KEPT = 1024
_HOPELESS_RUNS = 5
"""Runs of a single row that find no memory, one after another, before the worker gives up."""


class Feedback:
    """Takes reports of runs into account. What it keeps of one model is there to be read by whoever decides."""

    def __init__(
        self,
        forecast: Forecast,
        breaker: Breaker,
        ceilings: MemoryCeilings,
        counts: Counts,
        on_hopeless: Callable[[WorkerError], None],
        warm: Bucket | None = None,
        *,
        on_cpu: bool = True,
    ) -> None:
        """`warm` is the shape (a bucket without the outputs wanted) that was run at warm-up, `on_cpu` whether a CPU computes."""
        self.forecast = forecast
        self.breaker = breaker
        self.ceilings = ceilings
        self.counts = counts
        self._on_hopeless = on_hopeless
        self._on_cpu = on_cpu
        self._answered: dict[Bucket, None] = {} if warm is None else {warm: None}

    def observe(self, report: Report, bucket: Bucket, epoch: int, now: float) -> None:
        """Take into account what came of a batch that was begun in `epoch` of the breaker."""
        # One moment without memory is one, however many members of the batch it took apart.
        for rows in dict.fromkeys(report.overflows):
            self.ceilings.failed(bucket, rows, now)
        self.counts.halvings += sum(rows > 1 for rows in report.overflows)
        for rows, seconds in report.runs:
            self.forecast.observe(rows, seconds, bucket)
            self.counts.ran(rows, seconds)
        if report.runs:
            # One that went well clears the model: what failed beside it has its own input to blame.
            self.ceilings.succeeded()
            self.breaker.succeeded(epoch)
            self._remember(bucket[1:])
        elif (fault := report.fault) is not None and self._blames_the_model(fault, bucket[1:]):
            self.counts.breaker_opened += self.breaker.failed(epoch, now)
            if isinstance(fault, MemoryError) and self.ceilings.hopeless >= _HOPELESS_RUNS:
                what = f"for a single row in {self.ceilings.hopeless} runs: {fault}"
                self._on_hopeless(out_of_memory(what, on_cpu=self._on_cpu))
        else:
            self.breaker.undecided(epoch)

    def _remember(self, shape: Bucket) -> None:
        if shape in self._answered:
            return
        if len(self._answered) >= _SHAPES_KEPT:
            del self._answered[next(iter(self._answered))]
        self._answered[shape] = None

    def _blames_the_model(self, fault: Exception, shape: Bucket) -> bool:
        """Whether a fault tells of the model: one of a shape that was never answered may be its caller's, who chose it."""
        return isinstance(fault, MemoryError) or not self._answered or shape in self._answered

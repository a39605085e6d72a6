"""What runs tell of their model: whether it works, what fits its device, how long it takes. Later requests go by it."""

from collections.abc import Callable

from inference_protocol.reasons import WorkerReason
from inference_worker.batching.breaker import Breaker
from inference_worker.batching.execute import Report
from inference_worker.batching.forecast import Forecast
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.rows import Bucket
from inference_worker.batching.ticket import Counts
from inference_worker.errors import WorkerError

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
    ) -> None:
        self.forecast = forecast
        self.breaker = breaker
        self.ceilings = ceilings
        self.counts = counts
        self._on_hopeless = on_hopeless

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
        elif (fault := report.fault) is not None:
            self.counts.breaker_opened += self.breaker.failed(epoch, now)
            if isinstance(fault, MemoryError) and self.ceilings.hopeless >= _HOPELESS_RUNS:
                text = f"{self.ceilings.hopeless} runs of a single row found no memory: {fault}; raise the memory limit"
                self._on_hopeless(WorkerError(WorkerReason.OUT_OF_MEMORY, text))
        else:
            self.breaker.undecided(epoch)

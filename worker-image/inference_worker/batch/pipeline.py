"""Reading, running and committing side by side: while a segment of items runs, the next is read and the last is written.

Small models run in microseconds, so nothing is handed between threads batch by batch: segments of many batches are, and inside a
segment there is only the run.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from inference_worker.batch.items import Items
from inference_worker.batching.execute import Execution
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.rows import Layout
from inference_worker.engines.engine import Cancellation, Engine, Tensor, Tensors

_SEGMENT_BYTES = 4 << 20
_SEGMENT_BATCHES = 256
_SEGMENT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Segment:
    """Answers to items start..end, a dictionary a batch, and what each batch took: (items, seconds)."""

    start: int
    end: int
    answers: list[Tensors]
    timings: list[tuple[int, float]]


class Pipeline:
    """Runs items in batches of `size`. Raises what the engine raises, with the number of the item at fault in `first`."""

    def __init__(
        self, engine: Engine, layout: Layout, items: Items, *, size: int, check: Callable[[Tensors, int], None], whole: bool = False
    ) -> None:
        """`check` looks at feeds before they run: (feeds, number of their first item). `whole` items are run as they are."""
        self._engine = engine
        self._layout = layout
        self._items = items
        self._size = size
        self._check = check
        self._whole = whole
        self._execution = Execution(engine, layout)
        self._ceilings = MemoryCeilings()
        self._batch_seconds: float | None = None
        self.first = 0

    def segments(self, start: int, stopped: Callable[[], bool]) -> Iterator[Segment]:
        """Answers from item `start` on, in order, until the end or until `stopped`."""
        with ThreadPoolExecutor(1, thread_name_prefix="reading") as reader:
            ahead: Future[dict[str, Tensor]] | None = None
            # The first segment is a single batch, which tells how large the others may be.
            end = min(start + self._size, len(self._items))
            while start < len(self._items) and not stopped():
                self.first = start
                feeds = ahead.result() if ahead is not None else self._read(start, end)
                following = min(end + self._segment(feeds, end - start), len(self._items))
                ahead = reader.submit(self._read, end, following) if end < len(self._items) else None
                segment = self._run(feeds, start, end, stopped)
                self._batch_seconds = sum(seconds for _, seconds in segment.timings) / len(segment.timings)
                yield segment
                if segment.end < end:
                    return
                start, end = end, following

    def _segment(self, feeds: Tensors, count: int) -> int:
        """Items of the next segment: so many batches that handing over does not count, and not so many that memory or time does."""
        item = max(1, sum(array.nbytes for array in feeds.values()) // count)
        batches = min(_SEGMENT_BATCHES, _SEGMENT_BYTES // (item * self._size))
        if self._batch_seconds is None:
            # How long a batch takes is not known before one has run.
            batches = 1
        elif self._batch_seconds > 0:
            batches = min(batches, int(_SEGMENT_SECONDS / self._batch_seconds))
        return max(1, batches) * self._size

    def _read(self, start: int, end: int) -> dict[str, Tensor]:
        feeds = self._items.rows(start, end)
        self._check(feeds, start)
        return feeds

    def _run(self, feeds: Tensors, start: int, end: int, stopped: Callable[[], bool]) -> Segment:
        answers: list[Tensors] = []
        timings: list[tuple[int, float]] = []
        run = self._one_whole if self._whole else self._engine.run if self._engine.rows is None else self._fixed
        part, size, clock = self._layout.part, self._size, time.perf_counter
        # For models that take microseconds each line in this loop counts.
        count, first, last = end - start, 0, 0
        try:
            for first in range(0, count, size):
                last = min(first + size, count)
                batch = part(feeds, first, last)
                begun = clock()
                try:
                    answers.append(run(batch))
                except MemoryError:
                    answers.append(self._smaller(batch, last - first))
                timings.append((last - first, clock() - begun))
                if stopped():
                    break
        finally:
            self.first = start + first
        return Segment(start, start + last, answers, timings)

    def _one_whole(self, batch: Tensors) -> Tensors:
        return self._engine.run({name: array[0] for name, array in batch.items()})

    def _fixed(self, batch: Tensors) -> Tensors:
        """For models that take exactly so many rows: the last batch is filled up, and its answer cut."""
        assert self._engine.rows is not None
        rows = self._layout.rows(batch)
        short = self._engine.rows - rows
        if not short:
            return self._engine.run(batch)
        return self._layout.answer(self._engine.run(self._layout.padded(batch, short)), 0, rows)

    def _smaller(self, batch: Tensors, rows: int) -> Tensors:
        """A batch that found no memory, in parts that do; later batches are made smaller from the start."""
        bucket = self._layout.bucket(batch, ())
        self._ceilings.failed(bucket, rows, time.monotonic())
        if rows == 1 or not self._layout.joins:
            raise MemoryError("not even a single item fits")
        limit = self._ceilings.limit(bucket, rows, time.monotonic())
        report = self._execution.run([batch], [rows], (), limit, Cancellation())
        for size in report.overflows:
            self._ceilings.failed(bucket, size, time.monotonic())
        (answer,) = report.answers
        if isinstance(answer, Exception):
            raise answer
        # The items that were read ahead are cut by this from now on.
        self._size = max(1, self._ceilings.limit(bucket, self._size, time.monotonic()))
        return answer


def columns(segments: list[Segment], axes: dict[str, int]) -> dict[str, Tensor]:
    """All answers of consecutive segments as one array an output, items first."""
    batches = [batch for segment in segments for batch in segment.answers]
    return {
        name: np.concatenate([np.moveaxis(batch[name], axes.get(name, 0), 0) for batch in batches])
        if axes.get(name, 0)
        else np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }

"""Reading, running and committing side by side: while a segment of items runs, the next is read and the last is written.

Small models run in microseconds, so nothing is handed between threads batch by batch: segments of many batches are, and inside a
segment there is only the run.
"""

import bisect
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from inference_worker.batch.items import Items, invalid
from inference_worker.batch.ragged import Column, joined
from inference_worker.batching.execute import Execution
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.rows import Layout
from inference_worker.engines.engine import Cancellation, Engine, RunMode, Stage, Tensor, Tensors

_SEGMENT_BYTES = 4 << 20
_SEGMENT_BATCHES = 256
_SEGMENT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class _Read:
    """Feeds for items start..end: (start, end, feeds) for each stretch of neighbours that have one shape."""

    start: int
    end: int
    stretches: list[tuple[int, int, dict[str, Tensor]]]


@dataclass(frozen=True, slots=True)
class Segment:
    """Answers to items start..end, a dictionary a batch, and what each batch took: (items, seconds)."""

    start: int
    end: int
    answers: list[Tensors]
    timings: list[tuple[int, float]]


@dataclass(slots=True)
class _Run:
    """A batch under way: items start..end, the last ones of what was read if it `closes` that; its buffers, if it has some."""

    start: int
    end: int
    closes: bool
    batch: Tensors
    stage: Stage | None
    answers: Tensors = field(default_factory=dict)
    timing: tuple[int, float] = (0, 0.0)

    def close(self) -> None:
        """Give the buffers back."""
        if self.stage is not None:
            self.stage.__exit__(None, None, None)


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
        runs = engine.device_runs
        self._prepares = runs is not None and runs.mode is RunMode.CAPTURED and not whole
        self.first = 0

    def segments(self, start: int, stopped: Callable[[], bool]) -> Iterator[Segment]:
        """Answers from item `start` on, in order, until the end or until `stopped`."""
        with contextlib.closing(self._reads(start, stopped)) as reads:
            segments = self._prepared(reads, stopped) if self._prepares else (self._run(read, stopped) for read in reads)
            for segment in segments:
                self._batch_seconds = sum(seconds for _, seconds in segment.timings) / len(segment.timings)
                yield segment

    def _reads(self, start: int, stopped: Callable[[], bool]) -> Generator[_Read, None, None]:
        """What is to be run, the next of it read ahead. The first is a single batch, which tells how large the others may be."""
        with ThreadPoolExecutor(1, thread_name_prefix="reading") as reader:
            ahead: Future[_Read] | None = None
            while start < len(self._items) and not stopped():
                self.first = start
                read = ahead.result() if ahead is not None else self._read(start, 1)
                ahead = reader.submit(self._read, read.end, self._batches(read)) if read.end < len(self._items) else None
                yield read
                start = read.end

    def _batches(self, read: _Read) -> int:
        """How many make the next segment: so many that handing over does not count, and not so many that memory or time does."""
        item = max(1, sum(array.nbytes for _, _, feeds in read.stretches for array in feeds.values()) // (read.end - read.start))
        batches = min(_SEGMENT_BATCHES, _SEGMENT_BYTES // (item * self._size))
        if self._batch_seconds is None:
            # How long a batch takes is not known before one has run.
            batches = 1
        elif self._batch_seconds > 0:
            batches = min(batches, int(_SEGMENT_SECONDS / self._batch_seconds))
        return max(1, batches)

    def _read(self, start: int, batches: int) -> _Read:
        """So many batches from item `start` on.

        A batch ends where the shape changes, and every other one is full. So batches do not depend on where segments end: a job
        that is run again, or goes on, gives the same answers.
        """
        stretches: list[tuple[int, int, dict[str, Tensor]]] = []
        breaks, size, first = self._items.breaks, self._size, start
        while batches > 0 and first < len(self._items):
            following = bisect.bisect_right(breaks, first)
            end = min(first + batches * size, breaks[following] if following < len(breaks) else len(self._items))
            feeds = self._items.rows(first, end)
            self._check(feeds, first)
            stretches.append((first, end, feeds))
            batches -= -(-(end - first) // size)
            first = end
        return _Read(start, first, stretches)

    def _run(self, read: _Read, stopped: Callable[[], bool]) -> Segment:
        answers: list[Tensors] = []
        timings: list[tuple[int, float]] = []
        run = self._one_whole if self._whole else self._engine.run if self._engine.rows is None else self._fixed
        part, size, clock = self._layout.part, self._size, time.perf_counter
        # For models that take microseconds each line in this loop counts.
        first = read.start
        try:
            for start, end, feeds in read.stretches:
                for first in range(start, end, size):
                    last = min(first + size, end)
                    batch = part(feeds, first - start, last - start)
                    begun = clock()
                    try:
                        answers.append(run(batch))
                    except MemoryError:
                        answers.append(self._smaller(batch, last - first))
                    timings.append((last - first, clock() - begun))
                    if stopped():
                        return Segment(read.start, last, answers, timings)
        finally:
            self.first = first
        return Segment(read.start, read.end, answers, timings)

    def _prepared(self, reads: Iterable[_Read], stopped: Callable[[], bool]) -> Iterator[Segment]:
        """As `_run`, for engines that copy the next batch in while one computes: also where another segment begins with it."""
        under_way: deque[_Run] = deque()
        done: list[_Run] = []
        fault: tuple[int, Exception] | None = None
        begun = self._begun(reads, under_way)
        try:
            while fault is None:
                try:
                    run = next(begun, None)
                except Exception as error:  # noqa: BLE001 -- raised once what began before it is answered
                    run, fault = None, (self.first, error)
                if run is not None:
                    under_way.append(run)
                elif not under_way:
                    break
                while len(under_way) > (run is not None):
                    self._end(under_way.popleft(), done)
                    if done[-1].closes or stopped():
                        yield Segment(done[0].start, done[-1].end, [each.answers for each in done], [each.timing for each in done])
                        done = []
                    if stopped():
                        return
        finally:
            for left in under_way:
                left.close()
        if fault is not None:
            self.first = fault[0]
            raise fault[1]

    def _begun(self, reads: Iterable[_Read], under_way: Collection["_Run"]) -> Iterator["_Run"]:
        """The batches of all reads, each on its way to the device where there are buffers for it."""
        layout = self._layout
        for read in reads:
            for start, end, feeds in read.stretches:
                for first in range(start, end, self._size):
                    last = min(first + self._size, end)
                    batch = layout.part(feeds, first - start, last - start)
                    # Whoever holds buffers must not wait for more: others may do so too.
                    stage = self._engine.stage(layout.shapes(batch, last - first), wait=not under_way)
                    if stage is not None:
                        stage.__enter__()
                        layout.write(stage, [batch], last - first)
                        stage.start()
                    yield _Run(first, last, last == read.end, batch, stage)

    def _end(self, run: "_Run", done: list["_Run"]) -> None:
        """Take the answers of a run."""
        self.first = run.start
        begun = time.perf_counter()
        if run.stage is not None:
            with run.stage:
                run.answers = run.stage.answers()
            seconds = run.stage.seconds
        else:
            run.answers = self._computed(run.batch, run.end - run.start)
            seconds = time.perf_counter() - begun
        run.timing = (run.end - run.start, seconds)
        done.append(run)

    def _computed(self, batch: Tensors, rows: int) -> Tensors:
        try:
            return self._engine.run(batch) if self._engine.rows is None else self._fixed(batch)
        except MemoryError:
            return self._smaller(batch, rows)

    def _one_whole(self, batch: Tensors) -> Tensors:
        return self._engine.run({name: array[0, ...] for name, array in batch.items()})

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
            try:
                raise answer
            finally:
                # Its traceback has this frame.
                del answer, report
        # The items that were read ahead are cut by this from now on.
        self._size = max(1, self._ceilings.limit(bucket, self._size, time.monotonic()))
        return answer


def columns(segments: list[Segment], axes: dict[str, int]) -> dict[str, Column]:
    """All answers of consecutive segments as one column an output, items first. Raises WorkerError INPUT_INVALID."""
    batches = [batch for segment in segments for batch in segment.answers]
    found: dict[str, Column] = {}
    for name in batches[0]:
        axis = axes.get(name, 0)
        try:
            found[name] = joined([np.moveaxis(batch[name], axis, 0) if axis else batch[name] for batch in batches])
        except ValueError as error:
            raise invalid(f"the answers in output {name!r} can't be written together: {error}; serve the model instead") from error
    return found

"""One batch task from input to committed output."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np

from inference_protocol.messages import (
    INLINE_OUTPUT_LIMIT_BYTES,
    BatchTask,
    Progress,
    WorkerConfig,
    fits_inline,
)
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import LatencySketch
from inference_worker import metrics
from inference_worker.batch import encoding, identity, inputs, outputs
from inference_worker.batch.item_rows import require_rows, with_rows
from inference_worker.batch.items import Items, invalid, refuse_non_finite
from inference_worker.batch.manifest import Header
from inference_worker.batch.output import Output
from inference_worker.batch.pipeline import Pipeline, Segment, columns
from inference_worker.batching.rows import Layout, fixed_layout, layout_of, located
from inference_worker.batching.slack import InSlack, Slack
from inference_worker.batching.watched import WatchedEngine
from inference_worker.engines.engine import Engine, EngineUnavailableError, Tensors, TensorSpec, on_cpu
from inference_worker.errors import StoppedError, WorkerError, out_of_memory
from inference_worker.fixed_rows import dependent_items
from inference_worker.probe import REFUSALS, understood
from inference_worker.warmup import Warm

# What is gathered before it is committed, however soon that is.
_COMMIT_BYTES = 32 << 20


class Task:
    """A batch task under way. `run` works in its own thread; `progress` and `sketch` may be read from others."""

    def __init__(
        self,
        config: WorkerConfig,
        task: BatchTask,
        engine: Engine,
        warm: Warm | None = None,
        *,
        digest: str,
        root: Path,
        counted_for: str | None = None,
        slack: Slack | None = None,
    ) -> None:
        """`warm` is what the warm-up found; without it, it is found out with the first item.

        With a `slack` its runs wait for their turn behind the requests of the same device.
        Items are counted for the configured job, or for `counted_for`: a worker of many jobs must not grow a series for each.
        """
        self._warm = warm
        self._config = config
        self._task = task
        self._digest = digest
        self._root = root
        self._stop = threading.Event()
        self._watched = WatchedEngine(engine, rows=self._rows, warmed=self._warmed)
        self._background = InSlack(self._watched, slack, self._stop.is_set, self._expected) if slack is not None else None
        self._engine: Engine = self._background or self._watched
        self.sketch = LatencySketch()
        self.progress: Progress | None = None
        self._timed_seconds = 0.0
        self._timed_runs = 0
        self._axes: dict[str, int] = {}
        specs = located(engine.inputs, warm.layout) if warm is not None else engine.inputs
        # Where no input has an axis of rows, an item is all that a request would hold.
        self._whole = bool(specs) and all(spec.batch_axis is None for spec in specs)
        self._specs = tuple(_listed(spec) for spec in specs) if self._whole else specs
        model = config.model
        self._items = metrics.items_total.labels(config.namespace, counted_for or config.job, model.name, model.version)

    def _rows(self, feeds: Tensors) -> int:
        """Rows of a run; 1 where nobody knows."""
        with contextlib.suppress(KeyError, IndexError, ValueError):
            return self._warm.layout.rows(feeds) if self._warm is not None else 1
        return 1

    def _expected(self, feeds: Tensors) -> float:
        """Seconds that a run should take, as the warm-up has measured runs of so many rows; 0 where it has not."""
        return self._warm.profile.seconds(self._rows(feeds)) if self._warm is not None else 0.0

    def _warmed(self, feeds: Tensors) -> float | None:
        """Seconds that the warm-up measured of a run of these shapes; None where it made none: it may have to compile."""
        warm = self._warm
        with contextlib.suppress(KeyError, IndexError, ValueError):
            if warm is not None and warm.layout.bucket(feeds, ())[1:] == warm.shape:
                return warm.profile.measured.get(self._rows(feeds))
        return None

    @property
    def hung(self) -> str | None:
        """That a run of the model will not end by itself, in words; None while all is well."""
        return self._watched.hung

    @property
    def runs(self) -> int:
        """Runs of the model so far."""
        return self._background.ran if self._background is not None else self._timed_runs

    @property
    def compute_seconds(self) -> float:
        """What they took of the device. To wait behind requests takes nothing of it, and says nothing of the model's pace."""
        return self._background.computed_seconds if self._background is not None else self._timed_seconds

    def stop(self) -> None:
        """Ask `run` to commit what it has and return."""
        self._stop.set()

    def run(self) -> str | None:
        """Run to the end, or to `stop`. Returns inline answers when the task names no output. Raises WorkerError."""
        try:
            with inputs.opened(self._task, self._specs, self._root, self._stop.is_set, self._config.fetch_from) as (items, path):
                return self._run_over(items, path)
        except StoppedError:
            return None

    def _run_over(self, items: Items, path: Path | None) -> str | None:
        if self._task.output_uri is None:
            return self._run_inline(items)
        # Answers take the form of the questions: text for text, arrays for everything else.
        suffix = ".jsonl" if items.lines else ".npz"
        storage = outputs.storage_of(self._task, self._root, self._config.fetch_from)
        with Output(storage, self._header(items, path), suffix=suffix) as output:
            resumed = output.end
            self.progress = Progress(total=len(items), completed=resumed, resumed=resumed)
            self._require_in_time(len(items) - resumed)
            self._run_from(items, output)
            if output.end == len(items):
                output.finish()
        return None

    @property
    def finished(self) -> bool:
        """Whether every item is answered and committed."""
        return self.progress is not None and self.progress.completed == self.progress.total

    def _header(self, items: Items, path: Path | None) -> Header:
        config, task = self._config, self._task
        return Header(
            job=f"{config.namespace}/{config.job}",
            uid=config.uid,
            model_digest=self._digest,
            input=identity.name_of(task),
            total=len(items),
            options=identity.options_of(task, config.model.quantization),
            created=config.created,
            content=identity.content_of(task, path),
            attempt=config.attempt,
            writer=uuid4().hex,
        )

    def _require_in_time(self, left: int) -> None:
        """Raise WorkerError TOO_MANY_ITEMS where more is left than a firm deadline allows: the device is of use to others."""
        limit = self._task.items_limit
        if limit is not None and left > limit:
            deadline = f"the deadline {self._task.deadline}".rstrip()
            raise WorkerError(
                WorkerReason.TOO_MANY_ITEMS,
                f"{left} items of the input are to be answered, and {limit} can be by {deadline}, at the pace that was measured; "
                "set a later deadline, split the input, or set deadlinePolicy to Soft to run late",
            )

    def _run_from(self, items: Items, output: Output) -> None:
        pending: list[Segment] = []
        pending_bytes = 0
        committed_at = time.monotonic()
        commit: Future[None] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="committing") as writer:
            for segment in self._segments(items, output.end):
                pending.append(segment)
                pending_bytes += sum(array.nbytes for batch in segment.answers for array in batch.values())
                due = time.monotonic() - committed_at >= output.commit_seconds or pending_bytes >= _COMMIT_BYTES
                if due or segment.end == len(items) or self._stop.is_set():
                    if commit is not None:
                        commit.result()
                    commit = writer.submit(self._commit, pending, items, output)
                    pending, pending_bytes, committed_at = [], 0, time.monotonic()
            if pending:
                if commit is not None:
                    commit.result()
                commit = writer.submit(self._commit, pending, items, output)
            if commit is not None:
                commit.result()

    def _commit(self, segments: list[Segment], items: Items, output: Output) -> None:
        start, end = segments[0].start, segments[-1].end
        output.commit(start, end, self._encode(segments, items, start, end))
        resumed = self.progress.resumed if self.progress else 0
        self.progress = Progress(total=len(items), completed=end, resumed=resumed)
        self._items.inc(end - start)

    def _run_inline(self, items: Items) -> str:
        self.progress = Progress(total=len(items), completed=0)
        self._require_in_time(len(items))
        segments = list(self._segments(items, 0))
        if self._stop.is_set():
            return ""
        text = self._encode(segments, items, 0, len(items)).decode()
        if not fits_inline(text):
            limit = f"limit {INLINE_OUTPUT_LIMIT_BYTES} as JSON text"
            raise WorkerError(
                WorkerReason.INPUT_INVALID, f"the answers have {len(text)} bytes, too many for the status ({limit}); set output.uri"
            )
        self.progress = Progress(total=len(items), completed=len(items))
        return text

    def _segments(self, items: Items, start: int) -> Iterator[Segment]:
        """Answers in segments; what the engine raises is told as a fault of the input, the memory or the model."""
        if start >= len(items):
            return
        check = _nothing if self._task.allow_non_finite else self._refuse_non_finite
        layout, size = self._plan(items, start)
        self._axes = {name: axis or 0 for name, axis in layout.outputs.items()}
        alone = layout.outputs if size == 1 else {}
        pipeline = Pipeline(self._engine, layout, items, size=size, check=check, whole=self._whole)
        try:
            for run in pipeline.segments(start, self._stop.is_set):
                segment = with_rows(run, alone) if alone else run
                require_rows(segment, self._axes)
                for count, seconds in segment.timings:
                    self.sketch.record(seconds, weight=count)
                    self._timed_seconds += seconds
                    self._timed_runs += 1
                yield segment
        except ValueError as error:
            raise invalid(f"the model refused the batch that starts at item {pipeline.first}: {error}") from error
        except MemoryError as error:
            raise out_of_memory(f"for a batch of {self._config.batch_size}: {error}", on_cpu=on_cpu(self._engine)) from error
        except EngineUnavailableError as error:
            raise WorkerError(WorkerReason.BACKEND_UNREACHABLE, str(error)) from error
        except RuntimeError as error:
            raise WorkerError(WorkerReason.INTERNAL, f"the model failed at item {pipeline.first}: {error}") from error

    def _refuse_non_finite(self, feeds: Tensors, first: int) -> None:
        refuse_non_finite(feeds, first, self._specs)

    def _plan(self, items: Items, start: int) -> tuple[Layout, int]:
        """How items go together, and how many: always the job's own number, although fewer may be quicker.

        Rounding differs by the number of rows, and some nets make much of it; a job that is run again gives the same answers.
        """
        engine, warm = self._engine, self._warm
        if self._whole:
            return layout_of(self._specs, dict.fromkeys(spec.name for spec in engine.outputs), "it has no rows"), 1
        layout = warm.layout if warm is not None else None
        told = layout is not None and any(axis is not None for axis in layout.outputs.values())
        if engine.rows is not None:
            fixed = fixed_layout(engine.inputs, engine.outputs, engine.rows)
            if not told:
                self._require_separate(fixed, items, start)
            return fixed, engine.rows
        if layout is None or not told or layout.optional:
            first = items.rows(start, start + 1)
            if layout is None or not told or first.keys() != layout.inputs.keys():
                # The warm-up's zeros told nothing, or nothing of an input that may be left out; a real item may.
                layout = understood(engine, first)
        return layout, self._config.batch_size if layout.joins else 1

    def _require_separate(self, layout: Layout, items: Items, start: int) -> None:
        """Raise WorkerError INPUT_INVALID unless the first items are answered each by itself: the warm-up's zeros told nothing."""
        rows = self._engine.rows or 1
        first = items.rows(start, min(start + rows, len(items)))
        with contextlib.suppress(*REFUSALS):
            # What it refuses is told by the run itself.
            if why := dependent_items(self._engine, layout, layout.padded(first, rows - layout.rows(first)), rows):
                raise invalid(f"the first dimension of its inputs does not count items: {why}; serve the model instead")

    def _encode(self, segments: list[Segment], items: Items, start: int, end: int) -> bytes:
        answers = columns(segments, self._axes)
        if items.lines:
            return encoding.json_lines(answers)
        if items.names is not None:
            # An output may have this name; the files' names then step aside.
            column = "item" if "item" not in answers else "item_name"
            answers[column] = np.array(items.names[start:end])
        return encoding.npz(answers)


def _nothing(feeds: Tensors, first: int) -> None:
    """All values are welcome."""


def _listed(spec: TensorSpec) -> TensorSpec:
    """An input with an axis of items in front."""
    return replace(spec, shape=(None, *spec.shape), batch_axis=0, names=(None, *spec.names))

"""One batch task from input to committed output."""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from inference_protocol.messages import (
    INLINE_OUTPUT_LIMIT_BYTES,
    BatchTask,
    Progress,
    WorkerConfig,
)
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import LatencySketch
from inference_protocol.uris import is_uri
from inference_worker import fetch, metrics, volumes
from inference_worker.batch import items as reading
from inference_worker.batch.items import Items
from inference_worker.batch.output import Header, Output
from inference_worker.engine import Engine, Tensor
from inference_worker.errors import WorkerError

# Committing costs two syncs; what a kill may cost is work since the last one. A second of either is a fair price.
_COMMIT_SECONDS = 1.0
_COMMIT_BYTES = 32 << 20


class Task:
    """A batch task under way. `run` works in its own thread; `progress` and `sketch` may be read from others."""

    def __init__(self, config: WorkerConfig, task: BatchTask, engine: Engine, *, digest: str, root: Path) -> None:
        self._config = config
        self._task = task
        self._engine = engine
        self._digest = digest
        self._root = root
        self._stop = threading.Event()
        self.sketch = LatencySketch()
        self.progress: Progress | None = None
        self.compute_seconds = 0.0
        model = config.model
        self._items = metrics.items_total.labels(config.namespace, config.job, model.name, model.version)

    def stop(self) -> None:
        """Ask `run` to commit what it has and return."""
        self._stop.set()

    def run(self) -> str | None:
        """Run to the end, or to `stop`. Returns inline answers when the task names no output. Raises WorkerError."""
        items = self._open()
        if self._task.output_uri is None:
            return self._run_inline(items)
        directory = volumes.open_local(self._task.output_uri, root=self._root)
        suffix = ".jsonl" if self._wants_lines else ".npz"
        with Output(directory, self._header(items), attempt=self._config.attempt, suffix=suffix) as output:
            resumed = output.end
            self.progress = Progress(total=len(items), completed=resumed, resumed=resumed)
            self._run_from(items, output)
            if output.end == len(items):
                output.finish()
        return None

    @property
    def finished(self) -> bool:
        """Whether every item is answered and committed."""
        return self.progress is not None and self.progress.completed == self.progress.total

    @property
    def _wants_lines(self) -> bool:
        name = self._task.input_uri or ".jsonl"
        return self._task.input_format == "jsonl" or (self._task.input_format == "auto" and name.endswith(("jsonl", "ndjson")))

    def _open(self) -> Items:
        inputs = self._engine.inputs
        if scalar := next((spec.name for spec in inputs if not spec.shape), None):
            raise reading.invalid(f"input {scalar!r} is a scalar: this model can't be run over a list of items; serve it instead")
        if self._task.input_data is not None:
            return reading.from_json_lines(self._task.input_data, inputs)
        uri = self._task.input_uri
        if uri is None or not is_uri(uri):
            raise reading.invalid("the task names no input")
        if uri.startswith("http"):
            return self._download(uri)
        path = volumes.open_local(uri, root=self._root)
        return reading.open_items(path, self._task.input_format, inputs)

    def _download(self, uri: str) -> Items:
        data, _ = fetch.read_verified(
            uri,
            digest=self._task.input_digest,
            limit=1 << 30,
            missing=WorkerReason.INPUT_NOT_FOUND,
            mismatch=WorkerReason.INPUT_INVALID,
            root=self._root,
        )
        path = Path(tempfile.gettempdir()) / Path(uri.split("?", maxsplit=1)[0]).name
        path.write_bytes(data)
        return reading.open_items(path, self._task.input_format, self._engine.inputs)

    def _header(self, items: Items) -> Header:
        config = self._config
        return Header(
            job=f"{config.namespace}/{config.job}",
            uid=config.uid,
            model_digest=self._digest,
            input=self._task.input_uri or "inline",
            total=len(items),
        )

    def _run_from(self, items: Items, output: Output) -> None:
        pending: list[dict[str, Tensor]] = []
        begun = output.end
        committed_at = time.monotonic()
        for start, answers in self._batches(items, begun):
            pending.append(answers)
            end = start + len(next(iter(answers.values())))
            size = sum(a.nbytes for batch in pending for a in batch.values())
            due = time.monotonic() - committed_at >= _COMMIT_SECONDS or size >= _COMMIT_BYTES
            if due or end == len(items) or self._stop.is_set():
                output.commit(begun, end, self._encode(pending, items, begun, end))
                pending, begun, committed_at = [], end, time.monotonic()
                resumed = self.progress.resumed if self.progress else 0
                self.progress = Progress(total=len(items), completed=end, resumed=resumed)
                self._items.inc(end - output.parts[-1].start)
            if self._stop.is_set():
                return

    def _run_inline(self, items: Items) -> str:
        self.progress = Progress(total=len(items), completed=0)
        answers = [answer for _, answer in self._batches(items, 0)]
        text = self._encode(answers, items, 0, len(items)).decode()
        if len(text.encode()) > INLINE_OUTPUT_LIMIT_BYTES:
            raise WorkerError(
                WorkerReason.INPUT_INVALID,
                f"the answers have {len(text)} bytes, too many for the status (limit {INLINE_OUTPUT_LIMIT_BYTES}); set output.uri",
            )
        self.progress = Progress(total=len(items), completed=len(items))
        return text

    def _batches(self, items: Items, start: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Yield (first item, answers) batch by batch."""
        rows = self._engine.rows
        size = rows or self._config.batch_size
        for first in range(start, len(items), size):
            last = min(first + size, len(items))
            feeds = items.rows(first, last)
            if not self._task.allow_non_finite:
                reading.refuse_non_finite(feeds, first)
            short = size - (last - first) if rows else 0
            begun = time.perf_counter()
            answers = self._answer(_padded(feeds, short), first)
            took = time.perf_counter() - begun
            self.compute_seconds += took
            self.sketch.record(took, weight=last - first)
            yield first, _rows_of(answers, last - first, size if rows else last - first)

    def _answer(self, feeds: dict[str, Tensor], first: int) -> dict[str, Tensor]:
        try:
            return self._engine.run(feeds)
        except ValueError as error:
            raise reading.invalid(f"the model refused the batch that starts at item {first}: {error}") from error
        except MemoryError as error:
            raise WorkerError(
                WorkerReason.OUT_OF_MEMORY, f"no memory for a batch of {self._config.batch_size}: {error}; lower batchSize"
            ) from error
        except RuntimeError as error:
            raise WorkerError(WorkerReason.INTERNAL, f"the model failed at item {first}: {error}") from error

    def _encode(self, batches: list[dict[str, Tensor]], items: Items, start: int, end: int) -> bytes:
        columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        if self._wants_lines:
            return _json_lines(columns)
        if items.names is not None:
            columns["item"] = np.array(items.names[start:end])
        return reading.npz_bytes(columns)


def _padded(feeds: dict[str, Tensor], short: int) -> dict[str, Tensor]:
    """Repeat the last row, for models whose number of rows is fixed."""
    if not short:
        return feeds
    return {name: np.concatenate([array, np.repeat(array[-1:], short, axis=0)]) for name, array in feeds.items()}


def _rows_of(answers: dict[str, Tensor], count: int, given: int) -> dict[str, Tensor]:
    for name, array in answers.items():
        if array.ndim == 0 or len(array) != given:
            raise WorkerError(
                WorkerReason.INPUT_INVALID,
                f"output {name!r} has shape {list(array.shape)} for {given} items: it has no row per item, so this model can't be "
                "run over a list of items; serve it instead",
            )
    return {name: array[:count] for name, array in answers.items()}


def _json_lines(columns: dict[str, Tensor]) -> bytes:
    lists = {name: array.tolist() for name, array in columns.items()}
    rows = zip(*lists.values(), strict=True)
    return b"".join(json.dumps(dict(zip(lists, row, strict=True)), default=_text).encode() + b"\n" for row in rows)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

"""One batch task from input to committed output."""

import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
from inference_protocol.uris import PvcUri
from inference_worker import fetch, metrics, volumes
from inference_worker.batch import items as reading
from inference_worker.batch.items import Items
from inference_worker.batch.output import Header, Output, StoppedError
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
        suffix = ".jsonl" if self._wants_lines else ".npz"
        try:
            with Output(
                self._directory(), self._header(items), attempt=self._config.attempt, suffix=suffix, stop=self._stop
            ) as output:
                resumed = output.end
                self.progress = Progress(total=len(items), completed=resumed, resumed=resumed)
                self._run_from(items, output)
                if output.end == len(items):
                    output.finish()
        except StoppedError:
            return None
        return None

    def _directory(self) -> Path:
        text = self._task.output_uri
        assert text is not None
        uri = volumes.parse(text)
        if not isinstance(uri, PvcUri):
            raise WorkerError(WorkerReason.URI_FORBIDDEN, f"answers can't be kept at {text!r}; use pvc://CLAIM/PATH")
        directory = volumes.local_path(uri, root=self._root)
        given = self._task.input_uri
        if given is not None and given.startswith("pvc://") and volumes.open_local(given, root=self._root) == directory:
            raise WorkerError(WorkerReason.OUTPUT_CONFLICT, "input and output are one directory; choose another output")
        return directory

    @property
    def finished(self) -> bool:
        """Whether every item is answered and committed."""
        return self.progress is not None and self.progress.completed == self.progress.total

    @property
    def _wants_lines(self) -> bool:
        """Answers take the form of the questions: JSON lines for JSON lines, arrays for everything else."""
        if self._task.input_data is not None:
            return True
        return self._task.input_format == "jsonl" or (self._task.input_format == "auto" and reading.is_json_lines(self._input_path))

    @property
    def _input_path(self) -> Path:
        """The input's path as it is written, without what a URL may have behind it."""
        return Path(urlsplit(self._task.input_uri or "").path)

    def _open(self) -> Items:
        inputs = self._engine.inputs
        if not inputs:
            raise reading.invalid("the model has no inputs, so there is nothing to run it over; serve it instead")
        if scalar := next((spec.name for spec in inputs if not spec.shape), None):
            raise reading.invalid(f"input {scalar!r} is a scalar: this model can't be run over a list of items; serve it instead")
        if self._task.input_data is not None:
            if self._task.input_format not in ("auto", "jsonl"):
                raise reading.invalid(f"input.data is JSON lines, not {self._task.input_format}; leave input.format out")
            return reading.from_json_lines(self._task.input_data, inputs)
        uri = self._task.input_uri
        if uri is None:
            raise reading.invalid("the task names no input")
        if uri.startswith("http"):
            return self._download(uri)
        path = volumes.open_local(uri, root=self._root)
        if self._task.input_digest is not None:
            _verify(path, self._task.input_digest)
        return reading.open_items(path, self._task.input_format, inputs)

    def _download(self, uri: str) -> Items:
        try:
            data, _ = fetch.read_verified(
                uri,
                digest=self._task.input_digest,
                limit=1 << 30,
                missing=WorkerReason.INPUT_NOT_FOUND,
                mismatch=WorkerReason.INPUT_INVALID,
                root=self._root,
            )
        except WorkerError as error:
            if error.reason is WorkerReason.MODEL_UNREACHABLE:
                raise WorkerError(WorkerReason.INPUT_UNREACHABLE, error.message) from error
            raise
        path = Path(tempfile.mkdtemp()) / (self._input_path.name or "input")
        path.write_bytes(data)
        return reading.open_items(path, self._task.input_format, self._engine.inputs)

    def _header(self, items: Items) -> Header:
        config, task = self._config, self._task
        inline = f"inline:{hashlib.sha256(task.input_data.encode()).hexdigest()}" if task.input_data is not None else None
        return Header(
            job=f"{config.namespace}/{config.job}",
            uid=config.uid,
            model_digest=self._digest,
            input=inline or task.input_uri or "",
            total=len(items),
            options=f"{task.input_format} {task.input_digest or ''} {task.allow_non_finite}",
            created=config.created,
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
        if self._stop.is_set():
            return ""
        text = self._encode(answers, items, 0, len(items)).decode()
        if not fits_inline(text):
            limit = f"limit {INLINE_OUTPUT_LIMIT_BYTES} as JSON text"
            raise WorkerError(
                WorkerReason.INPUT_INVALID, f"the answers have {len(text)} bytes, too many for the status ({limit}); set output.uri"
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
            if self._stop.is_set() and self._task.output_uri is None:
                return
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
            # An output may have this name; the files' names then step aside.
            column = "item" if "item" not in columns else "item_name"
            columns[column] = np.array(items.names[start:end])
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


def _verify(path: Path, digest: str) -> None:
    if not path.is_file():
        raise reading.invalid(f"{path.name!r} is no single file, so it has no digest; leave input.digest out")
    with path.open("rb") as file:
        actual = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if actual != digest:
        raise reading.invalid(f"{path.name!r} has {actual}, but {digest} was asked for; restore the file, or update input.digest")


def _json_lines(columns: dict[str, Tensor]) -> bytes:
    """An object a row. JSON has no NaN and no infinity: they are written as null, and arrays (.npz) are the way to keep them."""
    lists = {name: _plain(array) for name, array in columns.items()}
    rows = zip(*lists.values(), strict=True)
    return b"".join(json.dumps(dict(zip(lists, row, strict=True)), default=_text).encode() + b"\n" for row in rows)


def _plain(array: Tensor) -> list[Any]:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        mask = ~np.isfinite(array)
        array = array.astype(object)
        array[mask] = None
    plain: list[Any] = array.tolist()
    return plain


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

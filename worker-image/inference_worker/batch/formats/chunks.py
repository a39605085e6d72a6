"""Inputs that another job has written: a finished output directory, or one chunk of it.

Chunks are read in the order of the manifest, each as a whole and against its digest. All are looked at before the first run, and
read again when their turn comes, so that no more than a few are in memory.
"""

import bisect
import hashlib
import io
import os
import sys
from array import array as packed
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_worker.batch.directory import Directory
from inference_worker.batch.formats.arrays import read_npz
from inference_worker.batch.formats.lines import read_json_lines
from inference_worker.batch.items import ArrayItems, invalid
from inference_worker.batch.manifest import CHUNK_NAME, SUMMARY, Chunk, Header, Summary, author_of, read_summary
from inference_worker.batch.matching import from_arrays, matched, strings, wanted
from inference_worker.batch.ragged import Column, Ragged, as_columns
from inference_worker.engines.engine import Tensor, TensorSpec
from inference_worker.errors import WorkerError

# Chunks whose rows have this size in all stay in memory once they have been looked at.
_KEPT_BYTES = 64 << 20
# We write no compressed chunk, so one that inflates to more than this and twice its size is not ours.
_INFLATED_BYTES = 64 << 20
# A worker holds the chunks that it writes in memory, as it does those that it reads.
_LARGEST_BYTES = 2 << 30
# The names of all items stay in memory.
_NAMES_BYTES = 1 << 30
# Where the items were files, our output names them in one of these columns: the second where the first is an output's name.
_NAMES = ("item_name", "item")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What chunks are read for."""

    inputs: Sequence[TensorSpec]
    nulls: bool


class ChunkItems:
    """The rows of all chunks. `rows` raises WorkerError for a chunk that has changed since it was looked at."""

    def __init__(self, directory: Path, chunks: Sequence[Chunk], asked: _Asked) -> None:
        self._directory = directory
        self._chunks = chunks
        self._asked = asked
        self._starts = [chunk.start for chunk in chunks]
        self._kept: dict[int, ArrayItems] = {}
        self._current: tuple[int, ArrayItems] | None = None
        self._axes: dict[str, int | None] = {}
        self.lines = chunks[0].file.endswith(".jsonl")
        self.names: Sequence[str] | None
        self.breaks: Sequence[int]
        self.names, self.breaks = self._look_at_all()

    def __len__(self) -> int:
        return self._chunks[-1].end

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """See Items."""
        parts: list[dict[str, Tensor]] = []
        index = max(0, bisect.bisect_right(self._starts, start) - 1)
        while start < end:
            chunk, upto = self._chunks[index], min(end, self._chunks[index].end)
            parts.append(self._chunk(index).rows(start - chunk.start, upto - chunk.start))
            start, index = upto, index + 1
        if len(parts) == 1:
            return parts[0]
        return {
            name: parts[0][name] if axis is None else np.concatenate([part[name] for part in parts], axis=axis)
            for name, axis in self._axes.items()
        }

    def _look_at_all(self) -> tuple[list[str] | None, Sequence[int]]:
        """Check every chunk against the model and the first of them. Returns the items' names, if they have names, and breaks."""
        names: list[str] = []
        breaks = packed("q")
        first: Mapping[str, Tensor] | None = None
        last: Mapping[str, Tensor] = {}
        kept_bytes = names_size = 0
        for index, chunk in enumerate(self._chunks):
            data = _read(self._directory, chunk)
            items = _named(data, chunk.file, self._asked)
            if len(items) != chunk.end - chunk.start:
                raise invalid(f"{chunk.file!r} holds {len(items)} items, not as many as its manifest says; restore it")
            row = items.rows(0, 1)
            if first is None:
                first = row
                self._axes = {spec.name: spec.batch_axis for spec in self._asked.inputs if spec.name in row}
            elif difference := _difference(first, row, self._axes):
                raise invalid(f"{chunk.file!r} differs from the chunks before it: {difference}; split the items")
            elif any(last[name].shape != array.shape for name, array in row.items()):
                breaks.append(chunk.start)
            breaks.extend(chunk.start + item for item in items.breaks)
            last = items.rows(len(items) - 1, len(items))
            names.extend(items.names or ())
            names_size += sum(map(sys.getsizeof, items.names or ()))
            if names_size > _NAMES_BYTES:
                raise invalid(f"the items' names up to {chunk.file!r} take {names_size} bytes; leave the column out")
            # By its rows, for a small file may hold large ones.
            if kept_bytes <= _KEPT_BYTES and (kept_bytes := kept_bytes + items.nbytes) <= _KEPT_BYTES:
                self._kept[index] = items
        return names if len(names) == len(self) else None, breaks

    def _chunk(self, index: int) -> ArrayItems:
        if (kept := self._kept.get(index)) is not None:
            return kept
        current = self._current
        if current is None or current[0] != index:
            chunk = self._chunks[index]
            current = self._current = index, _named(_read(self._directory, chunk), chunk.file, self._asked)
        return current[1]


def is_output(directory: Path) -> bool:
    """Whether a directory holds the answers of a job, finished or not. Raises OSError."""
    return read_summary(Directory(directory)) is not None or author_of(Directory(directory)) is not None


def open_output(directory: Path, inputs: Sequence[TensorSpec], *, nulls: bool = False) -> ChunkItems:
    """The answers in a finished output directory, as items. Raises WorkerError INPUT_INVALID, or OSError.

    With `nulls`, null in JSON lines stands for NaN.
    """
    summary = read_summary(Directory(directory))
    if summary is None:
        header = author_of(Directory(directory))
        raise invalid(_unfinished(directory, header))
    _require_whole(directory, summary)
    return ChunkItems(directory, summary.chunks, _Asked(inputs, nulls))


def is_chunk(path: Path) -> bool:
    """Whether a file has the name of a chunk."""
    return CHUNK_NAME.fullmatch(path.name) is not None


def open_chunk(path: Path, inputs: Sequence[TensorSpec], *, nulls: bool = False) -> ArrayItems:
    """The answers in one chunk, as items. Raises WorkerError INPUT_INVALID, OSError, or what the form's reader raises."""
    return _items_of(_bytes_of(path), path.name, _Asked(inputs, nulls))


def _unfinished(directory: Path, header: Header | None) -> str:
    whose = f" of job {header.job}" if header is not None else ""
    cure = "edit this one once it has: the edit runs it anew"
    return f"{directory.name!r} holds answers{whose} without {SUMMARY}, so that job has not ended; {cure}"


def _require_whole(directory: Path, summary: Summary) -> None:
    """Raise WorkerError unless the chunks follow one another from the first item to the last, in one form."""
    names = [chunk.file for chunk in summary.chunks]
    bounds = [0, *(chunk.end for chunk in summary.chunks)]
    follow = all(start == chunk.start < chunk.end for start, chunk in zip(bounds, summary.chunks, strict=False))
    if not names or not follow or bounds[-1] != summary.total:
        raise invalid(f"the chunks in {directory.name}/{SUMMARY} do not make up its {summary.total} items; restore the file")
    if odd := next((name for name in names if not CHUNK_NAME.fullmatch(name)), None):
        raise invalid(f"{directory.name}/{SUMMARY} lists {odd!r}, which is no chunk; restore the file")
    if len({Path(name).suffix for name in names}) > 1:
        raise invalid(f"{directory.name!r} holds chunks of two forms; restore the directory")


def _read(directory: Path, chunk: Chunk) -> bytes:
    """The bytes of a chunk, which are those of its digest. Raises WorkerError or OSError."""
    path = directory / chunk.file
    # A link could lead out of the volume.
    if path.is_symlink() or not path.is_file():
        raise invalid(f"{chunk.file!r} of the manifest is no file in {directory.name!r}; restore it")
    data = _bytes_of(path)
    if (actual := hashlib.sha256(data).hexdigest()) != chunk.sha256:
        raise invalid(f"{chunk.file!r} has sha256 {actual}, not that of its manifest; restore it, or run its job again")
    return data


def _bytes_of(path: Path) -> bytes:
    """All bytes of a chunk. Raises WorkerError for a file that is larger than any, as one with holes may be, or OSError."""
    with path.open("rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > _LARGEST_BYTES:
            raise invalid(f"{path.name!r} has {size} bytes, and a chunk may have {_LARGEST_BYTES}; run its job with smaller items")
        return file.read(size)


def _named(data: bytes, name: str, asked: _Asked) -> ArrayItems:
    """The items of one chunk among many. Raises as _items_of does, with the chunk's name."""
    try:
        return _items_of(data, name, asked)
    except WorkerError as error:
        raise invalid(error.message if name in error.message else f"{name!r}: {error.message}") from error
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise invalid(f"{name!r} can't be read: {error}") from error


def _items_of(data: bytes, name: str, asked: _Asked) -> ArrayItems:
    inputs = asked.inputs
    if name.endswith(".jsonl"):
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", newline="\n")
        return read_json_lines(text, inputs, nulls=asked.nulls, ours=True)
    arrays = as_columns(read_npz(io.BytesIO(data), inflated=max(_INFLATED_BYTES, 2 * len(data))), {spec.name for spec in inputs})
    scalar = next((key for key, array in arrays.items() if not isinstance(array, Ragged) and not array.ndim), None)
    if scalar is not None:
        raise invalid(f"{scalar!r} in {name!r} has no dimension that counts items; leave it out")
    names = _take_names(arrays, inputs)
    feeding = matched(arrays, inputs, ours=True)
    if feeding is None:
        given = ", ".join(sorted(arrays))
        raise invalid(f"{name!r} has {given}, but the model wants {wanted(inputs)}; choose a model whose inputs have these names")
    specs = {spec.name: spec for spec in inputs}
    items = from_arrays({feeds: _placed(arrays[key], specs[feeds]) for key, feeds in feeding.items()}, inputs)
    items.names = names if names is not None and len(names) == len(items) else None
    return items


def _take_names(arrays: dict[str, Column], inputs: Sequence[TensorSpec]) -> list[str] | None:
    """The names of the items, taken out of the arrays; None where they have no names."""
    expected = {spec.name for spec in inputs}
    for column in _NAMES:
        array = arrays.get(column)
        if column not in expected and isinstance(array, np.ndarray) and array.dtype.kind == "U" and array.ndim == 1:
            del arrays[column]
            return list(strings(array, f"column {column!r}"))
    return None


def _placed(array: Column, spec: TensorSpec) -> Column:
    """The array with its items on the axis where the input counts them: in our output they come first."""
    if isinstance(array, Ragged):
        return array
    if spec.batch_axis is not None:
        return np.moveaxis(array, 0, spec.batch_axis) if spec.batch_axis < array.ndim else array
    if (array != array[:1]).any():
        raise invalid(f"input {spec.name!r} is shared by all items, so every item must give the same value")
    return array[0, ...]


def _difference(first: Mapping[str, Tensor], row: Mapping[str, Tensor], axes: Mapping[str, int | None]) -> str | None:
    """What keeps rows of two chunks from one job, in words; None when nothing does."""
    if first.keys() != row.keys():
        return f"it feeds {sorted(row)}, they feed {sorted(first)}"
    for name, axis in axes.items():
        if axis is None and (first[name].shape != row[name].shape or (first[name] != row[name]).any()):
            return f"it gives input {name!r}, which all items share, another value"
    return None

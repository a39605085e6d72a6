"""Inputs of a batch task as rows: `.npy`, `.npz`, JSON lines, or a directory of raw files.

Everything is checked against the model before the first run, so that a bad input costs no device time.
"""

import json
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from inference_protocol.messages import InputFormat
from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, Tensors, TensorSpec
from inference_worker.errors import WorkerError

_SUFFIXES: dict[str, InputFormat] = {".npy": "npy", ".npz": "npz", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class Items(Protocol):
    """Rows that can be read by range, in any order and again."""

    names: Sequence[str] | None

    def __len__(self) -> int: ...

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """Feeds for rows start..end, each array with the rows as first dimension."""
        ...


class ArrayItems:
    """Rows that are already arrays, each with its rows on the axis that `axes` names (None: shared by all rows)."""

    names: Sequence[str] | None = None

    def __init__(self, arrays: dict[str, Tensor], axes: dict[str, int | None]) -> None:
        self._arrays = arrays
        self._axes = axes
        self._length = next(arrays[name].shape[axis] for name, axis in axes.items() if axis is not None)

    def __len__(self) -> int:
        return int(self._length)

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """See Items. Slices are made contiguous and in memory here, since a memory map reads only now."""
        return {
            name: np.asarray(array) if axis is None else np.ascontiguousarray(array[(slice(None),) * axis + (slice(start, end),)])
            for (name, array), axis in zip(self._arrays.items(), self._axes.values(), strict=True)
        }


class FileItems:
    """Rows that are files of raw little-endian values, read when they are needed."""

    def __init__(self, files: Sequence[Path], spec: TensorSpec, item_shape: tuple[int, ...]) -> None:
        self._files = files
        self._spec = spec
        self._shape = item_shape
        self.names: Sequence[str] | None = [path.name for path in files]

    def __len__(self) -> int:
        return len(self._files)

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """See Items."""
        return {self._spec.name: np.stack([self._load(path) for path in self._files[start:end]])}

    def _load(self, path: Path) -> Tensor:
        return np.frombuffer(path.read_bytes(), dtype=self._spec.dtype).reshape(self._shape)


def invalid(message: str) -> WorkerError:
    """A fault of the input, in words for its author."""
    return WorkerError(WorkerReason.INPUT_INVALID, message)


def open_items(path: Path, form: InputFormat, inputs: Sequence[TensorSpec]) -> Items:
    """Open an input file or directory. Raises WorkerError INPUT_NOT_FOUND or INPUT_INVALID."""
    if not path.exists():
        raise WorkerError(WorkerReason.INPUT_NOT_FOUND, f"the input {path.name!r} does not exist; check claim and path")
    chosen = form if form != "auto" else _guess(path)
    if chosen == "files":
        return _from_files(path, inputs)
    if path.is_dir():
        raise invalid(f"{path.name!r} is a directory, but format {chosen} is one file; set input.format: files")
    try:
        if chosen == "jsonl":
            return from_json_lines(path.read_text(encoding="utf-8"), inputs)
        arrays = _load(path, chosen)
    except (OSError, EOFError, ValueError, KeyError, AttributeError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise invalid(f"{path.name!r} can't be read as {chosen}: {error or type(error).__name__}") from error
    return from_arrays(arrays, inputs)


def _load(path: Path, chosen: InputFormat) -> dict[str, Tensor]:
    loaded = np.load(path, mmap_mode="r" if chosen == "npy" else None, allow_pickle=False)
    if chosen == "npy":
        if not isinstance(loaded, np.ndarray):
            raise ValueError("it is a .npz archive; set input.format: npz")
        return {"": loaded}
    if isinstance(loaded, np.ndarray):
        raise ValueError("it is one .npy array; set input.format: npy")
    arrays = {name: loaded[name] for name in loaded.files}
    if odd := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise ValueError(f"{odd[0]!r} in it is no array")
    return arrays


def is_json_lines(path: Path) -> bool:
    """Whether a name's ending says JSON lines."""
    return _SUFFIXES.get(path.suffix.lower()) == "jsonl"


def _guess(path: Path) -> InputFormat:
    if path.is_dir():
        return "files"
    if form := _SUFFIXES.get(path.suffix.lower()):
        return form
    raise invalid(f"can't tell the format of {path.name!r} by its ending; set input.format to npy, npz, jsonl or files")


def from_arrays(arrays: dict[str, Tensor], inputs: Sequence[TensorSpec]) -> ArrayItems:
    """Match arrays to the model's inputs: names, types, shapes, equal numbers of rows, at least one."""
    if set(arrays) == {""} and len(inputs) == 1:
        arrays = {inputs[0].name: arrays[""]}
    expected = {spec.name for spec in inputs}
    if set(arrays) != expected:
        given = ", ".join(sorted(filter(None, arrays))) or "one unnamed array"
        raise invalid(f"the input has {given}, but the model wants {', '.join(sorted(expected))}")
    checked = {spec.name: _fit(arrays[spec.name], spec) for spec in inputs}
    axes = {spec.name: spec.batch_axis for spec in inputs}
    counts = {name: checked[name].shape[axis] for name, axis in axes.items() if axis is not None}
    if len(set(counts.values())) > 1:
        raise invalid(f"the inputs have different numbers of items: {counts}")
    if not next(iter(counts.values())):
        raise invalid("the input holds no items; there is nothing to run")
    return ArrayItems(checked, axes)


def _fit(array: Tensor, spec: TensorSpec) -> Tensor:
    wanted = spec.shape
    if array.ndim != len(wanted) or any(
        w is not None and w != h and i != spec.batch_axis for i, (w, h) in enumerate(zip(wanted, array.shape, strict=False))
    ):
        shape = ["N" if i == spec.batch_axis else "any" if w is None else w for i, w in enumerate(wanted)]
        raise invalid(f"input {spec.name!r} has shape {list(array.shape)}, but the model wants {shape}")
    if array.dtype == spec.dtype:
        return array
    if spec.datatype == "BYTES" or array.dtype.kind in "OSUV" or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise invalid(f"input {spec.name!r} is {array.dtype}, but the model wants {spec.datatype} ({spec.dtype})")
    return _narrowed(array, spec)


def _narrowed(array: Tensor, spec: TensorSpec) -> Tensor:
    """The array in the model's type; values that do not fit there are refused rather than wrapped or made infinite."""
    if array.size and spec.dtype.kind in "iu":
        bounds = np.iinfo(spec.dtype)
        if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
            raise invalid(f"input {spec.name!r} holds values beyond {spec.datatype} ({bounds.min} to {bounds.max})")
    with np.errstate(over="ignore"):
        narrow = array.astype(spec.dtype)
    if spec.dtype.kind == "f" and (beyond := np.isinf(narrow) & np.isfinite(array)).any():
        raise invalid(f"input {spec.name!r} holds {array[beyond][0]:g}, which is beyond {spec.datatype}")
    return narrow


def from_json_lines(text: str, inputs: Sequence[TensorSpec]) -> ArrayItems:
    """Rows from JSON lines: an object of input names to values; or just the values, when the model has one input."""
    columns: dict[str, list[Any]] = {spec.name: [] for spec in inputs}
    # JSON text may hold the other line ends of Unicode inside its strings: only the newline ends a line.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        row = _parse_line(line, number)
        if not isinstance(row, dict):
            if len(inputs) > 1:
                raise invalid(f"line {number}: the model has inputs {sorted(columns)}; write an object that names them")
            row = {inputs[0].name: row}
        if row.keys() != columns.keys():
            raise invalid(f"line {number} has {sorted(row)}, but the model wants {sorted(columns)}")
        for name, value in row.items():
            columns[name].append(value)
    if not any(columns.values()):
        raise invalid("the input holds no items; there is nothing to run")
    return from_arrays({spec.name: _column(columns[spec.name], spec) for spec in inputs}, inputs)


def _parse_line(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise invalid(f"line {number} is no JSON: {error}") from error


def _column(values: list[Any], spec: TensorSpec) -> Tensor:
    if spec.batch_axis is None:
        if any(value != values[0] for value in values):
            raise invalid(f"input {spec.name!r} is shared by all items, so every line must give the same value")
        values = values[:1]
    if spec.datatype == "BF16":
        raise invalid(f"input {spec.name!r} is BF16, which neither JSON nor numpy's files hold; serve the model instead")
    try:
        array = _texts(values) if spec.datatype == "BYTES" else datatypes.from_values(values, spec.datatype)
        return array[0, ...] if spec.batch_axis is None else np.moveaxis(array, 0, spec.batch_axis)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise invalid(f"input {spec.name!r}: items do not form a {spec.datatype} tensor: {error}") from error


def _texts(values: list[Any]) -> Tensor:
    array = np.array(values, dtype=object)
    if not all(isinstance(value, str) for value in array.ravel()):
        raise TypeError("only strings may stand there, in equal numbers in every item")
    return array


def _from_files(path: Path, inputs: Sequence[TensorSpec]) -> FileItems:
    if not path.is_dir():
        raise invalid(f"{path.name!r} is a file; format files reads a directory of raw files")
    if len(inputs) != 1:
        raise invalid("a directory of files feeds models with one input; use .npz for several")
    (spec,) = inputs
    if spec.datatype == "BYTES" or None in spec.shape[1:] or spec.batch_axis != 0:
        raise invalid(f"files can't feed input {spec.name!r} of shape {spec.wire_shape}; use .npy or JSON lines")
    root = path.resolve()
    # Links are left out: each could point to a file that the job's author has no right to read.
    files = sorted(p for p in root.iterdir() if p.is_file() and not p.is_symlink())
    if not files:
        raise invalid("the input directory holds no files; there is nothing to run")
    shape = tuple(d for d in spec.shape[1:] if d is not None)
    size = int(np.prod(shape, dtype=np.int64)) * spec.dtype.itemsize
    for file in files:
        if (actual := file.stat().st_size) != size:
            raise invalid(f"{file.name!r} has {actual} bytes, but one item of {spec.datatype} {list(shape)} has {size}")
    return FileItems(files, spec, shape)


def refuse_non_finite(feeds: Tensors, start: int, inputs: Sequence[TensorSpec]) -> None:
    """Raise WorkerError naming the first item that holds NaN or infinity, or the input that all items share."""
    for spec in inputs:
        name, array = spec.name, feeds[spec.name]
        if array.dtype.kind != "f" or _surely_finite(array):
            continue
        if spec.batch_axis is None:
            if not np.isfinite(array).all():
                raise invalid(f"input {name!r} holds NaN or infinity; clean the data, or set input.allowNonFinite: true")
            continue
        by_item = np.moveaxis(array, spec.batch_axis, 0)
        bad = ~np.isfinite(by_item.reshape(len(by_item), -1)).all(axis=1)
        if bad.any():
            item = start + int(bad.argmax())
            raise invalid(f"item {item} of input {name!r} holds NaN or infinity; clean the data, or set input.allowNonFinite: true")


def _surely_finite(array: Tensor) -> bool:
    """Whether one sum shows that every value is finite, at a tenth of the price of looking at each.

    NaN and infinity stay in a sum; a sum that overflows by itself only makes the caller look closer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum(dtype=np.float32 if array.dtype.itemsize < 4 else None)))

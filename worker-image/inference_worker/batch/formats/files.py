"""Inputs as a directory of raw files: each holds the little-endian values of one item.

Where the model leaves one size free, the file's size tells it.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inference_worker.batch.items import invalid
from inference_worker.batch.matching import item_shape, sole_input
from inference_worker.engines.engine import Tensor, TensorSpec
from inference_worker.errors import WorkerError


class FileItems:
    """Rows that are files of raw little-endian values, read when they are needed."""

    lines = False

    def __init__(self, files: Sequence[Path], spec: TensorSpec, sizes: Sequence[int]) -> None:
        """`sizes` are those of the files, each of which makes whole items."""
        self._files = files
        self._spec = spec
        self._shape = tuple(-1 if size is None else size for size in item_shape(spec))
        self.names: Sequence[str] | None = [path.name for path in files]
        self.breaks: Sequence[int] = [item for item in range(1, len(sizes)) if sizes[item] != sizes[item - 1]]

    def __len__(self) -> int:
        return len(self._files)

    def rows(self, start: int, end: int) -> dict[str, Tensor]:
        """See Items."""
        loaded = [self._load(path) for path in self._files[start:end]]
        if odd := next(
            (path for path, array in zip(self._files[start:end], loaded, strict=True) if array.shape != loaded[0].shape), None
        ):
            raise invalid(f"{odd.name!r} has changed since the job began; leave the files alone until it ends")
        return {self._spec.name: np.stack(loaded)}

    def _load(self, path: Path) -> Tensor:
        try:
            return np.frombuffer(path.read_bytes(), dtype=self._spec.dtype).reshape(self._shape)
        except ValueError as error:
            raise invalid(f"{path.name!r} has changed since the job began; leave the files alone until it ends") from error


def open_files(path: Path, inputs: Sequence[TensorSpec]) -> FileItems:
    """The files of a directory in the order of their names, all of the right size. Raises WorkerError INPUT_INVALID."""
    if not path.is_dir():
        raise invalid(f"{path.name!r} is a file; format files reads a directory of raw files")
    spec = sole_input(inputs)
    if spec is None:
        raise invalid("a directory of files feeds models with one input; use .npz for several")
    shape = item_shape(spec)
    fixed = math.prod(size for size in shape if size is not None)
    if spec.datatype == "BYTES" or spec.batch_axis != 0 or shape.count(None) > 1 or (None in shape and not fixed):
        raise invalid(f"files can't feed input {spec.name!r} of shape {spec.wire_shape}; use .npy or JSON lines")
    root = path.resolve()
    # Links are left out: each could point to a file that the job's author has no right to read.
    files = sorted(p for p in root.iterdir() if p.is_file() and not p.is_symlink())
    if not files:
        raise invalid("the input directory holds no files; there is nothing to run")
    sizes = [file.stat().st_size for file in files]
    unit = fixed * spec.dtype.itemsize
    for file, size in zip(files, sizes, strict=True):
        if size != unit if None not in shape else size % unit:
            raise _misfit(file, size, spec, unit)
    return FileItems(files, spec, sizes)


def _misfit(file: Path, size: int, spec: TensorSpec, unit: int) -> WorkerError:
    shape = ["any" if size is None else size for size in item_shape(spec)]
    wanted = f"a multiple of {unit}" if "any" in shape else str(unit)
    return invalid(f"{file.name!r} has {size} bytes, but one item of {spec.datatype} {shape} has {wanted}")

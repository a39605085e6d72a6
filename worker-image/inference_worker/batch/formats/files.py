"""Inputs as a directory of raw files: each holds the little-endian values of one item."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inference_worker.batch.items import invalid
from inference_worker.batch.matching import sole_input
from inference_worker.engines.engine import Tensor, TensorSpec


class FileItems:
    """Rows that are files of raw little-endian values, read when they are needed."""

    lines = False

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


def open_files(path: Path, inputs: Sequence[TensorSpec]) -> FileItems:
    """The files of a directory in the order of their names, all of the right size. Raises WorkerError INPUT_INVALID."""
    if not path.is_dir():
        raise invalid(f"{path.name!r} is a file; format files reads a directory of raw files")
    spec = sole_input(inputs)
    if spec is None:
        raise invalid("a directory of files feeds models with one input; use .npz for several")
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

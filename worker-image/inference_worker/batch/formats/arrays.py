"""Inputs as numpy writes them: `.npy`, read as it is needed, and `.npz`."""

import contextlib
import io
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from inference_worker import cpu
from inference_worker.batch.formats.texts import kind_of
from inference_worker.batch.ragged import LARGEST_BESIDE_ZERO
from inference_worker.engines.engine import Tensor

_NPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What a file may grow to, or so many times itself: deflate makes a thousand of one at most, data hardly ever ten.
_INFLATED_LIMIT_BYTES = 1 << 30
_INFLATED_TIMES = 20
_SHARE = 2
"""Archives may have one in so many bytes of the worker's memory, as text may: the model and its runs need the rest."""


def read_npy(path: Path) -> Tensor:
    """The array of a `.npy`, mapped and not read. Raises ValueError or OSError for anything else."""
    with path.open("rb") as file:
        _require(file.read(len(_NPY_MAGIC)), _NPY_MAGIC, "npy")
    with _pickles_named():
        return _loaded(np.load(path, mmap_mode="r", allow_pickle=False))


def read_npz(file: Path | io.BytesIO, *, inflated: int | None = None) -> dict[str, Tensor]:
    """The arrays of a `.npz` by name. Raises ValueError, OSError, KeyError or those of zipfile and zlib for anything else.

    `inflated` is how many bytes all of them may have, where that is less than any archive may have.
    """
    with file.open("rb") if isinstance(file, Path) else file as opened:
        _require(opened.read(len(_NPY_MAGIC)), _ZIP_MAGIC, "npz")
        opened.seek(0)
        with zipfile.ZipFile(opened) as archive:
            _require_bounded(archive, opened.seek(0, io.SEEK_END), inflated)
            _require_whole(archive)
        opened.seek(0)
        archived = np.load(opened, allow_pickle=False)
        with _pickles_named():
            return {name: _loaded(archived[name]) for name in archived.files}


@contextlib.contextmanager
def _pickles_named() -> Iterator[None]:
    """Say what to do about arrays of Python objects, which numpy pickles and nobody here loads."""
    try:
        yield
    except ValueError as error:
        # numpy has no class of error for it, and other words for a file that is mapped.
        if any(words in str(error) for words in ("Object arrays", "Python objects")):
            raise ValueError("it holds Python objects, which are never loaded; save text with array.astype(str)") from error
        raise


def _loaded(found: object) -> Tensor:
    if not isinstance(found, np.ndarray):
        raise ValueError("it holds what is no array; write it with numpy.savez")
    if not found.dtype.itemsize:
        # numpy makes none by itself. A header alone would stand for any number of items, each an object of Python's.
        raise ValueError(
            f"it holds elements of no bytes ({found.dtype.str}); save them in a type that has a size, as <U1 or float32"
        )
    elements = math.prod(size for size in found.shape if size)
    if not found.size and elements > LARGEST_BESIDE_ZERO:
        raise ValueError(f"it has shape {list(found.shape)} and no data, so its sizes come from no items; write it again")
    return found


def _require(head: bytes, magic: bytes, form: str) -> None:
    if head.startswith(magic):
        return
    if form == "npz" and head.startswith(_NPY_MAGIC):
        raise ValueError("it is one .npy array; set input.format: npy")
    if form == "npy" and head.startswith(_ZIP_MAGIC):
        raise ValueError("it is a .npz archive; set input.format: npz")
    raise ValueError(f"it is {kind_of(head) or 'no such file'}; write it with numpy.{'save' if form == 'npy' else 'savez'}")


def _require_bounded(archive: zipfile.ZipFile, size: int, asked: int | None) -> None:
    """A small archive must not take all memory: its members say how large they become, and zipfile holds them to it."""
    inflated = sum(member.file_size for member in archive.infolist())
    limit = max(_INFLATED_LIMIT_BYTES, _INFLATED_TIMES * size) if asked is None else asked
    if inflated > limit:
        raise ValueError(f"it inflates to {inflated} bytes, more than the limit of {limit}; save it uncompressed with numpy.savez")
    memory = cpu.usable_memory_bytes()
    if inflated > memory // _SHARE:
        whose = f"1/{_SHARE} of this worker's {memory}"
        cure = "split the input, raise resources.limits.memory, or give it as .npy"
        raise ValueError(f"it inflates to {inflated} bytes, and may have {whose}; {cure}")


def _require_whole(archive: zipfile.ZipFile) -> None:
    """An array's header must not claim more than its member holds: numpy makes room for what the header says."""
    for member in archive.infolist():
        with archive.open(member) as opened:
            claimed = _claimed_bytes(opened)
        if claimed > member.file_size:
            raise ValueError(
                f"array {member.filename!r} claims {claimed} bytes, but its member holds {member.file_size}; write it again"
            )


def _claimed_bytes(opened: IO[bytes]) -> int:
    """What an array takes by its header; 0 for what is no array, or none that is read here."""
    if opened.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
        return 0
    version = tuple(opened.read(2))
    if version not in _HEADERS:
        return 0
    shape, _, dtype = _HEADERS[version](opened)
    return math.prod(shape) * dtype.itemsize if not dtype.hasobject else 0

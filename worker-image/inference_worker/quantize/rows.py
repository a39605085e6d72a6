"""Rows to calibrate with and to judge by: read, matched to the model, and cut into batches that it takes."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from inference_worker.batch.formats.arrays import read_npz
from inference_worker.batch.items import Items, refuse_non_finite
from inference_worker.batch.matching import from_arrays
from inference_worker.engines.engine import Engine, Tensor, Tensors
from inference_worker.errors import WorkerError
from inference_worker.quantize.faults import Fault, QuantizeError

_FAULTS = (OSError, EOFError, ValueError, KeyError, AttributeError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)


def decode(data: bytes, name: str) -> dict[str, Tensor]:
    """The arrays of a `.npz`, by name; of a `.npy`, the one array under the empty name. `name` is for the message.

    Raises QuantizeError ROWS_UNFIT for anything else, and for files that only pickle could read.
    """
    try:
        if data.startswith(b"PK"):
            return read_npz(io.BytesIO(data))
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except _FAULTS as error:
        raise QuantizeError(
            Fault.ROWS_UNFIT,
            f"{name} can't be read: {str(error) or type(error).__name__}; give a .npy or .npz file of plain arrays",
        ) from error
    return {"": array}


def decode_labels(data: bytes, name: str) -> Tensor:
    """The one array of a file. Raises QuantizeError ROWS_UNFIT."""
    arrays = decode(data, name)
    if len(arrays) != 1:
        raise QuantizeError(
            Fault.ROWS_UNFIT, f"{name} holds {len(arrays)} arrays; labels are one array, with an entry for each row"
        )
    return next(iter(arrays.values()))


def fitted(given: Tensors | None, engine: Engine, *, purpose: str, advice: str, least: int) -> Items:
    """The rows as the model takes them, at least `least` of them.

    Raises QuantizeError: ROWS_MISSING (with `advice`), TOO_FEW_ROWS, ROWS_UNFIT for names, types, shapes and values that the model
    does not take.
    """
    if given is None:
        raise QuantizeError(Fault.ROWS_MISSING, f"there are no {purpose} rows; {advice}")
    if all(spec.batch_axis is None for spec in engine.inputs):
        raise QuantizeError(
            Fault.ROWS_UNFIT, "the model takes no rows: one of its inputs at least needs a dimension that counts them"
        )
    try:
        found = from_arrays(dict(given), engine.inputs)
        # NaN would take part in every range and hide in every comparison.
        refuse_non_finite(found.rows(0, len(found)), 0, engine.inputs)
    except WorkerError as error:
        raise QuantizeError(Fault.ROWS_UNFIT, f"the {purpose} rows do not fit the model: {error.message}") from error
    if len(found) < least:
        raise QuantizeError(Fault.TOO_FEW_ROWS, f"{len(found)} {purpose} rows are too few; give at least {least}")
    return found


def batches(found: Items, engine: Engine, size: int) -> Iterator[tuple[dict[str, Tensor], int, int]]:
    """Feeds, how many rows are in them, and how many of these count; `size` rows unless the model's own number is fixed.

    The last batch is shorter, or filled up where it must not be.
    """
    size = engine.rows or size
    for start in range(0, len(found), size):
        real = min(size, len(found) - start)
        feeds = found.rows(start, start + real)
        yield (filled(feeds, engine, real, size), size, real) if engine.rows else (feeds, real, real)


def filled(feeds: Tensors, engine: Engine, real: int, size: int) -> dict[str, Tensor]:
    """`size` rows out of `real` ones, repeated in turn."""
    turn = np.arange(size) % real
    axes = {spec.name: spec.batch_axis for spec in engine.inputs}
    return {name: array if (axis := axes[name]) is None else np.take(array, turn, axis=axis) for name, array in feeds.items()}


def digest_of(arrays: Mapping[str, Tensor] | None) -> str:
    """A SHA-256 in hex of names, types, shapes and values; of nothing too."""
    found = hashlib.sha256()
    for name in sorted(arrays or {}):
        array = np.ascontiguousarray((arrays or {})[name])
        found.update(repr((name, array.dtype.str, array.shape)).encode())
        # Strings as objects have no bytes of their own.
        found.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return found.hexdigest()

"""Answers as bytes of a chunk: JSON lines for whoever asked in lines, an .npz archive for everybody else."""

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from inference_worker import datatypes
from inference_worker.batch.ragged import Column, Ragged, as_arrays
from inference_worker.engines.engine import Tensor


def json_lines(columns: Mapping[str, Column]) -> bytes:
    """An object a row. JSON has no NaN and no infinity: they are written as null, and arrays (.npz) are the way to keep them."""
    lists = {name: _items(column) for name, column in columns.items()}
    rows = zip(*lists.values(), strict=True)
    return b"".join(json.dumps(dict(zip(lists, row, strict=True)), default=_text).encode() + b"\n" for row in rows)


def npz(columns: Mapping[str, Column]) -> bytes:
    """An uncompressed .npz archive, with any names and shapes (see ragged.py).

    Strings become numpy's fixed-width text, which needs no pickle.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in as_arrays(columns).items():
            plain = np.ascontiguousarray(_fixed_width(array) if array.dtype.kind == "O" else array)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(plain))
                # As it lies in memory: numpy's own writer makes a copy first.
                member.write(plain.reshape(-1).view(np.uint8).data)
    return buffer.getvalue()


def _fixed_width(array: Tensor) -> Tensor:
    return np.array([_text(value) for value in array.ravel()], dtype=str).reshape(array.shape)


def _items(column: Column) -> list[Any]:
    """The items as JSON has them."""
    if not isinstance(column, Ragged):
        return _plain(column)
    return [item for span in column.spans() for item in _plain(span)]


def _plain(array: Tensor) -> list[Any]:
    if datatypes.is_real(array) and not np.isfinite(array).all():
        mask = ~np.isfinite(array)
        array = array.astype(object)
        array[mask] = None
    plain: list[Any] = array.tolist()
    return plain


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

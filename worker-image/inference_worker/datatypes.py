"""Open Inference Protocol datatypes and what stands for them in numpy."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

# BYTES holds strings as Python objects; BF16 has no numpy type and is carried as raw 16-bit words.
NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in NUMPY.items()}

ONNX: dict[str, str] = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


def name_of(array: np.ndarray[Any, Any]) -> str:
    """The protocol's name of an array's type; strings of any numpy kind are BYTES."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return NAMES[array.dtype]


def from_values(values: list[Any], datatype: str) -> np.ndarray[Any, Any]:
    """A tensor from JSON values, nested or flat, of any datatype but BYTES; nothing is converted without a word.

    Raises ValueError, TypeError or OverflowError: for text, null, true and false where numbers are wanted, for fractions where
    whole numbers are, for numbers that do not fit.
    """
    dtype = NUMPY[datatype]
    kinds = set(_kinds(values))
    allowed = {"BOOL": {bool}}.get(datatype, {int, float} if dtype.kind == "f" else {int})
    if not kinds <= allowed:
        wrong = ", ".join(sorted(kind.__name__ for kind in kinds - allowed))
        raise TypeError(f"{wrong} among the values")
    # Through Python's own numbers: numpy would take 2**64-1 beside 0 for floats.
    array = np.array(values, dtype=dtype if kinds else None)
    if not kinds:
        return array.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(array).all() and not _has_non_finite(values):
        raise OverflowError(f"a value does not fit {datatype}")
    return array


def _kinds(values: list[Any]) -> Iterator[type]:
    for value in values:
        if isinstance(value, list):
            yield from _kinds(value)
        else:
            yield type(value)


def _has_non_finite(values: list[Any]) -> bool:
    return any(_has_non_finite(v) if isinstance(v, list) else isinstance(v, float) and not math.isfinite(v) for v in values)

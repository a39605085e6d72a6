"""Open Inference Protocol datatypes and what stands for them in numpy."""

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

# BYTES holds strings as Python objects; BF16 is no type of numpy's own.
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
    "BF16": np.dtype(ml_dtypes.bfloat16),
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
    "tensor(bfloat16)": "BF16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


HALVES = frozenset({"FP16", "BF16"})
"""Types that JSON and protobuf's typed contents have no exact form of: they go as raw bytes."""


_NESTED = 64
"""As deep as numpy goes."""


def is_real(array: np.ndarray[Any, Any]) -> bool:
    """Whether the values are floating-point numbers, numpy's own or not."""
    return array.dtype.kind == "f" or bool(array.dtype == NUMPY["BF16"])


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
    try:
        # Through Python's own numbers: numpy would take 2**64-1 beside 0 for floats.
        array = np.array(values, dtype=dtype if kinds else None)
    except ValueError as error:
        raise ValueError(uneven(values) or f"lists are nested more than {_NESTED} deep") from error
    except OverflowError as error:
        raise OverflowError(f"a value does not fit {datatype}") from error
    if not kinds:
        return array.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(array).all() and not _has_non_finite(values):
        raise OverflowError(f"a value does not fit {datatype}")
    return array


def uneven(values: list[Any]) -> str | None:
    """Why nested lists form no tensor: two of one depth that differ in length, or one beside a value; None where they do."""
    level: list[Any] = [values]
    while any(isinstance(value, list) for value in level):
        if not all(isinstance(value, list) for value in level):
            return "a list stands beside a value"
        lengths = {len(value) for value in level}
        if len(lengths) > 1:
            return f"lists of {min(lengths)} and {max(lengths)} values stand side by side"
        level = [element for value in level for element in value]
    return None


def _kinds(values: list[Any]) -> Iterator[type]:
    kinds = set(map(type, values))
    if list in kinds:
        kinds.discard(list)
        for value in values:
            if type(value) is list:
                yield from _kinds(value)
    yield from kinds


def _has_non_finite(values: list[Any]) -> bool:
    return any(_has_non_finite(v) if isinstance(v, list) else isinstance(v, float) and not math.isfinite(v) for v in values)

"""Open Inference Protocol datatypes and what stands for them in numpy."""

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

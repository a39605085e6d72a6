"""Arrays as values of ONNX Runtime and back, where its Python interface takes and gives no array of the type: BF16, say."""

import ctypes
import math

import numpy as np
import onnxruntime as ort

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor

_ONNX_BFLOAT16 = 16


def to_value(array: Tensor) -> ort.OrtValue:
    """The runtime's own value of an array, of any data type that the protocol has."""
    if array.dtype != datatypes.NUMPY["BF16"]:
        return ort.OrtValue.ortvalue_from_numpy(array)
    words = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(words, _ONNX_BFLOAT16)


def from_value(value: ort.OrtValue) -> Tensor:
    """The array of a value of the runtime's."""
    if value.data_type() != "tensor(bfloat16)":
        array: Tensor = value.numpy()
        return array
    shape = tuple(value.shape())
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype=datatypes.NUMPY["BF16"])
    # The runtime gives no array of this type, but says where the words are; they are copied before it frees them.
    words = np.ctypeslib.as_array(ctypes.cast(value.data_ptr(), ctypes.POINTER(ctypes.c_uint16)), (count,))
    return words.copy().view(datatypes.NUMPY["BF16"]).reshape(shape)

"""Where a tensor begins in memory. ONNX Runtime sums in another order where it can't load whole vectors: the last bits then differ.

A tensor out of a body begins wherever the caller's header ends, and a slice of rows wherever the rows before it end.
"""

from inference_worker.engines.engine import Tensor, Tensors

# What malloc promises, and so where arrays of numpy's own making begin.
_BYTES = 16


def aligned(feeds: Tensors) -> dict[str, Tensor]:
    """The same tensors, each at an address as of numpy's own making: what is elsewhere is copied."""
    return {name: array if _is_aligned(array) else array.copy() for name, array in feeds.items()}


def _is_aligned(array: Tensor) -> bool:
    return array.dtype.kind == "O" or array.ctypes.data % _BYTES == 0

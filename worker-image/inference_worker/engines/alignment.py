"""Where a tensor begins in memory. ONNX Runtime sums in another order where it can't load whole vectors: the last bits then differ.

A tensor out of a body begins wherever the caller's header ends, and a slice of rows wherever the rows before it end.
"""

from inference_worker.engines.engine import Tensor, Tensors

# What malloc promises, and so where arrays of numpy's own making begin.
_BYTES = 16
# To copy so much is quicker than to ask where it is.
_SMALL_BYTES = 4096


def aligned(feeds: Tensors) -> dict[str, Tensor]:
    """The same tensors, each at an address as of numpy's own making: what is or may be elsewhere is copied."""
    return {
        name: array.copy() if array.nbytes <= _SMALL_BYTES or array.ctypes.data % _BYTES else array for name, array in feeds.items()
    }

"""Whether a run failed because of the shapes that its caller chose: runtimes give these faults the code of any other."""

import re
from collections.abc import Iterable

from inference_worker.engines.engine import TensorSpec

_SHAPES = re.compile(r"shape|dimension|\bdims?\b|\bsizes?\b|\baxis\b|\baxes\b|\brank\b|broadcast|channels", re.IGNORECASE)
_DEVICE = re.compile(r"cuda|cudnn|cublas|nccl|hip error|driver", re.IGNORECASE)


def of_run(error: str, inputs: Iterable[TensorSpec]) -> Exception:
    """ValueError where the runtime's words are of shapes and callers choose some size; else RuntimeError, a fault of the model.

    A device's fault stays one, whatever its words: it is no caller's.
    """
    chosen = any(size is None for spec in inputs for size in spec.shape)
    return ValueError(error) if chosen and _SHAPES.search(error) and not _DEVICE.search(error) else RuntimeError(error)

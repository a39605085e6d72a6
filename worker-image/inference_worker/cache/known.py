"""An answer that is kept."""

import sys

import msgspec
import numpy as np

from inference_worker.batching.ticket import Timing
from inference_worker.cache.waiting import Waiting
from inference_worker.engines.engine import Tensor, Tensors

_ARRAY_BYTES = 256
"""What an array takes beside its numbers: the object, its shape and strides, and its place under its name."""


class Known(msgspec.Struct, frozen=True):
    """Tensors that nobody changes, the rows of the run that gave them, and the seconds that a request like it spares the model."""

    answer: Tensors
    rows: int
    seconds: float

    @property
    def size(self) -> int:
        """Bytes that the tensors take."""
        return size_of(self.answer)


def known(waiting: Waiting, answer: Tensors, timing: Timing) -> Known:
    """What is kept of a run's answer to a request: of its seconds, the share of the request's own rows."""
    return Known(_frozen(answer), timing.rows, spared(waiting, timing))


def spared(waiting: Waiting, timing: Timing) -> float:
    """Seconds of a run that a request's own rows took."""
    rows = waiting.model.batcher.layout.rows(waiting.ask.feeds)
    return timing.compute * min(1.0, rows / max(1, timing.rows))


def size_of(tensors: Tensors) -> int:
    """The bytes that copies of tensors take, with their texts and the objects around them."""
    return sum(_ARRAY_BYTES + sys.getsizeof(name) + array.nbytes + _text_bytes(array) for name, array in tensors.items())


def _text_bytes(array: Tensor) -> int:
    return sum(map(sys.getsizeof, array.ravel().tolist())) if array.dtype.kind == "O" else 0


def _frozen(tensors: Tensors) -> dict[str, Tensor]:
    """Copies: an answer may be a part of a whole run's, which it would keep in memory."""
    copies = {name: np.array(array, order="C") for name, array in tensors.items()}
    for array in copies.values():
        array.flags.writeable = False
    return copies

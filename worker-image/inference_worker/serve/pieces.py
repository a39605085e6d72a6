"""Large answers value by value: what is much is encoded in a thread, a piece at a time.

Encoders in C keep the interpreter until they end, in whatever thread they run. Between two pieces everybody else gets it.
"""

import time
from collections.abc import Callable, Iterator

import orjson

from inference_worker.engines.engine import Tensor, Tensors

PIECE_VALUES = 16 << 10
"""So many numbers take half a millisecond as JSON."""

_TEXT_BYTES = 256 << 10
_BREATH_SECONDS = 5e-5


def is_large(answers: Tensors, copied: Callable[[str], bool]) -> bool:
    """Whether encoding takes longer than the event loop should be held up. `copied` says whose numbers go as they are."""
    values = letters = 0
    for name, array in answers.items():
        if array.dtype.kind in "OSU":
            values += array.size
            letters += _letters(array) if array.size <= PIECE_VALUES else 0
        elif not copied(name):
            values += array.size
    return values > PIECE_VALUES or letters > _TEXT_BYTES


def pieces(array: Tensor) -> Iterator[Tensor]:
    """The values in order, at most PIECE_VALUES at a time, with a moment for others in between."""
    flat = array.ravel()
    if flat.size <= PIECE_VALUES:
        yield flat
        return
    for start in range(0, flat.size, PIECE_VALUES):
        if start:
            time.sleep(_BREATH_SECONDS)
        yield flat[start : start + PIECE_VALUES]


def as_json(array: Tensor, values_of: Callable[[Tensor], object]) -> object:
    """The flat values for orjson, by `values_of` from an array; those of a large array as JSON already."""
    if array.size <= PIECE_VALUES:
        return values_of(array.ravel())
    encoded = (orjson.dumps(values_of(piece), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for piece in pieces(array))
    return orjson.Fragment(b"".join((b"[", b",".join(encoded), b"]")))


def _letters(array: Tensor) -> int:
    if array.dtype.kind != "O":
        return array.nbytes
    return sum(len(value) for value in array.ravel() if isinstance(value, str | bytes))

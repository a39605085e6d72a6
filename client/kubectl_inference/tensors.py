"""What is asked of a model and what it answers, between JSON, NumPy's files and the Open Inference Protocol: pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from inference_client.errors import InvalidError

_EMPTY_LISTS = 65_536


@dataclass(frozen=True, slots=True)
class Declared:
    """An input of a model, as its metadata has it; sizes of -1 are free."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value for an input."""

    name: str
    datatype: str
    array: np.ndarray[Any, Any]


def parse(text: bytes, where: str) -> Any:
    """The value of a text: JSON, an .npy, or an .npz. Raises InvalidError."""
    try:
        if text.startswith(b"\x93NUMPY"):
            return np.load(BytesIO(text), allow_pickle=False)
        if text.startswith(b"PK"):
            with np.load(BytesIO(text), allow_pickle=False) as arrays:
                return dict(arrays)
        return json.loads(text)
    except ValueError as error:
        raise InvalidError(f"{where} is neither JSON nor an .npy or .npz file: {error}") from error


def tensors(value: Any, inputs: Sequence[Declared]) -> tuple[Tensor, ...]:
    """A tensor for each input that is given: an object by name, or a bare value for the only input. Raises InvalidError."""
    names = [one.name for one in inputs]
    if not isinstance(value, Mapping):
        if len(inputs) != 1:
            raise InvalidError(f"the model has the inputs {', '.join(names)}: give an object with these names")
        value = {names[0]: value}
    if unknown := sorted(set(value) - set(names)):
        raise InvalidError(f"the model has no input {', '.join(unknown)}; it has {', '.join(names)}")
    return tuple(_tensor(value[one.name], one) for one in inputs if one.name in value)


def _tensor(value: Any, declared: Declared) -> Tensor:
    try:
        if declared.datatype == "BYTES":
            array = np.array(np.vectorize(_bytes, otypes=[object])(np.asarray(value, dtype=object)), dtype=object)
        else:
            array = np.asarray(value, dtype=triton_to_np_dtype(declared.datatype))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidError(f"input {declared.name} takes {declared.datatype}: {error}") from error
    if array.ndim == len(declared.shape) - 1 and declared.shape[0] in {-1, 1}:
        # One row, as people write it.
        array = array[np.newaxis]
    fits = len(array.shape) == len(declared.shape) and all(
        want in {-1, have} for have, want in zip(array.shape, declared.shape, strict=True)
    )
    if not fits:
        raise InvalidError(f"input {declared.name} has the shape {list(declared.shape)}, and {list(array.shape)} is given")
    return Tensor(declared.name, declared.datatype, np.ascontiguousarray(array))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def plain(array: np.ndarray[Any, Any] | None) -> Any:
    """An answer as JSON has it; none for an output that did not come. Raises InvalidError for one of lists without end."""
    if array is None:
        return None
    # An empty tensor may say that it has a billion rows of nothing.
    if array.size == 0 and prod(one for one in array.shape if one) > _EMPTY_LISTS:
        raise InvalidError(f"an output has the shape {list(array.shape)}, which are more empty lists than can be shown")
    if array.dtype == object:
        return np.vectorize(_text, otypes=[object])(array).tolist()
    return array.tolist()


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

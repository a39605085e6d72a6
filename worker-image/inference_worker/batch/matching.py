"""What an input file holds, matched to the inputs of a model: names, types, shapes, numbers of rows.

Everything is checked before the first run, so that a bad input costs no device time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from inference_worker import datatypes
from inference_worker.batch.items import ArrayItems, count, invalid
from inference_worker.batch.ragged import Column, Ragged
from inference_worker.engines.engine import Tensor, TensorSpec
from inference_worker.errors import WorkerError

# What numpy calls an array that was saved without a name: nothing in a .npy, this in a .npz of `numpy.savez(file, array)`.
_NAMELESS = ("", "arr_0")
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def sole_input(inputs: Sequence[TensorSpec]) -> TensorSpec | None:
    """The input that values without a name feed: the only one, or the only one that can't be left out; None for several."""
    required = [spec for spec in inputs if not spec.optional]
    chosen = required or inputs
    return chosen[0] if len(chosen) == 1 else None


def matched(given: Collection[str], inputs: Sequence[TensorSpec], *, ours: bool = False) -> dict[str, str] | None:
    """Which name feeds which input; None when an input is missing, or a name is none of the model's.

    `ours` are outputs of another job. Those that the model has no input for are left out, and the only one feeds the only input
    under any name: whoever chains two jobs did not choose the names of either model.
    """
    expected = {spec.name for spec in inputs}
    required = {spec.name for spec in inputs if not spec.optional}
    found = {name: name for name in given if name in expected}
    if ours and not found and len(given) == 1 and (sole := sole_input(inputs)) is not None:
        return {next(iter(given)): sole.name}
    if not required <= found.keys() or (not ours and len(found) != len(given)):
        return None
    return found


def wanted(inputs: Sequence[TensorSpec]) -> str:
    """The names that a model wants, for messages."""
    required = ", ".join(sorted(spec.name for spec in inputs if not spec.optional))
    optional = ", ".join(sorted(spec.name for spec in inputs if spec.optional))
    return f"{required} (optional: {optional})" if optional else required


def from_arrays(
    arrays: Mapping[str, Column],
    inputs: Sequence[TensorSpec],
    *,
    lines: bool = False,
    place: Callable[[int], str] = "item {}".format,
) -> ArrayItems:
    """Match arrays to the model's inputs: names, types, shapes, equal numbers of rows, at least one. Raises WorkerError.

    `lines` says that they were read from text. `place` says where an item of a number stands, for messages.
    """
    sole = sole_input(inputs)
    if sole is not None and len(arrays) == 1 and sole.name not in arrays and (only := next(iter(arrays))) in _NAMELESS:
        arrays = {sole.name: arrays[only]}
    if matched(arrays, inputs) is None:
        given = ", ".join(sorted(filter(None, arrays))) or "one unnamed array"
        raise invalid(
            f"the input has {given}, but the model wants {wanted(inputs)}; name them so: numpy.savez(file, {inputs[0].name}=...)"
        )
    specs = [spec for spec in inputs if spec.name in arrays]
    fit = {spec.name: fitted(arrays[spec.name], spec, place) for spec in specs}
    axes = {spec.name: spec.batch_axis for spec in specs}
    counts = {name: count(fit[name], axis) for name, axis in axes.items() if axis is not None}
    if not counts:
        raise invalid("no input that counts items is given, so the number of items is unknown; give one of them")
    if len(set(counts.values())) > 1:
        raise invalid(f"the inputs have different numbers of items: {counts}; give as many of each")
    if not next(iter(counts.values())):
        raise invalid("the input holds no items; there is nothing to run")
    return ArrayItems(fit, axes, lines=lines)


def item_shape(spec: TensorSpec) -> tuple[int | None, ...]:
    """The shape of what one item gives an input; None where a size is free."""
    return tuple(size for axis, size in enumerate(spec.shape) if axis != spec.batch_axis)


def takes(spec: TensorSpec, shape: Sequence[int]) -> bool:
    """Whether an input takes an item of a shape."""
    wanted = item_shape(spec)
    return len(wanted) == len(shape) and all(w is None or w == h for w, h in zip(wanted, shape, strict=True))


def misshapen(place: str, spec: TensorSpec, shape: Sequence[int]) -> WorkerError:
    """What to say of an item whose shape the input does not take."""
    sizes = ["any" if size is None else size for size in item_shape(spec)]
    return invalid(f"{place} has shape {list(shape)} for input {spec.name!r}, but the model wants {sizes}; reshape it")


def fitted(column: Column, spec: TensorSpec, place: Callable[[int], str]) -> Column:
    """The column as the input takes it. Raises WorkerError for another shape, another type, and values beyond the type."""
    if not isinstance(column, Ragged):
        return _in_type(_in_shape(column, spec), spec)
    if spec.batch_axis is None:
        raise invalid(f"input {spec.name!r} is shared by all items, so every item must give the same value")
    starts = [0, *column.breaks.tolist()]
    odd = next((item for item in starts if not takes(spec, column.shapes[item])), None)
    if odd is not None:
        raise misshapen(place(odd), spec, column.shapes[odd].tolist())
    return Ragged(_in_type(column.values, spec), column.shapes)


def _in_shape(array: Tensor, spec: TensorSpec) -> Tensor:
    sizes = spec.shape
    if array.ndim == 1 and spec.batch_axis == 0 and sizes[1:] == (1,):
        # One value an item, with or without a dimension for it: scikit-learn's models give [N] and take [N, 1].
        array = array[:, None]
    if array.ndim != len(sizes) or any(
        w is not None and w != h and i != spec.batch_axis for i, (w, h) in enumerate(zip(sizes, array.shape, strict=False))
    ):
        shape = ["N" if i == spec.batch_axis else "any" if w is None else w for i, w in enumerate(sizes)]
        raise invalid(f"input {spec.name!r} has shape {list(array.shape)}, but the model wants {shape}; reshape it")
    return array


def _in_type(array: Tensor, spec: TensorSpec) -> Tensor:
    if array.dtype == spec.dtype:
        return array
    if spec.datatype == "BYTES" and array.dtype.kind in "SU":
        return strings(array, f"input {spec.name!r}")
    if spec.datatype == "BF16" and array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == 2:
        # How numpy's files hold BF16, which is no type of theirs: two bytes that they don't look into.
        return array.view(spec.dtype)
    if spec.datatype == "BYTES" or array.dtype.kind in "OSUV" or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        cure = "strings" if spec.datatype == "BYTES" else str(spec.dtype)
        raise invalid(f"input {spec.name!r} is {array.dtype}, but the model wants {spec.datatype}; save it as {cure}")
    return _narrowed(array, spec)


def strings(array: Tensor, what: str) -> Tensor:
    """Fixed-width strings (numpy's `U` and `S`) as Python's. Raises WorkerError, about `what`, for what is no text.

    numpy itself drops NUL characters from the end of such strings.
    """
    if array.dtype.kind == "U":
        if not _is_unicode(array):
            raise invalid(f"{what} holds what is no Unicode text; write it again, or clean the data")
        return array.astype(object)
    try:
        decoded = [value.decode() for value in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise invalid(f"{what} holds bytes that are no UTF-8 text ({error.reason}); save it as strings") from error
    texts = np.empty(len(decoded), dtype=object)
    texts[:] = decoded
    return texts.reshape(array.shape)


def _is_unicode(array: Tensor) -> bool:
    """Whether each code point is one of a text: numpy fails in other ways on those that are none."""
    if not array.size or not array.dtype.itemsize:
        return True
    codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    if int(codes.max()) < _SURROGATES[0]:
        return True
    first, last = _SURROGATES
    return int(codes.max()) <= _LAST_CODE_POINT and not ((codes >= first) & (codes <= last)).any()


def _narrowed(array: Tensor, spec: TensorSpec) -> Tensor:
    """The array in the model's type; values that do not fit there are refused rather than wrapped or made infinite."""
    if array.size and spec.dtype.kind in "iu":
        bounds = np.iinfo(spec.dtype)
        if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
            raise invalid(f"input {spec.name!r} holds values beyond {spec.datatype} ({bounds.min} to {bounds.max}); scale the data")
    with np.errstate(over="ignore"):
        narrow: Tensor = array.astype(spec.dtype)
    if datatypes.is_real(narrow) and (beyond := np.isinf(narrow) & np.isfinite(array)).any():
        raise invalid(f"input {spec.name!r} holds {array[beyond][0]:g}, which is beyond {spec.datatype}; scale the data")
    return narrow

"""Rows: how requests are put together for one run, and its answers taken apart again.

The batch axis need not be the first one (a recurrent state is often [layers, rows, width]), and an input may have none: such an
input (a sampling rate, say) is shared, so only requests with the same value go together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inference_worker.engines.engine import Tensor, Tensors, TensorSpec

Bucket = tuple[object, ...]
"""What requests must have in common to share a run: trailing shapes, shared values, outputs wanted."""

_SHARED_LIMIT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows are. `outputs` maps every output to its batch axis; None when the model can't batch, and `why` says why."""

    inputs: Mapping[str, int | None]
    outputs: Mapping[str, int] | None
    why: str = ""

    def rows(self, feeds: Tensors) -> int:
        """Rows of one request. Raises ValueError when its inputs disagree."""
        found = -1
        for name, axis in self.inputs.items():
            if axis is None:
                continue
            size = feeds[name].shape[axis]
            if found >= 0 and size != found:
                raise ValueError(f"input {name!r} has {size} rows where another has {found}")
            found = size
        return max(found, 1)

    def bucket(self, feeds: Tensors, wanted: tuple[str, ...]) -> Bucket:
        """The outputs wanted, then the shape that a request must share with others to be run with them.

        Unique for a request whose shared inputs are too large to compare.
        """
        parts: list[object] = [wanted]
        for name, axis in self.inputs.items():
            array = feeds[name]
            if axis == 0:
                parts.append(array.shape[1:])
            elif axis is not None:
                parts.append(array.shape[:axis] + array.shape[axis + 1 :])
            elif self.outputs is None:
                parts.append(array.shape)
            elif array.nbytes <= _SHARED_LIMIT_BYTES and array.dtype.kind != "O":
                parts.append((array.shape, array.tobytes()))
            else:
                parts.append(object())
        return tuple(parts)

    def joined(self, members: Sequence[Tensors]) -> Tensors:
        """The feeds of all members as one, in their order."""
        if len(members) == 1:
            return members[0]
        return {
            name: members[0][name] if axis is None else np.concatenate([feeds[name] for feeds in members], axis=axis)
            for name, axis in self.inputs.items()
        }

    def part(self, feeds: Tensors, start: int, end: int) -> Tensors:
        """Rows start..end of feeds."""
        return {name: feeds[name] if axis is None else _cut(feeds[name], axis, start, end) for name, axis in self.inputs.items()}

    def padded(self, feeds: Tensors, short: int) -> Tensors:
        """Repeat the last row `short` times, for devices that pay dearly for every new shape."""
        return {name: feeds[name] if axis is None else _repeat_last(feeds[name], axis, short) for name, axis in self.inputs.items()}

    def answer(self, answers: Tensors, start: int, end: int) -> dict[str, Tensor]:
        """Rows start..end of answers."""
        axes = self.outputs
        assert axes is not None, "a model that can't batch has no parts"
        return {name: _cut(array, axes[name], start, end) for name, array in answers.items()}

    def assembled(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Answers of consecutive runs as one."""
        axes = self.outputs
        assert axes is not None, "a model that can't batch has no parts"
        return {name: np.concatenate([part[name] for part in parts], axis=axes[name]) for name in parts[0]}

    def count(self, answers: Tensors) -> int | None:
        """Rows that an answer has; None when its outputs disagree."""
        axes = self.outputs
        assert axes is not None, "a model that can't batch has no parts"
        sizes = {array.shape[axes[name]] if array.ndim > axes[name] else -1 for name, array in answers.items()}
        return sizes.pop() if len(sizes) == 1 else None


def layout_of(inputs: Sequence[TensorSpec], outputs: Mapping[str, int] | None, why: str = "") -> Layout:
    """The layout of a model by its specs."""
    return Layout({spec.name: spec.batch_axis for spec in inputs}, outputs, why)


def _cut(array: Tensor, axis: int, start: int, end: int) -> Tensor:
    if axis == 0:
        return array[start:end]
    return array[(slice(None),) * axis + (slice(start, end),)]


def _repeat_last(array: Tensor, axis: int, times: int) -> Tensor:
    last = _cut(array, axis, array.shape[axis] - 1, array.shape[axis])
    return np.concatenate([array, np.repeat(last, times, axis=axis)], axis=axis)

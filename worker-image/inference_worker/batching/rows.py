"""Rows: how requests are put together for one run, and its answers taken apart again.

The batch axis need not be the first one (a recurrent state is often [layers, rows, width]), and an input may have none: such an
input (a sampling rate, say) is shared, so only requests with the same value go together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from inference_worker.engines.engine import Shapes, Stage, Tensor, Tensors, TensorSpec, fixed_axis

Bucket = tuple[object, ...]
"""What requests must have in common to share a run: trailing shapes, shared values, outputs wanted."""

_SHARED_LIMIT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows are, and whether those of several requests may share a run.

    `inputs` and `outputs` map each tensor to its axis of rows; None for one that has none, or where nobody could find out.
    `why` says why each request gets a run of its own; empty where they share. `inputs` are those that each request has, `optional`
    those that it may have.
    """

    inputs: Mapping[str, int | None]
    outputs: Mapping[str, int | None]
    why: str = ""
    optional: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def joins(self) -> bool:
        """Whether rows of several requests may share a run."""
        return not self.why

    @property
    def shared(self) -> list[str]:
        """The inputs that all rows of a run have in common, where requests may share one."""
        return [name for name, axis in self.inputs.items() if axis is None] if self.joins else []

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

        Unique for a request whose shared inputs are too large to compare, and for one that gives what it may leave out: what that
        does to other rows was never tried.
        """
        parts: list[object] = [wanted]
        for name, axis in self.inputs.items():
            array = feeds[name]
            if axis == 0:
                parts.append(array.shape[1:])
            elif axis is not None:
                parts.append(array.shape[:axis] + array.shape[axis + 1 :])
            elif self.why:
                parts.append(array.shape)
            elif array.nbytes <= _SHARED_LIMIT_BYTES and array.dtype.kind != "O":
                parts.append((array.shape, array.tobytes()))
            else:
                parts.append(object())
        if len(feeds) > len(self.inputs):
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

    def shapes(self, feeds: Tensors, rows: int) -> Shapes:
        """The shapes of a run of so many rows like those of `feeds`."""
        axes = self._axes(feeds)
        return tuple((name, _sized(array.shape, axes[name], rows)) for name, array in sorted(feeds.items()))

    def write(self, stage: Stage, members: Sequence[Tensors], rows: int) -> None:
        """Write the `rows` of all members into the places of a run, one after another; the last one again where more go in."""
        for name, place in stage.feeds.items():
            axis = self.inputs[name]
            if axis is None:
                np.copyto(place, members[0][name])
            elif axis == 0:
                parts = [np.ascontiguousarray(feeds[name]) for feeds in members]
                stage.write(name, [*parts, *[parts[-1][-1:]] * (place.shape[0] - rows)])
            else:
                np.concatenate([feeds[name] for feeds in members], axis=axis, out=_cut(place, axis, 0, rows))
                if rows < place.shape[axis]:
                    np.copyto(_cut(place, axis, rows, place.shape[axis]), _cut(place, axis, rows - 1, rows))

    def part(self, feeds: Tensors, start: int, end: int) -> Tensors:
        """Rows start..end of feeds."""
        return {name: _cut(feeds[name], axis, start, end) for name, axis in self._axes(feeds).items()}

    def padded(self, feeds: Tensors, short: int) -> Tensors:
        """Repeat the last row `short` times, for devices that pay dearly for every new shape."""
        axes = self._axes(feeds)
        return {name: feeds[name] if axis is None else _repeat_last(feeds[name], axis, short) for name, axis in axes.items()}

    def _axes(self, feeds: Tensors) -> Mapping[str, int | None]:
        """The axis of each input that is there."""
        if len(feeds) == len(self.inputs):
            return self.inputs
        return {**self.inputs, **{name: axis for name, axis in self.optional.items() if name in feeds}}

    def answer(self, answers: Tensors, start: int, end: int) -> dict[str, Tensor]:
        """Rows start..end of answers; an output without rows goes whole."""
        axes = self.outputs
        return {name: _cut(array, axes[name], start, end) for name, array in answers.items()}

    def assembled(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Answers of consecutive runs as one, for a layout that joins."""
        return {name: np.concatenate([part[name] for part in parts], axis=self.outputs[name] or 0) for name in parts[0]}

    def count(self, answers: Tensors) -> int | None:
        """Rows that an answer has, for a layout that joins; None when its outputs disagree."""
        sizes = {_size(array, self.outputs[name] or 0) for name, array in answers.items()}
        return sizes.pop() if len(sizes) == 1 else None


def layout_of(inputs: Sequence[TensorSpec], outputs: Mapping[str, int | None], why: str = "") -> Layout:
    """The layout of a model by its specs."""
    required, optional = ({spec.name: spec.batch_axis for spec in inputs if spec.optional is wanted} for wanted in (False, True))
    return Layout(required, outputs, why, optional)


def fixed_layout(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], rows: int) -> Layout:
    """The layout of a model that takes exactly so many rows a run."""
    return layout_of(inputs, {spec.name: fixed_axis(spec, rows) for spec in outputs}, f"it takes exactly {rows} rows a run")


def located(inputs: Sequence[TensorSpec], layout: Layout) -> tuple[TensorSpec, ...]:
    """The inputs, with the axes of rows that were found."""
    axes = {**layout.optional, **layout.inputs}
    return tuple(replace(spec, batch_axis=axes[spec.name]) for spec in inputs)


def _sized(shape: tuple[int, ...], axis: int | None, rows: int) -> tuple[int, ...]:
    return shape if axis is None else (*shape[:axis], rows, *shape[axis + 1 :])


def _cut(array: Tensor, axis: int | None, start: int, end: int) -> Tensor:
    if axis == 0:
        return array[start:end]
    if axis is None:
        return array
    return array[(slice(None),) * axis + (slice(start, end),)]


def _size(array: Tensor, axis: int) -> int:
    return array.shape[axis] if array.ndim > axis else -1


def _repeat_last(array: Tensor, axis: int, times: int) -> Tensor:
    last = _cut(array, axis, array.shape[axis] - 1, array.shape[axis])
    return np.concatenate([array, np.repeat(last, times, axis=axis)], axis=axis)

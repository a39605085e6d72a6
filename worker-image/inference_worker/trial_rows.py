"""Rows that a model is tried with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inference_worker.engines.engine import Tensor, Tensors, TensorSpec, zeros_of


def sample_of(inputs: Sequence[TensorSpec], rows: int, length: int = 1) -> dict[str, Tensor]:
    """Zeros that fit the signature, with `rows` rows; other free sizes are `length`. What may be left out is."""
    return {spec.name: zeros_of(spec, rows, length) for spec in inputs if not spec.optional}


@dataclass(frozen=True, slots=True)
class Values:
    """What rows are filled with: real numbers of a normal distribution, from 0 to 1 without a `scale`; whole ones below `top`.

    Whole numbers begin at `low` where their kind has any below zero.
    """

    scale: float | None
    top: int
    low: int = 0

    def drawn(self, random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Tensor:
        """An array of them."""
        if dtype.kind in "biu":
            low, top = self.low if dtype.kind == "i" else 0, 2 if dtype.kind == "b" else self.top
            return random.integers(low, top, shape).astype(dtype)
        return (random.random(shape) if self.scale is None else random.standard_normal(shape) * self.scale).astype(dtype)


# Small values that any embedding or mask takes; then values that most vocabularies have; then wide ones.
NARROW, WIDE, WIDER = Values(None, 2), Values(20.0, 16), Values(4000.0, 100)

# What counts from the end: the end of a row, or that of its neighbour.
SIGNED = Values(None, 2, low=-2)


def different(sample: Tensors, inputs: Sequence[TensorSpec], seed: int, values: Values) -> Tensors:
    """Another row of the same shape. Shared inputs stay as they are."""
    random = np.random.default_rng(seed)
    other: dict[str, Tensor] = dict(sample)
    for spec in inputs:
        array = sample.get(spec.name)
        if array is None or spec.batch_axis is None or not array.size:
            continue
        if array.dtype.kind == "O":
            other[spec.name] = np.full(array.shape, ("ab", "c", "d e f")[seed % 3], dtype=object)
        else:
            other[spec.name] = values.drawn(random, array.shape, array.dtype)
    return other


def shared_ones(sample: Tensors, inputs: Sequence[TensorSpec]) -> Tensors:
    """The same with ones where all rows share an input: zeros leave off what it switches on."""
    shared = [spec.name for spec in inputs if spec.batch_axis is None and spec.name in sample and spec.dtype.kind != "O"]
    return {**sample, **{name: np.ones_like(sample[name]) for name in shared}} if shared else sample

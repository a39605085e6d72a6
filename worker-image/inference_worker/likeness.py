"""Whether two answers are the same but for rounding."""

from dataclasses import dataclass

import numpy as np

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, Tensors


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two answers for one row may differ: a share of the feature's largest value, and one of the whole output's.

    A feature is a place on the last axis. What small features mix would not show beside a large one otherwise.
    """

    feature: float
    output: float


ROUNDING = Tolerance(1e-4, 4e-6)
"""When equally many rows ran with it."""

WIDE_ROUNDING = Tolerance(1e-3, 4e-5)
"""The same for wide values, where sums cancel more."""

KERNELS = Tolerance(5e-2, 5e-3)
"""When another number of rows ran: kernels round differently for it, and some nets make much of that."""

_SMALLEST = 1e-6
"""An output whose largest value is below it is compared as if it were so large."""

_HALVES = 2e-2
"""The least for numbers of 16 bits, of either share."""


def differing(one: Tensors, other: Tensors, tolerance: Tolerance) -> str | None:
    """The first output of `one` that differs in the other."""
    return next((name for name, array in one.items() if not alike(array, other[name], tolerance)), None)


def alike(one: Tensor, other: Tensor, tolerance: Tolerance) -> bool:
    """Whether two answers are the same but for rounding."""
    if one.shape != other.shape:
        return False
    if not datatypes.is_real(one):
        return bool((one == other).all())
    least = 0.0 if one.dtype.itemsize >= 4 else _HALVES
    # Whole answers of doubles may have been computed in floats.
    one, other = one.astype(np.float64), other.astype(np.float64)
    sizes = np.abs(np.where(np.isfinite(one), one, 0.0))
    of_feature = sizes.max(axis=tuple(range(one.ndim - 1)), keepdims=True, initial=0.0) if one.ndim > 1 else sizes
    of_output = max(float(sizes.max(initial=0.0)), _SMALLEST)
    allowed = max(tolerance.feature, least) * of_feature + max(tolerance.output, least) * of_output
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        return bool((same | (np.abs(one - other) <= allowed)).all())

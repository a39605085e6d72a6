"""How alike two frames are: the structural similarity of Wang, Bovik, Sheikh and Simoncelli (2004), at full resolution.

A Gaussian window of 11 by 11 pixels with a deviation of 1.5, K1 = 0.01, K2 = 0.03, the mean over all windows that lie inside; of
several planes (channels, rows) the least. It is not computed at a lower resolution: shrinking averages away noise and small things,
so the value would be too high. Here it is never above that of the whole frames, whatever it is below:

* The range of UINT8 is 255. Other types say nothing of theirs, so each plane counts from its own least value to its largest, or
  less. A smaller range and a shift towards zero only lower the value.
* Where structures contradict each other, the window counts as if it were equally light: less light would bring it nearer to 0.
* What rounding may add is taken off.
"""

import math
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor

WINDOW = 11
_DEVIATION = 1.5
_C1, _C2 = 0.01**2, 0.03**2
_CHANNELS = (1, 3, 4)
_MOST_VALUES = 1 << 23
"""A frame of 1920 by 1080 in colour has 6.2 million; comparing more takes longer than most models."""

_STRIP_ROWS = 64
"""Rows of windows that are compared at a time: they stay in the processor's cache, and the first that differ end the comparison."""

_ROUNDING = 1e-4

_MOST_OF_IT = (0.01, 0.99)
_WIDTHS = 2.0
"""A range is at most so often that of most values: few others, a broken pixel say, must not make all the rest look alike."""

_FAR = 8.0
"""Of values further away than so many ranges single precision would know too little."""

Plane = npt.NDArray[np.float32]


class Measured(msgspec.Struct, frozen=True):
    """One plane of a frame, from 0 to 1, with mean and variance of each window; `least` and `range` bring others to the same scale.

    A plane of one value has a range of 0 and nothing else: only the same plane is like it.
    """

    least: float
    range: float
    values: Plane
    means: Plane
    variances: Plane


class Frame(msgspec.Struct, frozen=True):
    """What an answer was computed from, ready to be compared with."""

    planes: tuple[Measured, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(plane.values.nbytes + plane.means.nbytes + plane.variances.nbytes for plane in self.planes)


def planes_of(array: Tensor) -> Tensor | None:
    """A view of an image's planes, shape (planes, rows, columns); None for what is no image.

    Images have 1, 3 or 4 channels, before their rows and columns or behind them, and may be several.
    """
    if array.ndim not in (3, 4) or not (array.dtype.kind in "uif" or datatypes.is_real(array)) or array.size > _MOST_VALUES:
        return None
    *_, first, second, third = array.shape
    if third in _CHANNELS and min(first, second) >= WINDOW:
        array = np.moveaxis(array, -1, -3)
    elif first not in _CHANNELS or min(second, third) < WINDOW:
        return None
    return array.reshape(-1, *array.shape[-2:]) if array.size else None


def measured(planes: Tensor) -> Frame | None:
    """A frame to compare with; None where a plane has no range that the formula could count by."""
    found = []
    for plane in planes:
        scale = _scale(plane)
        if scale is None:
            return None
        values = _scaled(plane, *scale)
        means = _filtered(values)
        variances = _filtered(values * values) - means * means
        found.append(Measured(*scale, values, means, variances))
    return Frame(tuple(found))


def _scale(plane: Tensor) -> tuple[float, float] | None:
    """The least value and the range of a plane; None where there is none: NaN and infinity, or a few values far from all others."""
    if plane.dtype == np.uint8:
        return 0.0, 255.0
    with np.errstate(invalid="ignore"):
        least, low, high, most = np.quantile(plane.astype(np.float64), (0.0, *_MOST_OF_IT, 1.0)).tolist()
    whole = most - least
    if not math.isfinite(whole):
        return None
    extent = min(whole, _WIDTHS * (high - low))
    return (least, extent) if whole <= _FAR * extent else None


def similarity(frame: Frame, planes: Tensor, enough: float) -> float:
    """The similarity of a frame to the one that is kept, or something below `enough` where it is below that."""
    if planes.shape != (len(frame.planes), *frame.planes[0].values.shape):
        return -1.0
    least = 1.0
    # Another frame may hold whatever there is, which ends as NaN, and that is not enough.
    with np.errstate(over="ignore", invalid="ignore"):
        for known, plane in zip(frame.planes, planes, strict=True):
            least = min(least, _of_plane(known, plane, enough))
            if not least >= enough:
                break
    return least


def _of_plane(known: Measured, plane: Tensor, enough: float) -> float:
    if not known.range:
        return 1.0 if bool((plane == known.least).all()) else -1.0
    windows, total = known.means.size, 0.0
    left = windows
    for strip in _strips(known, plane):
        total += float(strip.sum(dtype=np.float64))
        left -= strip.size
        # Were all other windows the same: NaN, too, ends here.
        if not (total + left) / windows - _ROUNDING >= enough:
            return -1.0
    return total / windows - _ROUNDING


def _strips(known: Measured, plane: Tensor) -> Iterator[Plane]:
    """The similarity of each window, some rows at a time."""
    for top in range(0, len(known.means), _STRIP_ROWS):
        bottom = min(top + _STRIP_ROWS, len(known.means))
        inside = slice(top, bottom + WINDOW - 1)
        values = _scaled(plane[inside], known.least, known.range)
        off = values - known.values[inside]
        yield _similar(known.means[top:bottom], known.variances[top:bottom], values, off)


def _similar(means: Plane, variances: Plane, values: Plane, off: Plane) -> Plane:
    # By differences: what is alike then cancels nothing that single precision would miss.
    other = _filtered(values)
    apart = other - means
    spread = np.maximum(_filtered(off * off) - apart * apart, 0.0)
    other_variance = np.maximum(_filtered(values * values) - other * other, 0.0)
    light = 1.0 - apart * apart / (means * means + other * other + np.float32(_C1))
    structure = 1.0 - spread / (np.maximum(variances, 0.0) + other_variance + np.float32(_C2))
    similar = np.multiply(light, structure, dtype=np.float32)
    return np.minimum(similar, structure, out=similar, where=structure < 0)


def _scaled(plane: Tensor, least: float, extent: float) -> Plane:
    if plane.dtype.itemsize > 2 and plane.dtype != np.float32:
        # Single precision does not hold them until they are scaled.
        return ((plane.astype(np.float64) - least) / (extent or 1.0)).astype(np.float32)
    values = plane.astype(np.float32)
    values -= np.float32(least)
    values /= np.float32(extent or 1.0)
    return values


_WEIGHTS = np.exp(-0.5 * ((np.arange(WINDOW) - WINDOW // 2) / _DEVIATION) ** 2)
_TAPS: Plane = (_WEIGHTS / _WEIGHTS.sum()).astype(np.float32)


def _filtered(values: Plane) -> Plane:
    """The mean of each window that lies inside."""
    return _along(0, _along(1, values))


def _along(axis: int, values: Plane) -> Plane:
    """The weighted mean of windows along one axis; both sides of a window weigh the same."""
    half, size = WINDOW // 2, values.shape[axis] - WINDOW + 1

    def part(tap: int) -> Plane:
        inside = slice(tap, tap + size)
        return values[inside] if axis == 0 else values[:, inside]

    mean: Plane = part(half) * _TAPS[half]
    pair = np.empty_like(mean)
    for tap in range(half):
        np.add(part(tap), part(WINDOW - 1 - tap), out=pair)
        pair *= _TAPS[tap]
        mean += pair
    return mean

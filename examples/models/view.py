"""What a camera behind a windscreen sees of a flat, curved road: pixels to metres and back.

A pixel below the horizon is a point on the ground: the usual pinhole camera over a plane, with
the road's curve as a parabola (E. Dickmanns' clothoid, cut after the quadratic term). All arrays
are on a grid that is ``OVERSAMPLING`` times finer than the image, so that thin lines are shaded
by the part of a pixel that they cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

HEIGHT = 128
WIDTH = 256
OVERSAMPLING = 2
FARTHEST_M = 400.0
# A power of two, so that a bit mask wraps a coordinate.
TEXTURE_CELLS = 256


@dataclass(frozen=True, kw_only=True)
class Camera:
    """Where the camera is and looks; image lengths in pixels of the finished image."""

    horizon_px: float
    centre_px: float
    roll: float
    focal_px: float
    height_m: float
    offset_m: float
    yaw: float
    curve_per_m: float

    def project(self, lateral_m: float, ahead_m: float) -> tuple[float, float]:
        """Return the (column, row) in pixels of a point on the ground."""
        bend = self.curve_per_m * ahead_m**2 / 2
        across = (lateral_m - self.offset_m + bend - self.yaw * ahead_m) / ahead_m
        column = self.centre_px + self.focal_px * across
        drop = self.focal_px * self.height_m / ahead_m
        return column, self.horizon_px + drop + self.roll * (column - self.centre_px)


@dataclass(frozen=True, kw_only=True)
class View:
    """The ground under each pixel of the fine grid, [rows,columns].

    ``ahead_m`` and ``lateral_m`` (from the road's middle, right is positive) mean nothing where
    ``ground`` is false; ``rows_px`` [rows,1] and ``columns_px`` [1,columns] are image coordinates.
    """

    camera: Camera
    rows_px: NDArray[np.float32]
    columns_px: NDArray[np.float32]
    ground: NDArray[np.bool_]
    ahead_m: NDArray[np.float32]
    lateral_m: NDArray[np.float32]


def place_camera(random: Generator) -> Camera:
    """Draw a camera: a car's windscreen to a lorry's, somewhere in the middle of the road."""
    return Camera(
        horizon_px=random.uniform(36, 58),
        centre_px=WIDTH / 2 + random.uniform(-20, 20),
        roll=random.normal(0, 0.012),
        focal_px=random.uniform(170, 240),
        height_m=random.uniform(1.2, 2.0),
        offset_m=random.uniform(-2.2, 2.2),
        yaw=random.normal(0, 0.02),
        curve_per_m=random.normal(0, 0.003),
    )


def look(camera: Camera) -> View:
    """Cast each pixel of the fine grid onto the ground."""
    rows, columns = _middles_px(HEIGHT)[:, None], _middles_px(WIDTH)[None, :]
    across = columns - np.float32(camera.centre_px)
    drop = rows - np.float32(camera.horizon_px) - np.float32(camera.roll) * across
    nearest_drop = camera.focal_px * camera.height_m / FARTHEST_M
    ground = drop > nearest_drop
    ahead = np.float32(camera.focal_px * camera.height_m) / np.maximum(drop, nearest_drop)
    lateral = (
        across * ahead / np.float32(camera.focal_px)
        + np.float32(camera.offset_m)
        + np.float32(camera.yaw) * ahead
        - np.float32(camera.curve_per_m / 2) * ahead**2
    )
    return View(
        camera=camera,
        rows_px=rows,
        columns_px=columns,
        ground=ground,
        ahead_m=ahead.astype(np.float32),
        lateral_m=lateral.astype(np.float32),
    )


def cloud(random: Generator, roughness: float) -> NDArray[np.float32]:
    """Pick one of a few textures [256,256] that tile, with mean 0, deviation 1, spectrum 1/f^r.

    The larger ``roughness``, the larger the blotches.
    """
    # Drawing textures anew for each image would cost a third of the time; a random shift of one
    # of four looks as good.
    shift = tuple(random.integers(TEXTURE_CELLS, size=2))
    return np.roll(_texture(int(random.integers(4)), roughness), shift, axis=(0, 1))


@cache
def _texture(number: int, roughness: float) -> NDArray[np.float32]:
    """Return a texture by R. Voss's spectral synthesis: white noise under a 1/f^r filter."""
    random = np.random.default_rng([number, round(100 * roughness)])
    white = np.fft.rfft2(random.standard_normal((TEXTURE_CELLS, TEXTURE_CELLS)))
    frequency = np.hypot(np.fft.rfftfreq(TEXTURE_CELLS), np.fft.fftfreq(TEXTURE_CELLS)[:, None])
    frequency[0, 0] = np.inf
    grown = np.fft.irfft2(white / frequency**roughness)
    texture: NDArray[np.float32] = (grown / grown.std()).astype(np.float32)
    return texture


def lay(texture: NDArray[np.float32], across: NDArray[np.float32], along: NDArray[np.float32]) -> NDArray[np.float32]:
    """Look a tiling texture up at coordinates counted in its cells."""
    columns = across.astype(np.int32) & (TEXTURE_CELLS - 1)
    rows = along.astype(np.int32) & (TEXTURE_CELLS - 1)
    laid: NDArray[np.float32] = texture[rows, columns]
    return laid


def shrink(fine: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average [rows,columns,...] of the fine grid to the image's [128,256,...]."""
    blocks = fine.reshape(HEIGHT, OVERSAMPLING, WIDTH, OVERSAMPLING, *fine.shape[2:])
    mean: NDArray[np.float32] = blocks.mean(axis=(1, 3), dtype=np.float32)
    return mean


def _middles_px(length_px: int) -> NDArray[np.float32]:
    steps = np.arange(length_px * OVERSAMPLING) + 0.5
    return (steps / OVERSAMPLING).astype(np.float32)

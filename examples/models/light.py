"""Shadows, daylight, dusk and night, haze, and what a cheap camera makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from examples.models.view import HEIGHT, WIDTH, View, cloud, lay

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    Picture = NDArray[np.float32]

NIGHT_SHARE = 0.12
STEPS = 255


def cast_shadows(picture: Picture, view: View, random: Generator) -> None:
    """Darken bands of the ground, as trees and bridges do; their bright gaps look like paint."""
    if random.random() < 0.45:
        return
    ragged = lay(cloud(random, 1.3), view.lateral_m * 10, view.ahead_m * 10)
    slant = random.uniform(-1.5, 1.5)
    along = view.ahead_m + slant * view.lateral_m
    depth = random.uniform(0.35, 0.7)
    for start in random.uniform(2, 50, random.integers(1, 5)):
        width = random.uniform(0.4, 6)
        within = np.abs(along - start) < width / 2 + random.uniform(0, 0.6) * ragged
        picture[view.ground & within] *= np.float32(depth)


def spread_haze(picture: Picture, view: View, random: Generator) -> None:
    """Pale the ground with its distance."""
    thickness = random.uniform(0, 1) ** 3 / 60
    haze = (1 - np.exp(-view.ahead_m * np.float32(thickness))) * view.ground
    picture += (0.8 - picture) * haze[..., None]


def illuminate(picture: Picture, view: View, random: Generator) -> None:
    """Apply day or night light, a slant of light over the picture and a tint."""
    if random.random() < NIGHT_SHARE:
        beam = np.exp(-((view.lateral_m - view.camera.offset_m) ** 2) / 30 - view.ahead_m / 18)
        lit = np.where(view.ground, 0.1 + 0.9 * beam, 0.06)
    else:
        slope = random.normal(0, 0.25, 2)
        lit = 1 + slope[0] * (view.columns_px / WIDTH - 0.5) + slope[1] * (view.rows_px / HEIGHT - 0.5)
    tint = 1 + random.normal(0, 0.04, 3)
    picture *= lit.astype(np.float32)[..., None] * tint.astype(np.float32)


def expose(image: Picture, random: Generator) -> Picture:
    """Return the image [128,256,3] as a camera saves it: gain, contrast, blur, noise, 8 bits."""
    mean = max(float(image.mean()), 1e-3)
    gain = (random.uniform(0.28, 0.52) / mean) ** random.uniform(0.3, 1)
    exposed = np.clip(image * gain, 0, 1.2) ** random.uniform(0.8, 1.25)
    glare = random.uniform(0, 1) ** 4 * 0.35
    exposed = exposed * (1 - glare) + glare
    blur = random.uniform(0, 0.8)
    wider = np.pad(exposed, ((1, 1), (1, 1), (0, 0)), mode="edge")
    beside = wider[:-2, 1:-1] + wider[2:, 1:-1] + wider[1:-1, :-2] + wider[1:-1, 2:]
    exposed = (1 - blur) * exposed + blur * beside / 4
    grain = random.uniform(0.004, 0.035)
    exposed = exposed + grain * random.standard_normal(image.shape) * np.sqrt(exposed + 0.1)
    saved: Picture = (np.round(np.clip(exposed, 0, 1) * STEPS) / STEPS).astype(np.float32)
    return saved

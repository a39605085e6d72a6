"""Everything in a road image that is not the road: sky, land, roadside and traffic.

Much of it is there to be mistaken for lane markings: guard rails, kerbs, posts, licence plates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from examples.models.view import HEIGHT, OVERSAMPLING, WIDTH, View, cloud, lay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    Picture = NDArray[np.float32]
    Colour = NDArray[np.floating] | Sequence[float]

LANDS = ((0.25, 0.38, 0.15), (0.45, 0.38, 0.25), (0.55, 0.5, 0.42), (0.35, 0.4, 0.2))
SNOW = (0.82, 0.85, 0.9)
SNOW_SHARE = 0.07
BODIES = ((0.75, 0.75, 0.77), (0.08, 0.08, 0.1), (0.5, 0.08, 0.08), (0.12, 0.2, 0.45), (0.9,) * 3)


def draw_sky(view: View, random: Generator) -> Picture:
    """Return a fresh picture [rows,columns,3] filled with a sky that pales to the horizon."""
    height = np.clip(1 - view.rows_px / view.camera.horizon_px, 0, 1)[..., None]
    top = np.array([0.3, 0.5, 0.8]) * random.uniform(0.6, 1.1)
    low = np.full(3, random.uniform(0.65, 0.95))
    plain = (low + (top - low) * height**0.7 * random.uniform(0, 1)).astype(np.float32)
    clouds = lay(cloud(random, 1.8), view.columns_px * 1.5, view.rows_px * 3)
    sky: Picture = plain + np.float32(random.uniform(0, 0.1)) * clouds[..., None]
    return np.clip(sky, 0, 1)


def draw_land(picture: Picture, view: View, random: Generator) -> None:
    """Fill the ground with grass, earth or snow."""
    snowy = random.random() < SNOW_SHARE
    colour = np.array(SNOW if snowy else LANDS[random.integers(len(LANDS))])
    colour *= 1 + random.normal(0, 0.02 if snowy else 0.06, 3)
    fade = 1 / (1 + view.ahead_m / 40)
    grain = lay(cloud(random, 0.8), view.lateral_m * 14, view.ahead_m * 14)
    shade = 1 + np.float32(random.uniform(0.1, 0.3)) * fade * grain
    shade += 0.15 * lay(cloud(random, 1.5), view.lateral_m * 2, view.ahead_m)
    picture[view.ground] = shade[view.ground][:, None] * colour.astype(np.float32)


def draw_skyline(picture: Picture, view: View, random: Generator) -> None:
    """Put hills or woods, then a few houses, on the horizon."""
    camera = view.camera
    ridge = np.cumsum(random.normal(0, 0.8, WIDTH * OVERSAMPLING))
    ridge = np.abs(ridge - ridge.mean()) * random.uniform(0.2, 0.7) + random.uniform(1, 8)
    rise = camera.horizon_px + camera.roll * (view.columns_px - camera.centre_px) - view.rows_px
    wood = ~view.ground & (rise < ridge[None, :])
    colour = np.array([0.2, 0.28, 0.22]) * random.uniform(0.5, 1.6)
    picture[wood] = colour.astype(np.float32)
    for _ in range(random.poisson(1.2)):
        left, width = random.uniform(-20, WIDTH), random.uniform(10, 50)
        top = camera.horizon_px - random.uniform(6, 28)
        wall = random.uniform(0.2, 0.85) * np.array([1, 0.95, 0.9])
        fill_box(picture, (left, top, left + width, camera.horizon_px + 1), wall)
        for column in np.arange(left + 3, left + width - 3, 6):
            fill_box(picture, (column, top + 3, column + 2.5, top + 7), wall * 0.4)


def draw_roadside(picture: Picture, view: View, edge_m: float, random: Generator) -> None:
    """Add kerbs, guard rails, posts, trees and bright litter beside the pavement."""
    for side in (-1.0, 1.0):
        if random.random() < 0.25:
            draw_kerb(picture, view, side, edge_m, random)
        if random.random() < 0.35:
            draw_rail(picture, view, side * (edge_m + random.uniform(0.4, 2)), random)
        for ahead in sorted(random.uniform(6, 90, random.poisson(4)), reverse=True):
            lateral = side * (edge_m + random.uniform(1, 12))
            draw_upright(picture, view, (lateral, ahead), random)


def draw_kerb(picture: Picture, view: View, side: float, edge_m: float, random: Generator) -> None:
    """Lay a kerb stone and a pavement for walkers along one edge."""
    beyond = side * view.lateral_m - edge_m
    walk = view.ground & (beyond > 0) & (beyond < random.uniform(1, 3))
    picture[walk] = np.float32(random.uniform(0.3, 0.6))
    stone = view.ground & (beyond > 0) & (beyond < random.uniform(0.15, 0.35))
    joint = (view.ahead_m % 1.0) < 0.08
    picture[stone] = np.float32(random.uniform(0.45, 0.75))
    picture[stone & joint] *= 0.7


def draw_rail(picture: Picture, view: View, lateral_m: float, random: Generator) -> None:
    """Stand a guard rail on posts, parallel to the road.

    A ray through a column meets the rail where bend/2 z^2 - slope z + lateral = 0; the smaller
    root, in the form that does not cancel, is the visible one.
    """
    camera = view.camera
    slope = (view.columns_px - camera.centre_px) / camera.focal_px + camera.yaw
    place = lateral_m - camera.offset_m
    root = slope**2 - 2 * camera.curve_per_m * place
    divisor = slope + np.sign(place) * np.sqrt(np.maximum(root, 0))
    seen = (root > 0) & (np.sign(place) * divisor > 0.02)
    ahead = np.where(seen, 2 * place / np.where(seen, divisor, 1), 1e3)
    seen &= (ahead > 2) & (ahead < 120)
    drop = view.rows_px - camera.horizon_px - camera.roll * (view.columns_px - camera.centre_px)
    height = camera.height_m - drop * ahead / camera.focal_px
    band = random.uniform(0.12, 0.32)
    post = seen & (height > 0) & (height < 0.7) & (ahead % random.uniform(2, 4) < 0.15)
    picture[post] = np.float32(random.uniform(0.25, 0.5))
    beam = seen & (np.abs(height - 0.65) < band / 2)
    picture[beam] = np.float32(random.uniform(0.5, 0.9))


def draw_upright(picture: Picture, view: View, place_m: tuple[float, float], random: Generator) -> None:
    """Plant a tree, a reflector post or a sign at (lateral, ahead)."""
    column, foot = view.camera.project(*place_m)
    metre = view.camera.focal_px / place_m[1]
    kind = random.choice(["tree", "post", "sign"], p=[0.5, 0.3, 0.2])
    if kind == "tree":
        crown, high = random.uniform(0.8, 2.2) * metre, random.uniform(3, 7) * metre
        fill_box(
            picture,
            (column - 0.15 * metre, foot - high, column + 0.15 * metre, foot),
            np.array([0.25, 0.2, 0.15]),
        )
        green = np.array([0.16, 0.27, 0.1]) * random.uniform(0.6, 1.5)
        for _ in range(6):
            middle = (column + random.normal(0, 0.4) * crown, foot - high + random.normal(0, crown))
            fill_disc(picture, middle, crown * random.uniform(0.5, 0.9), green)
            green = green * random.uniform(0.85, 1.15)
        return
    width = 0.07 * metre
    fill_box(picture, (column - width, foot - metre, column + width, foot), (0.9, 0.9, 0.88))
    fill_box(
        picture,
        (column - width, foot - 0.8 * metre, column + width, foot - 0.65 * metre),
        (0.1, 0.1, 0.1),
    )
    if kind == "sign":
        plate = random.uniform(0.3, 0.9, 3)
        fill_box(
            picture,
            (column - 0.5 * metre, foot - 2.6 * metre, column + 0.5 * metre, foot - 1.6 * metre),
            plate,
        )


def draw_traffic(picture: Picture, view: View, middles_m: Sequence[float], random: Generator) -> NDArray[np.bool_]:
    """Drive a few cars ahead, far ones first, and return what they hide [rows,columns]."""
    hidden = np.zeros(view.ground.shape, dtype=np.bool_)
    for ahead in sorted(random.uniform(7, 60, random.poisson(1.3)), reverse=True):
        lateral = float(random.choice(middles_m)) + random.normal(0, 0.25)
        column, foot = view.camera.project(lateral, ahead)
        draw_car(picture, hidden, (column, foot), view.camera.focal_px / ahead, random)
    return hidden


def draw_car(
    picture: Picture,
    hidden: NDArray[np.bool_],
    place_px: tuple[float, float],
    metre: float,
    random: Generator,
) -> None:
    """Draw a car from behind whose wheels stand at (column, row); ``metre`` is in pixels."""
    colour = np.array(BODIES[random.integers(len(BODIES))]) * random.uniform(0.7, 1)
    parts: list[tuple[float, float, float, float, Colour]] = [
        (-0.95, 0.95, -0.08, 0.25, (0.04, 0.04, 0.05)),
        (-0.88, -0.6, 0, 0.4, (0.07, 0.07, 0.07)),
        (0.6, 0.88, 0, 0.4, (0.07, 0.07, 0.07)),
        (-0.9, 0.9, 0.25, 0.95, colour),
        (-0.72, 0.72, 0.9, 1.45, colour * 0.9),
        (-0.62, 0.62, 0.98, 1.35, (0.12, 0.14, 0.18)),
        (-0.88, -0.62, 0.7, 0.85, (0.75, 0.1, 0.08)),
        (0.62, 0.88, 0.7, 0.85, (0.75, 0.1, 0.08)),
        (-0.26, 0.26, 0.45, 0.57, (0.9, 0.9, 0.85)),
    ]
    column, foot = place_px
    for left, right, low, high, paint in parts:
        box = (
            column + left * metre,
            foot - high * metre,
            column + right * metre,
            foot - low * metre,
        )
        fill_box(picture, box, paint)
        rows, columns = cells(box)
        hidden[rows, columns] = True


def cells(box_px: tuple[float, float, float, float]) -> tuple[slice, slice]:
    """Return the fine grid's rows and columns inside (left, top, right, bottom), clipped."""
    left, top, right, bottom = (round(edge * OVERSAMPLING) for edge in box_px)
    tall, wide = HEIGHT * OVERSAMPLING, WIDTH * OVERSAMPLING
    rows = slice(min(max(top, 0), tall), min(max(bottom, 0), tall))
    return rows, slice(min(max(left, 0), wide), min(max(right, 0), wide))


def fill_box(picture: Picture, box_px: tuple[float, float, float, float], colour: Colour) -> None:
    """Fill (left, top, right, bottom) with one colour."""
    picture[cells(box_px)] = np.asarray(colour, dtype=np.float32)


def fill_disc(picture: Picture, middle_px: tuple[float, float], radius_px: float, colour: Colour) -> None:
    """Fill a disc around (column, row) with one colour."""
    column, row = middle_px
    left, top = column - radius_px, row - radius_px
    rows, columns = cells((left, top, column + radius_px, row + radius_px))
    window = picture[rows, columns]
    down = (np.arange(rows.start, rows.stop) / OVERSAMPLING - row)[:, None]
    across = (np.arange(columns.start, columns.stop) / OVERSAMPLING - column)[None, :]
    window[down**2 + across**2 < radius_px**2] = np.asarray(colour, dtype=np.float32)

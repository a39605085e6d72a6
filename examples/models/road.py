"""Draw road images whose lane markings are known: the data set of the lane model.

One seed and one number make one image. A marking is a target where it is at least one pixel
wide, covers half of the pixel and is not hidden; worn or shaded paint still is a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from examples.models import light, scenery
from examples.models.view import View, cloud, lay, look, place_camera, shrink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.random import Generator
    from numpy.typing import NDArray

COVERED = 0.5
NARROWEST_TARGET_PX = 1.0
WHITE = (0.97, 0.97, 0.95)
YELLOW = (0.95, 0.74, 0.22)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One painted line along the road; a gap of zero makes it solid."""

    lateral_m: float
    width_m: float
    dash_m: float
    gap_m: float
    phase_m: float
    colour: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Road:
    """The road's cross-section; the paved part reaches ``shoulder_m`` beyond the lanes."""

    lanes: int
    lane_m: float
    shoulder_m: float
    lines: tuple[Line, ...]

    @property
    def edge_m(self) -> float:
        """Return the distance from the road's middle to the end of the pavement."""
        return self.lanes * self.lane_m / 2 + self.shoulder_m

    @property
    def middles_m(self) -> tuple[float, ...]:
        """Return where the lanes' middles are."""
        return tuple((lane + 0.5 - self.lanes / 2) * self.lane_m for lane in range(self.lanes))


def examples(seed: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return images [count,3,128,256] with values 0..1 and masks [count,1,128,256] of 0 and 1."""
    return stack(seed, range(count))


def stack(seed: int, numbers: Iterable[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the images and masks with the given numbers, as ``examples`` does."""
    drawn = [draw_example(seed, number) for number in numbers]
    images = np.stack([image for image, _ in drawn])
    return images, np.stack([mask for _, mask in drawn])


def draw_example(seed: int, number: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return one image [3,128,256] and its mask [1,128,256]."""
    random = np.random.default_rng([seed, number])
    view = look(place_camera(random))
    road = plan_road(random)
    picture = scenery.draw_sky(view, random)
    scenery.draw_land(picture, view, random)
    scenery.draw_skyline(picture, view, random)
    draw_pavement(picture, view, road, random)
    target = draw_lines(picture, view, road, random)
    light.cast_shadows(picture, view, random)
    light.spread_haze(picture, view, random)
    scenery.draw_roadside(picture, view, road.edge_m, random)
    hidden = scenery.draw_traffic(picture, view, road.middles_m, random)
    light.illuminate(picture, view, random)
    covered = shrink((target & ~hidden).astype(np.float32)) >= COVERED
    image = light.expose(shrink(picture), random)
    return image.transpose(2, 0, 1).copy(), covered[None].astype(np.float32)


def plan_road(random: Generator) -> Road:
    """Draw the number of lanes and what is painted between them."""
    lanes = int(random.choice([1, 2, 3, 4], p=[0.1, 0.4, 0.35, 0.15]))
    lane_m = random.uniform(2.9, 3.8)
    lines: list[Line] = []
    for boundary in range(lanes + 1):
        lateral = (boundary - lanes / 2) * lane_m
        outer = boundary in {0, lanes}
        lines += plan_boundary(lateral, random, outer=outer)
    return Road(lanes=lanes, lane_m=lane_m, shoulder_m=random.uniform(0.3, 2.2), lines=tuple(lines))


def plan_boundary(lateral_m: float, random: Generator, *, outer: bool) -> list[Line]:
    """Return no line, one line or two for one boundary between lanes or of the road."""
    kinds = ["none", "solid", "dashed", "double"]
    kind = random.choice(kinds, p=[0.1, 0.75, 0.15, 0] if outer else [0, 0.15, 0.7, 0.15])
    if kind == "none":
        return []
    width = random.uniform(0.11, 0.24)
    yellow = random.random() < (0.15 if outer else 0.3)
    line = Line(
        lateral_m=lateral_m,
        width_m=width,
        dash_m=random.uniform(2, 6),
        gap_m=random.uniform(2.5, 9) if kind == "dashed" else 0,
        phase_m=random.uniform(0, 10),
        colour=YELLOW if yellow else WHITE,
    )
    if kind != "double":
        return [line]
    twin = {**vars(line), "lateral_m": lateral_m + width + random.uniform(0.1, 0.2)}
    return [line, Line(**twin)]


def draw_pavement(picture: NDArray[np.float32], view: View, road: Road, random: Generator) -> None:
    """Paint asphalt or concrete with grain, wheel tracks and tar seams, which are not lines."""
    grey = random.uniform(0.2, 0.55)
    colour = grey * (1 + random.normal(0, 0.03, 3))
    fade = 1 / (1 + view.ahead_m / 25)
    grain = cloud(random, 0.9)
    shade = 1 + 0.16 * fade * lay(grain, view.lateral_m * 30, view.ahead_m * 30)
    shade += 0.07 * lay(cloud(random, 1.6), view.lateral_m * 9, view.ahead_m * 1.2)
    for middle in road.middles_m:
        for wheel in (-0.8, 0.8):
            track = np.exp(-(((view.lateral_m - np.float32(middle + wheel)) / 0.35) ** 2))
            shade += np.float32(random.normal(0, 0.06)) * track
    for _ in range(random.poisson(1.5)):
        wobble = 0.1 * lay(grain, view.ahead_m * 4, view.ahead_m * 0)
        seam = random.uniform(-road.edge_m, road.edge_m)
        shade[np.abs(view.lateral_m - seam - wobble) < random.uniform(0.03, 0.09)] *= 0.6
    paved = view.ground & (np.abs(view.lateral_m) < road.edge_m)
    picture[paved] = shade[paved][:, None] * colour.astype(np.float32)


def draw_lines(picture: NDArray[np.float32], view: View, road: Road, random: Generator) -> NDArray[np.bool_]:
    """Paint the lines with their wear and return where they are targets, on the fine grid."""
    target = np.zeros(view.ground.shape, dtype=np.bool_)
    worn = lay(cloud(random, 1.0), view.lateral_m * 40, view.ahead_m * 20)
    wear = np.float32(random.uniform(0, 0.16))
    opacity = np.clip(np.float32(random.uniform(0.75, 1)) - wear * worn, 0.15, 1)
    brightness = np.float32(random.uniform(0.75, 1))
    for line in road.lines:
        painted = view.ground & (np.abs(view.lateral_m - line.lateral_m) < line.width_m / 2)
        if line.gap_m:
            place = (view.ahead_m + line.phase_m) % (line.dash_m + line.gap_m)
            painted &= place < line.dash_m
        paint = brightness * np.array(line.colour, dtype=np.float32)
        share = opacity[painted][:, None]
        picture[painted] = share * paint + (1 - share) * picture[painted]
        wide_px = line.width_m * view.camera.focal_px / view.ahead_m
        target |= painted & (wide_px >= NARROWEST_TARGET_PX)
    return target

"""The similarity of frames: that of Wang et al. as their formula has it, and never above it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from inference_worker.cache.similarity import measured, planes_of, similarity

PICTURE = Path(__file__).parents[4] / "docs" / "pictures" / "lane-detection-001.png"
_SLACK = 1e-6


def by_formula(one: np.ndarray, other: np.ndarray, extent: float) -> float:
    """The mean of the formula over all windows of 11 by 11, window by window, in double precision."""
    places = np.arange(11) - 5
    weights = np.exp(-(places[:, None] ** 2 + places[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    x, y = (sliding_window_view(plane.astype(np.float64), (11, 11)) for plane in (one, other))

    def mean(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = (values * weights).sum(axis=(-2, -1))
        return found

    mx, my = mean(x), mean(y)
    vx, vy, both = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    c1, c2 = (0.01 * extent) ** 2, (0.03 * extent) ** 2
    found = ((2 * mx * my + c1) * (2 * both + c2)) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    return float(found.mean())


def least_by_formula(one: np.ndarray, other: np.ndarray, extent: float) -> float:
    planes, others = planes_of(one), planes_of(other)
    assert planes is not None and others is not None
    return min(by_formula(x, y, extent) for x, y in zip(planes, others, strict=True))


def ours(one: np.ndarray, other: np.ndarray, enough: float = -2.0) -> float:
    planes, others = planes_of(one), planes_of(other)
    assert planes is not None and others is not None
    frame = measured(planes)
    return similarity(frame, others, enough) if frame is not None else -1.0


def picture(size: int = 96) -> np.ndarray:
    return np.asarray(Image.open(PICTURE).convert("RGB").resize((size, size)))


def with_noise(frame: np.ndarray, deviation: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, deviation, frame.shape)
    return np.clip(np.rint(frame + noise), 0, 255).astype(np.uint8)


def changed(frame: np.ndarray, how: str, much: int, seed: int) -> np.ndarray:
    """A frame as a camera may give it after this one."""
    draw = np.random.default_rng(seed)
    match how:
        case "noise":
            return with_noise(frame, much / 4, seed)
        case "moved":
            return np.roll(frame, much, axis=1)
        case "lighter":
            return np.clip(frame.astype(np.int32) + much, 0, 255).astype(np.uint8)
        case "dimmed":
            return (frame * (1 - much / 64)).astype(np.uint8)
        case "inverted":
            return (255 - frame).astype(np.uint8)
        case "colour":
            other = frame.copy()
            other[..., draw.integers(3)] = np.clip(other[..., 0].astype(np.int32) + 2 * much, 0, 255)
            return other
        case _:
            other, top, left = frame.copy(), *draw.integers(0, frame.shape[0] - much, 2)
            other[top : top + much, left : left + much] = draw.integers(0, 255, 3)
            return other


HOW = st.sampled_from(["noise", "moved", "lighter", "dimmed", "inverted", "colour", "object"])


@given(how=HOW, much=st.integers(0, 16), seed=st.integers(0, 1000), drawn=st.booleans())
def test_it_is_the_formulas_to_a_hair_and_never_above_it(how: str, much: int, seed: int, *, drawn: bool) -> None:
    frame = np.random.default_rng(seed).integers(0, 256, (40, 48, 3)).astype(np.uint8) if drawn else picture(48)
    other = changed(frame, how, much, seed)
    whole = least_by_formula(frame, other, 255)

    assert ours(frame, other) <= whole + _SLACK
    if whole > 0.8:
        assert whole - 1e-3 < ours(frame, other)


@given(HOW, st.integers(0, 16), st.integers(0, 1000), st.sampled_from(["unit", "signed", "normalised", "bytes", "half", "columns"]))
def test_a_type_that_does_not_tell_its_range_never_says_more_than_the_formula_does(
    how: str, much: int, seed: int, form: str
) -> None:
    """Whatever a caller made of the camera's bytes, the bound is about these."""
    frame = picture(40)
    other = changed(frame, how, much, seed)
    whole = least_by_formula(frame, other, 255)
    means, deviations = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    made = {
        "unit": lambda each: (each / 255).astype(np.float32),
        "signed": lambda each: (each / 127.5 - 1).astype(np.float32),
        "normalised": lambda each: ((each / 255 - means) / deviations).astype(np.float32),
        "bytes": lambda each: each.astype(np.int32),
        "half": lambda each: (each / 255).astype(np.float16),
        "columns": lambda each: np.moveaxis(each / 255, -1, 0)[None],
    }[form]

    # Numbers of 16 bits are rounded by the caller.
    assert ours(made(frame), made(other)) <= whole + (1e-3 if form == "half" else _SLACK)


@given(st.integers(0, 12), st.integers(0, 1000), st.sampled_from([0.9, 0.95, 0.99]))
def test_a_frame_below_the_bound_is_never_said_to_be_above_it(deviation: int, seed: int, bound: float) -> None:
    frame = picture(64)
    other = with_noise(frame, deviation / 4, seed)

    assert not (ours(frame, other, bound) >= bound > least_by_formula(frame, other, 255))


def test_a_low_resolution_would_say_more_than_is_so() -> None:
    """Why there is none: noise and small things are averaged away."""
    frame = picture(192)
    other = with_noise(frame, 4, 1)
    small, small_other = (np.asarray(Image.fromarray(each).resize((48, 48), Image.Resampling.BOX)) for each in (frame, other))

    assert least_by_formula(small, small_other, 255) > 0.95 > least_by_formula(frame, other, 255)
    assert ours(frame, other, 0.95) < 0.95


def test_one_channel_that_changes_is_enough_to_compute_anew() -> None:
    frame = picture()
    other = frame.copy()
    other[..., 2] = np.roll(other[..., 2], 9, axis=0)

    assert ours(frame, other, 0.95) < 0.95


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_what_is_no_number_is_like_nothing(value: float) -> None:
    frame = (picture(32) / 255).astype(np.float32)
    other = frame.copy()
    other[3, 4, 0] = value

    assert not ours(frame, other, 0.95) >= 0.95
    assert not ours(other, frame, 0.95) >= 0.95
    assert not ours(other, other, 0.95) >= 0.95


def test_a_broken_pixel_does_not_make_all_the_rest_look_alike() -> None:
    frame = (picture() / 255).astype(np.float32)
    frame[3, 4] = 6.0
    other = np.roll(frame, 9, axis=1)
    other[3, 4] = 6.0

    assert ours(frame, other, 0.95) < 0.95


def test_a_plane_of_one_value_is_like_itself_alone() -> None:
    flat = np.full((1, 16, 16), 0.5, np.float32)
    other = flat.copy()
    other[0, 0, 0] = 0.6

    assert ours(flat, flat) > 0.99
    assert ours(flat, other) < 0


@pytest.mark.parametrize(
    ("shape", "planes"),
    [
        ((3, 32, 40), (3, 32, 40)),
        ((32, 40, 3), (3, 32, 40)),
        ((2, 1, 32, 40), (2, 32, 40)),
        ((2, 32, 40, 4), (8, 32, 40)),
        ((32, 40), None),
        ((1, 3, 10, 40), None),
        ((2, 32, 40), None),
        ((0, 3, 32, 40), None),
        ((1, 4096, 4096, 1), None),
        ((1, 1, 3, 32, 40), None),
    ],
)
def test_images_are_known_by_their_channels(shape: tuple[int, ...], planes: tuple[int, ...] | None) -> None:
    found = planes_of(np.zeros(shape, np.uint8))

    assert (found.shape if found is not None else None) == planes


def test_texts_and_truths_are_no_images() -> None:
    assert planes_of(np.full((1, 32, 32), "a", object)) is None
    assert planes_of(np.zeros((1, 32, 32), bool)) is None

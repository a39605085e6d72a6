"""Draw the lane model's answers: one picture with an overlay, or a sheet to compare many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Colour = tuple[int, int, int]

# Colours that neither paint, tarmac, sky nor grass has.
ANSWER_COLOUR = (255, 40, 130)
TRUTH_COLOUR = (0, 205, 255)
# How much of the picture stays beside the lanes, and how much of the overlay covers it on them.
DIMMED = 0.62
COVER = 0.92

SCALE = 2
MARGIN_PX = 24
GAP_PX = 10
HEADER_PX = 64
PAPER = (18, 20, 24)
INK = (236, 238, 242)
FAINT = (150, 156, 166)


def overlay(image: Floats, lanes: Floats, colour: Colour = ANSWER_COLOUR) -> Image.Image:
    """Return the image [3,H,W], 0..1, dimmed, with probabilities [1,H,W] or [H,W] in colour."""
    probability = lanes.reshape(*lanes.shape[-2:], 1)
    dimmed = DIMMED * image.transpose(1, 2, 0)
    tint = np.array(colour, dtype=np.float32) / 255
    return _to_picture(dimmed + COVER * probability * (tint - dimmed))


def write_contact_sheet(images: Floats, truths: Floats, answers: Floats, path: Path) -> None:
    """Write a PNG with a row per image [N,3,H,W]: the image, its truth and its answer."""
    contact_sheet(images, truths, answers).save(path, format="PNG")


def contact_sheet(images: Floats, truths: Floats, answers: Floats) -> Image.Image:
    """Return the sheet: image | truth | answer, with the IoU of each answer in its corner."""
    height, width = images.shape[-2] * SCALE, images.shape[-1] * SCALE
    sheet = Image.new(
        "RGB",
        (
            2 * MARGIN_PX + 3 * width + 2 * GAP_PX,
            HEADER_PX + MARGIN_PX + len(images) * (height + GAP_PX) - GAP_PX,
        ),
        PAPER,
    )
    pen = ImageDraw.Draw(sheet)
    lefts = [MARGIN_PX + column * (width + GAP_PX) for column in range(3)]
    for left, title in zip(lefts, ("image", "truth", "answer"), strict=True):
        pen.text((left, HEADER_PX - 18), title, INK, ImageFont.load_default(22), anchor="ls")
    for row, (image, truth, answer) in enumerate(zip(images, truths, answers, strict=True)):
        top = HEADER_PX + row * (height + GAP_PX)
        pictures = (
            _to_picture(image.transpose(1, 2, 0)),
            overlay(image, truth, TRUTH_COLOUR),
            overlay(image, answer),
        )
        for left, picture in zip(lefts, pictures, strict=True):
            sheet.paste(picture.resize((width, height), Image.Resampling.LANCZOS), (left, top))
        _write_tag(pen, (lefts[2] + width, top), _score(truth, answer))
    total = f"{len(truths)} images, {_score(truths, answers)}"
    place = (lefts[2] + width, HEADER_PX - 18)
    pen.text(place, total, FAINT, ImageFont.load_default(18), anchor="rs")
    return sheet


def _write_tag(pen: ImageDraw.ImageDraw, corner: tuple[int, int], label: str) -> None:
    """Write a label on a strip of paper whose upper right corner is given, legible on snow."""
    right, top = corner
    font = ImageFont.load_default(18)
    pen.rectangle((right - pen.textlength(label, font) - 20, top, right, top + 32), PAPER)
    pen.text((right - 10, top + 16), label, INK, font, anchor="rm")


def _score(truth: Floats, answer: Floats) -> str:
    found, real = answer > 0.5, truth > 0.5
    both, either = int((found & real).sum()), int((found | real).sum())
    return f"IoU {both / either:.2f}" if either else "no lines"


def _to_picture(pixels: Floats) -> Image.Image:
    return Image.fromarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8))

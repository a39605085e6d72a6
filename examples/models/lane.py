"""Train the lane model on drawn roads and write it with a few samples."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import (
    ConvergenceWarning,
)
from sklearn.neural_network import MLPClassifier

from examples.models import road
from examples.models.draw import write_contact_sheet
from examples.models.graphs import save
from examples.models.lane_net import Perceptron, gather, write_maps, write_net
from examples.models.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray

    from examples.models.lane_net import Spots

    Floats = NDArray[np.float32]
    Bools = NDArray[np.bool_]

# Each seed is a set of images of its own, so no image serves two purposes.
TRAINING_SEED, CUT_SEED, SAMPLE_SEED, HELD_OUT_SEED = 101, 102, 103, 104
# Many scenes with few spots each: what overfits is the scene, not the pixel.
TRAINING_IMAGES, CUT_IMAGES, SAMPLES, HELD_OUT_IMAGES = 240, 24, 8, 48
SPOTS_PER_IMAGE = 900
# Drawn, mapped and sampled together; bounds the memory to some 50 MB.
IMAGES_AT_ONCE = 24
NEAR_PX = 4
HIDDEN = (32, 16)
# Passes over the spots and Adam's step: large steps to find the valley, small ones to settle.
STAGES = ((8, 2e-3), (3, 2e-4))


def build(folder: Path) -> dict[str, float]:
    """Write the model and samples into ``folder``; return the IoU on held-out images."""
    save(write_net(train()), folder / "model.onnx")
    session = Session(folder / "model.onnx")
    images, truth = road.examples(SAMPLE_SEED, SAMPLES)
    np.save(folder / "road.npy", images)
    np.save(folder / "truth.npy", truth)
    write_contact_sheet(images, truth, session.run(images)["lanes"], folder / "sheet.png")
    images, truth = road.examples(HELD_OUT_SEED, HELD_OUT_IMAGES)
    return {"iou": iou(session.run(images)["lanes"], truth)}


def train() -> Perceptron:
    """Train the perceptron, then move its answer so that one half is the best cut."""
    perceptron = fit(*sample(TRAINING_SEED, TRAINING_IMAGES))
    images, truth = road.examples(CUT_SEED, CUT_IMAGES)
    lanes = Session(write_net(perceptron)).run(images)["lanes"]
    return perceptron.shifted(-best_cut(lanes, truth))


def sample(seed: int, count: int) -> tuple[Floats, Bools]:
    """Return what the net sees at some spots of ``count`` images, [S,values], and the truth [S].

    Every second spot is seen in a mirror, which costs nothing and doubles the scenes.
    """
    random = np.random.default_rng(seed)
    front = Session(write_maps())
    parts = []
    for start in range(0, count, IMAGES_AT_ONCE):
        numbers = range(start, min(start + IMAGES_AT_ONCE, count))
        images, truth = road.stack(seed, numbers)
        masks = truth[:, 0] > 0
        spots = choose(masks, random)
        mirrored = np.arange(len(spots[0])) % 2 == 1
        parts.append((gather(front.run(images), spots, mirrored), masks[spots]))
    seen, truths = (np.concatenate(part) for part in zip(*parts, strict=True))
    return seen, truths


def choose(masks: Bools, random: Generator) -> Spots:
    """Choose spots in masks [N,H,W]: a third on lines, a third close to them, a third anywhere."""
    third = SPOTS_PER_IMAGE // 3
    chosen = []
    for number, mask in enumerate(masks):
        near = grow(mask, NEAR_PX) & ~mask
        for region in (mask, near, np.ones_like(mask)):
            rows, columns = np.nonzero(region)
            # A road without a line in sight has spots of the last kind only.
            picks = random.integers(max(len(rows), 1), size=third if len(rows) else 0)
            chosen.append((np.full(len(picks), number), rows[picks], columns[picks]))
    image, row, column = (np.concatenate(part) for part in zip(*chosen, strict=True))
    return image, row, column


def grow(mask: Bools, reach_px: int) -> Bools:
    """Return the mask [H,W] grown by a square of ``reach_px`` pixels to each side."""
    grown: Bools = np.pad(mask, reach_px)
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(grown, 2 * reach_px + 1, axis=axis)
        grown = np.asarray(windows.any(axis=-1))
    return grown


def fit(seen: Floats, truth: Bools) -> Perceptron:
    """Fit the perceptron to spots [S,values] and their truth [S]."""
    mean, deviation = seen.mean(axis=0), seen.std(axis=0) + np.float32(1e-3)
    network = MLPClassifier(HIDDEN, alpha=1e-3, batch_size=256, tol=0, warm_start=True)
    with warnings.catch_warnings():
        # The number of passes is chosen here; that it is reached is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for passes, step in STAGES:
            network.set_params(max_iter=passes, learning_rate_init=step, random_state=TRAINING_SEED)
            network.fit((seen - mean) / deviation, truth)
    weights = [layer.astype(np.float32) for layer in network.coefs_]
    biases = [layer.astype(np.float32) for layer in network.intercepts_]
    # The scaling goes into the first layer, so that the graph needs no nodes for it.
    weights[0] = weights[0] / deviation[:, None]
    biases[0] = biases[0] - mean @ weights[0]
    return Perceptron(weights=tuple(weights), biases=tuple(biases))


def best_cut(lanes: Floats, truth: Floats) -> float:
    """Return the logit at which cutting the probabilities gives the best IoU.

    Training shows lines far oftener than roads do, so a probability of one half is not the cut.
    """
    logits = np.linspace(-2, 6, 41)
    scores = [iou(lanes, truth, cut=1 / (1 + np.exp(-logit))) for logit in logits]
    return float(logits[int(np.argmax(scores))])


def iou(lanes: Floats, truth: Floats, *, cut: float = 0.5) -> float:
    """Return intersection over union of line pixels, summed over all images [N,1,H,W]."""
    found, real = lanes > cut, truth > 0
    return float((found & real).sum() / max(int((found | real).sum()), 1))

"""The digits model: a 64-32-10 perceptron on scikit-learn's 1797 images of 8x8 pixels.

The images are the test part of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten
Digits" (UCI Machine Learning Repository, 1998), as scikit-learn ships them. The truth is kept in
a file of its own, so that a job can be given the data without the answers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import (
    train_test_split,
)
from sklearn.neural_network import MLPClassifier

from examples.models.graphs import GraphWriter, save
from examples.models.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

SEED = 20
HIDDEN = 32
# Pixels count the dark cells of a 4x4 block of the original scan: 0 to 16.
LARGEST_PIXEL = 16.0
JSON_ITEMS = 32
NOTICE = """\
The images are from "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI
Machine Learning Repository (1998), https://doi.org/10.24432/C50P49, CC BY 4.0, as scikit-learn
distributes them: the test part, 8x8 pixels of 0 to 16. A third of them is kept here, reordered.
"""

Split = tuple["NDArray[np.float32]", "NDArray[np.int64]"]


def split() -> tuple[Split, Split]:
    """Return (pixels [N,64] 0..16, labels [N]) for training, then for the held-out third."""
    images = load_digits()
    pixels = images.data.astype(np.float32)
    labels = images.target.astype(np.int64)
    parts = train_test_split(pixels, labels, test_size=len(labels) // 3, stratify=labels, random_state=SEED)
    return (parts[0], parts[2]), (parts[1], parts[3])


def train(pixels: NDArray[np.float32], labels: NDArray[np.int64]) -> MLPClassifier:
    """Fit the perceptron to pixels scaled to 0..1."""
    network = MLPClassifier(
        hidden_layer_sizes=(HIDDEN,),
        alpha=0.05,
        batch_size=64,
        learning_rate_init=0.005,
        max_iter=500,
        tol=1e-3,
        random_state=SEED,
    )
    return network.fit(pixels / LARGEST_PIXEL, labels)


def write_graph(network: MLPClassifier) -> onnx.ModelProto:
    """Write the perceptron with its scaling: pixels [N,64] to probabilities [N,10], label [N]."""
    graph = GraphWriter("digits")
    flow = graph.node("Div", ["pixels", graph.constant("largest", _scalar(LARGEST_PIXEL))], "scaled")
    last = len(network.coefs_) - 1
    for index, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True)):
        names = [
            graph.constant(f"weights{index}", weights.astype(np.float32)),
            graph.constant(f"bias{index}", bias.astype(np.float32)),
        ]
        flow = graph.node("Gemm", [flow, *names], f"sum{index}")
        if index != last:
            flow = graph.node("Relu", [flow], f"hidden{index}")
    graph.node("Softmax", [flow], "probabilities", axis=1)
    graph.node("ArgMax", [flow], "label", axis=1, keepdims=0)
    return graph.model(
        {"pixels": ("float32", ("N", 64))},
        {"probabilities": ("float32", ("N", 10)), "label": ("int64", ("N",))},
    )


def build(folder: Path) -> dict[str, float]:
    """Write the model and its held-out data into ``folder``; return the measured accuracy."""
    training, (pixels, labels) = split()
    save(write_graph(train(*training)), folder / "model.onnx")
    np.savez(folder / "heldout.npz", pixels=pixels)
    np.save(folder / "labels.npy", labels)
    lines = [json.dumps({"pixels": item.tolist()}) + "\n" for item in pixels[:JSON_ITEMS]]
    (folder / "heldout.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "NOTICE").write_text(NOTICE, encoding="utf-8")
    answers = Session(folder / "model.onnx").run(pixels, batch=len(pixels))
    return {"accuracy": accuracy(answers["label"], labels)}


def accuracy(answers: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the share of answers [N] that equal the labels [N]."""
    return float(np.mean(answers == labels))


def _scalar(value: float) -> NDArray[Any]:
    return np.array(value, dtype=np.float32)

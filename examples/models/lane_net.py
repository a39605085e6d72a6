"""The lane net: what it looks at, how samples for its training are taken, how it is written.

A perceptron slides over the image and sees each pixel's surroundings at several dilations, from
7x7 neighbours to the whole scene (F. Yu, V. Koltun, "Multi-Scale Context Aggregation by Dilated
Convolutions", ICLR 2016). A perceptron over patches is a convolution followed by 1x1
convolutions, so the whole is one fully convolutional graph for any height and width.

The maps that the perceptron looks at are computed by the very nodes that ship, never by a second
implementation: training can not drift from inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from examples.models.graphs import GraphWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from examples.models.graphs import Shape

    Floats = NDArray[np.float32]
    # Where samples are: image, row and column, each [S].
    Spots = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

LUMA = (0.30, 0.59, 0.11)
YELLOWNESS = (0.5, 0.5, -1.0)
YELLOW_GAIN = 4.0
# Pixels; light is judged against the mean around a pixel, so that shadows and dusk cancel out.
CONTRAST_WINDOW = 25
# Below this local deviation there is only noise, which must not be blown up to full contrast.
NOISE_FLOOR = 0.03
# Names of the maps and their channels: contrast and yellowness, the same blurred, and the
# colours and the local deviation in two larger boxes.
CHANNELS = {"fine": 2, "blurred": 2, "coarse": 4, "wide": 4}


@dataclass(frozen=True, kw_only=True)
class Tap:
    """A square of ``size`` x ``size`` points, ``dilation`` pixels apart, on one map."""

    source: str
    size: int
    dilation: int

    @property
    def values(self) -> int:
        """Return how many numbers the tap sees."""
        return CHANNELS[self.source] * self.size**2


TAPS = (
    Tap(source="fine", size=7, dilation=1),
    Tap(source="blurred", size=7, dilation=3),
    Tap(source="coarse", size=5, dilation=9),
    Tap(source="wide", size=5, dilation=25),
)


@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """Weights [in,out] and biases [out] per layer; the first reads TAPS, the last is a logit."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def shifted(self, logit: float) -> Perceptron:
        """Return the same perceptron with ``logit`` added to its answer."""
        *biases, last = self.biases
        return Perceptron(weights=self.weights, biases=(*biases, last + np.float32(logit)))


def write_maps() -> onnx.ModelProto:
    """Write the front of the net: image [N,3,H,W] to each of its maps [N,channels,H,W]."""
    graph = GraphWriter("lane-maps")
    _write_maps(graph)
    return graph.model({"image": _planes(3)}, {map_: _planes(n) for map_, n in CHANNELS.items()})


def write_net(perceptron: Perceptron) -> onnx.ModelProto:
    """Write the net: image [N,3,H,W], values 0..1, to lanes [N,1,H,W], a probability."""
    graph = GraphWriter("lane")
    _write_maps(graph)
    graph.node("Sigmoid", [_write_perceptron(graph, perceptron)], "lanes")
    return graph.model({"image": _planes(3)}, {"lanes": _planes(1)})


def gather(maps: Mapping[str, Floats], spots: Spots, mirrored: NDArray[np.bool_]) -> Floats:
    """Return what the taps see at S spots, [S,values]; left and right swap where ``mirrored``.

    The order within a row is that of convolution weights, and the margin is zero as there.
    """
    image, row, column = spots
    direction = np.where(mirrored, -1, 1)[:, None]
    parts = []
    for tap in TAPS:
        reach = tap.dilation * (tap.size // 2)
        padded = np.pad(maps[tap.source], ((0, 0), (0, 0), (reach, reach), (reach, reach)))
        steps = np.arange(-reach, reach + 1, tap.dilation)
        rows = (row[:, None] + reach + steps)[:, :, None]
        columns = (column[:, None] + reach + direction * steps)[:, None, :]
        seen = padded.transpose(0, 2, 3, 1)[image[:, None, None], rows, columns]
        parts.append(seen.transpose(0, 3, 1, 2).reshape(len(image), -1))
    return np.concatenate(parts, axis=1)


def _write_maps(graph: GraphWriter) -> None:
    """Write the maps of CHANNELS from the image."""
    luma = graph.convolve("image", "luma", _pointwise(LUMA))
    yellow = graph.convolve("image", "yellow", _pointwise(YELLOWNESS) * YELLOW_GAIN)
    mean = _write_blur(graph, luma, "mean", CONTRAST_WINDOW)
    offset = graph.node("Sub", [luma, mean], "offset")
    square = graph.node("Mul", [offset, offset], "square")
    variance = _write_blur(graph, square, "variance", CONTRAST_WINDOW)
    floor = graph.constant("floor", np.array(NOISE_FLOOR**2, dtype=np.float32))
    deviation = graph.node("Sqrt", [graph.node("Add", [variance, floor], "raised")], "deviation")
    contrast = graph.node("Div", [offset, deviation], "contrast")
    fine = graph.node("Concat", [contrast, yellow], "fine", axis=1)
    _write_blur(graph, fine, "blurred", 3)
    scene = graph.node("Concat", ["image", deviation], "scene", axis=1)
    _write_blur(graph, scene, "coarse", 9)
    _write_blur(graph, scene, "wide", 25)


def _write_perceptron(graph: GraphWriter, perceptron: Perceptron) -> str:
    """Write the first layer as one convolution per tap, summed, and the others as 1x1."""
    flow, start = "", 0
    for index, tap in enumerate(TAPS):
        kernel = perceptron.weights[0][start : start + tap.values].T
        start += tap.values
        part = graph.convolve(
            tap.source,
            f"tap{index}",
            kernel.reshape(-1, CHANNELS[tap.source], tap.size, tap.size),
            bias=None if flow else perceptron.biases[0],
            dilation=tap.dilation,
        )
        flow = graph.node("Add", [flow, part], f"sum{index}") if flow else part
    deeper = zip(perceptron.weights[1:], perceptron.biases[1:], strict=True)
    for layer, (weights, bias) in enumerate(deeper, start=1):
        flow = graph.node("Relu", [flow], f"hidden{layer}")
        flow = graph.convolve(flow, f"layer{layer}", weights.T[..., None, None], bias=bias)
    return flow


def _write_blur(graph: GraphWriter, source: str, output: str, size: int) -> str:
    """Write a box mean of ``size`` x ``size`` pixels that ignores what lies outside the image."""
    # Two passes of one dimension: 2 x 25 additions per pixel instead of 625.
    half = size // 2
    passed = graph.node("AveragePool", [source], f"{output}.across", kernel_shape=[1, size], pads=[0, half, 0, half])
    return graph.node("AveragePool", [passed], output, kernel_shape=[size, 1], pads=[half, 0, half, 0])


def _pointwise(factors: Sequence[float]) -> Floats:
    return np.array(factors, dtype=np.float32).reshape(1, -1, 1, 1)


def _planes(channels: int) -> tuple[str, Shape]:
    return "float32", ("N", channels, "H", "W")

"""Another checkout's worker and this one's, figure by figure in one run: the same device, the same requests."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import bare, serving, shortage, study
from bench.gpu.nets import BATCH, images
from bench.gpu.served import Stream, Worker, answers, load, worker
from bench.report import ROOT
from dev.console import say

_SIZES = 40
_ROUNDS = 2
_RATE = 1000.0


Figure = Callable[[Path], dict[str, Any]]


def measure(nets: dict[str, Path], source: Path, torchscript: dict[str, Any]) -> dict[str, Any]:
    """Every figure of both checkouts in single precision, with the bare session's of the same run."""
    alone = bare.measure(nets["fp32"])
    loop = bare.torchscript(nets["torchscript"])
    figures: dict[str, Figure] = {
        "onnx": lambda root: _onnx(nets["fp32"], root, alone),
        "torchscript": lambda root: _torchscript(nets["torchscript"], root, loop["imagesPerSecond"], torchscript),
        "memory": lambda root: shortage.measure(nets["fp32"], root),
    }
    return {"bare": alone, "bareTorchscript": loop, **_both(figures, source)}


def half(net: Path, source: Path) -> dict[str, Any]:
    """The figures of serving in half precision."""
    alone = bare.measure(net)
    return {"bare": alone, **_both({"onnx": lambda root: _onnx(net, root, alone)}, source)}


def _both(figures: dict[str, Figure], source: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"other": {}, "this": {}}
    for figure, of in figures.items():
        for name, root in (("other", source), ("this", ROOT)):
            try:
                found[name][figure] = of(root)
            except (RuntimeError, OSError, KeyError, AssertionError) as error:
                found[name][figure] = {"why": str(error)[-300:]}
            say(f"{name} {figure}: {found[name][figure]}")
    return found


def _onnx(net: Path, root: Path, alone: dict[str, Any]) -> dict[str, Any]:
    top = alone["boundImagesPerSecond"]
    with worker(net, source=root) as on:
        load(on, [Stream(500)], 2.0)
        figures: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("single", lambda: serving.single(on, alone["millisecondsByRows"][1])),
            ("1000", lambda: serving.at(on, _RATE)),
            ("most", lambda: serving.most(on, top * 1.2).summary()),
            ("mostGrpc", lambda: serving.most(on, top * 1.2, "grpc").summary()),
            ("mixed", lambda: _mixed(on)),
            ("study", lambda: study.highest(on, top)),
        )
        found = {}
        for name, figure in figures:
            found[name] = figure()
            say(f"  {name}: {found[name]}")
        return found


def _mixed(on: Worker) -> dict[str, float]:
    """Requests of 1 to 64 rows one after another, in any order over the order of their sizes."""
    sizes = [int(rows) for rows in np.random.default_rng(1).integers(1, BATCH + 1, _SIZES)]
    feeds = {rows: images(rows) for rows in set(sizes)}

    def timed(order: list[int]) -> float:
        begun = time.perf_counter()
        for rows in order:
            assert answers(on, feeds[rows]) is not None, f"{rows} rows were refused"
        return time.perf_counter() - begun

    timed(sorted(set(sizes)))
    rounds = [(timed(sizes), timed(sorted(sizes))) for _ in range(_ROUNDS)]
    return {
        "mixedOverFixed": round(float(np.median([one / other for one, other in rounds])), 3),
        "mixedMillisecondsARequest": round(float(np.median([one for one, _ in rounds])) / _SIZES * 1e3, 2),
    }


def _torchscript(net: Path, root: Path, rate: float, model: dict[str, Any]) -> dict[str, Any]:
    with worker(net, source=root, backend="torchscript", model=model) as on:
        load(on, [Stream(500)], 2.0)
        heard = serving.most(on, rate * 1.2).summary()
    return {"most": heard, "share": round(float(heard["imagesPerSecond"]) / rate, 3)}

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


def measure(nets: dict[str, Path], source: Path, torchscript: dict[str, Any]) -> dict[str, Any]:
    """Every figure of both checkouts, with the bare session's of the same run."""
    alone = bare.measure(nets["fp32"])
    loop = bare.torchscript(nets["torchscript"])
    found: dict[str, Any] = {"bare": alone, "bareTorchscript": loop, "other": {}, "this": {}}
    say(f"bare: {found}")
    for figure, of in (("onnx", _onnx), ("torchscript", _torchscript), ("memory", _memory)):
        for name, root in (("other", source), ("this", ROOT)):
            try:
                found[name][figure] = of(nets, root, alone | {"loop": loop, "model": torchscript})
            except (RuntimeError, OSError, KeyError, AssertionError) as error:
                found[name][figure] = {"why": str(error)[-300:]}
            say(f"{name} {figure}: {found[name][figure]}")
    return found


def _onnx(nets: dict[str, Path], root: Path, alone: dict[str, Any]) -> dict[str, Any]:
    top = alone["boundImagesPerSecond"]
    with worker(nets["fp32"], source=root) as on:
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


def _memory(nets: dict[str, Path], root: Path, _: dict[str, Any]) -> dict[str, Any]:
    return shortage.measure(nets["fp32"], root)


def _torchscript(nets: dict[str, Path], root: Path, alone: dict[str, Any]) -> dict[str, Any]:
    rate = alone["loop"]["imagesPerSecond"]
    with worker(nets["torchscript"], source=root, backend="torchscript", model=alone["model"]) as on:
        load(on, [Stream(500)], 2.0)
        heard = serving.most(on, rate * 1.2).summary()
    return {"most": heard, "share": round(float(heard["imagesPerSecond"]) / rate, 3)}

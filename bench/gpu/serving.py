"""A served net on a device against the bare session beside it: the most at a latency, one row, mixed sizes, whole batches."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import bare
from bench.gpu.meter import metered
from bench.gpu.nets import BATCH, INPUT, images
from bench.gpu.served import Heard, Stream, Worker, load
from inference_worker.batch.items import ArrayItems
from inference_worker.batch.pipeline import Pipeline
from inference_worker.batching.execute import Execution
from inference_worker.batching.rows import Layout
from inference_worker.engines.engine import Cancellation, Tensors
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.model import padding
from inference_worker.warmup import warm_up

CUDA = "CUDAExecutionProvider"
P99_MS = 24.0
_SECONDS = 4.0
_STEPS = [round(0.25 + 0.05 * i, 2) for i in range(12)]
_ANSWERED = 0.999


def mixed(path: Path) -> dict[str, Any]:
    """A stream of runs of 1 to 64 rows in any order, over the same runs in the order of their sizes; and whole batches."""
    engine = OnnxEngine(path.read_bytes(), providers=(CUDA,), threads=1)
    begun = time.perf_counter()
    warm = warm_up(engine, BATCH)
    warmed = time.perf_counter() - begun
    execution = Execution(engine, warm.layout, pad=padding(engine, warm), prepares=warm.prepares)
    sizes = [int(rows) for rows in np.random.default_rng(1).integers(1, BATCH + 1, 150)]
    feeds = {rows: {INPUT: images(rows)} for rows in set(sizes)}

    def timed(order: list[int]) -> float:
        begun = time.perf_counter()
        for rows in order:
            (answer,) = execution.run([feeds[rows]], [rows], (), BATCH, Cancellation()).answers
            assert not isinstance(answer, Exception), answer
        return time.perf_counter() - begun

    timed(sizes)
    rounds = [(timed(sizes), timed(sorted(sizes))) for _ in range(5)]
    runs = engine.device_runs
    record = {
        "runs": runs.mode.value if runs is not None else "",
        "warmupSeconds": round(warmed, 2),
        "millisecondsByRows": {rows: round(seconds * 1e3, 3) for rows, seconds in warm.profile.measured.items()},
        "mixedOverFixed": round(float(np.median([one / other for one, other in rounds])), 3),
        "mixedMillisecondsARun": round(float(np.median([one for one, _ in rounds])) / len(sizes) * 1e3, 3),
        "largestDifference": _difference(engine, execution, path),
        "batchImagesPerSecond": round(_offline(engine, warm.layout)),
    }
    engine.close()
    return record


def _difference(engine: OnnxEngine, execution: Execution, path: Path) -> dict[str, float]:
    """How far answers are from the bare session's, as a share of its largest: of runs of so many rows, each in company."""
    session = bare.session(path)
    rows = images(BATCH, seed=5)
    (right,) = session.run(None, {INPUT: rows})
    found = {}
    for size in (1, 5, 16, 48, BATCH):
        members: list[Tensors] = [{INPUT: rows[at : at + 1]} for at in range(size)]
        answers = execution.run(members, [1] * size, (), BATCH, Cancellation()).answers
        worst = 0.0
        for at, answer in enumerate(answers):
            assert not isinstance(answer, Exception), answer
            worst = max(worst, float(np.max(np.abs(answer[engine.outputs[0].name] - right[at : at + 1]))))
        found[str(size)] = round(worst / float(np.max(np.abs(right))), 6)
    return found


def _offline(engine: OnnxEngine, layout: Layout) -> float:
    """Images a second of a batch task, without its files."""
    count = BATCH * 100
    x = np.tile(images(BATCH), (count // BATCH, 1, 1, 1))
    pipeline = Pipeline(engine, layout, ArrayItems({INPUT: x}, {INPUT: 0}), size=BATCH, check=_nothing)
    for _ in pipeline.segments(count - 4 * BATCH, lambda: False):
        pass
    begun = time.perf_counter()
    for _ in pipeline.segments(0, lambda: False):
        pass
    return count / (time.perf_counter() - begun)


def _nothing(feeds: Tensors, first: int) -> None:
    """All values are welcome."""


def at(on: Worker, rate: float, **more: Any) -> dict[str, Any]:
    """What a stream of single images at a rate hears."""
    with metered() as meter:
        (heard,) = load(on, [Stream(rate, **more)], _SECONDS)
    return {"rate": round(rate), **heard.summary(), **meter.summary()}


def held(on: Worker, most: float, protocol: str) -> dict[str, Any]:
    """The highest rate, in steps of a twentieth of `most`, at which p99 is at most P99_MS and nothing is refused: by halving."""
    low, high, best, tried = 0, len(_STEPS), {"imagesPerSecond": 0, "share": 0.0}, []
    while low < high:
        middle = (low + high) // 2
        found = _looked(on, _STEPS[middle] * most, protocol) | {"share": _STEPS[middle]}
        tried.append(found)
        if _holds(found):
            low, best = middle + 1, found
        else:
            high = middle
    return {"best": best, "tried": tried}


def _looked(on: Worker, rate: float, protocol: str) -> dict[str, Any]:
    """The middle one of three looks at a rate, or the worse one of two that agree."""
    looks = [at(on, rate, protocol=protocol) for _ in range(2)]
    if _holds(looks[0]) != _holds(looks[1]):
        looks.append(at(on, rate, protocol=protocol))
    looks.sort(key=lambda look: float(look["p99Ms"]))
    return looks[len(looks) // 2] | {"p99MsOfLooks": [look["p99Ms"] for look in looks]}


def _holds(look: dict[str, Any]) -> bool:
    return bool(look["p99Ms"] <= P99_MS and look["answered"] >= _ANSWERED)


def single(on: Worker, bare_ms: float) -> dict[str, Any]:
    """One image after another: what the worker adds to the bare run."""
    (heard,) = load(on, [Stream(1000, processes=1, connections=1, arrivals="serial")], _SECONDS)
    p50 = float(np.median(heard.latency))
    return {"p50Ms": round(p50, 3), "bareMs": bare_ms, "addedMs": round(p50 - bare_ms, 3)}


def most(on: Worker, rate: float, protocol: str = "http") -> Heard:
    """What comes of more than can be answered, from 192 callers that wait for their answers."""
    (heard,) = load(on, [Stream(rate, connections=32, protocol=protocol)], _SECONDS)
    return heard

"""The worker's cache beside a worker without one: repeated inputs by turns, and frames of four scenes to both.

The frames are cut from a photograph, with the noise of a sensor on each. What was used again is judged by the similarity of whole
frames, computed here by another implementation in double precision.
"""

import asyncio
import http.client
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper
from scipy.ndimage import correlate1d
from sklearn.datasets import load_sample_image

from bench.gateway.callers import Seen, connect, request
from bench.gateway.stage import PATH, WIDTH, answers, worker
from inference_protocol.messages import HTTP_PORT, AnswerCache, FrameReuse
from tests import loopback
from tests.process import models

Row = dict[str, Any]
Frame = npt.NDArray[np.uint8]

# A model that takes some milliseconds: the wire should not be what is measured.
_STEPS, _CALLERS, _TURNS, _TURN_SECONDS = 2400, 8, 6, 1.0
_SIDE, _CHANNELS, _LAYERS = 224, 32, 4
_SECONDS, _A_SECOND = 20, 30
_BOUND = 0.95
_SCENES = {"still": (0, 1.0), "stillAtTheBound": (0, 2.4), "stillInTheDark": (0, 3.0), "moving": (2, 1.0)}
"""Columns that the camera turns from frame to frame, and the deviation of the sensor's noise, in steps of 8 bits."""


async def repeated(folder: Path, rounds: int) -> list[Row]:
    """The rate of one input over and over, and of ever new ones, over that of a worker without a cache; by turns."""
    plain, cached = loopback.address(1), loopback.address(2)
    with worker(folder, plain, steps=_STEPS), worker(folder, cached, steps=_STEPS, cache=AnswerCache()):
        for address in (plain, cached):
            await answers(address, HTTP_PORT, PATH)
        return [await _turns(plain, cached, inputs) for _ in range(rounds) for inputs in ("repeated", "new")]


async def _turns(plain: str, cached: str, inputs: str) -> Row:
    rates = {plain: 0.0, cached: 0.0}
    for number in range(_TURNS):
        for address in sorted(rates, reverse=bool(number % 2)):
            seen = await _closed_loop(address, _bodies(new=inputs == "new"))
            rates[address] += seen.rate / _TURNS
    ratio = rates[cached] / rates[plain]
    return {
        "part": "cache",
        "inputs": inputs,
        "plain": round(rates[plain]),
        "cached": round(rates[cached]),
        "ratio": round(ratio, 2),
    }


_numbers = itertools.count()


def _bodies(*, new: bool) -> Iterator[bytes]:
    while True:
        first = next(_numbers) if new else 0.5
        yield json.dumps({"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [first] * WIDTH}]}).encode()


async def _closed_loop(address: str, bodies: Iterator[bytes]) -> Seen:
    seen, end = Seen(), time.perf_counter() + _TURN_SECONDS

    async def call() -> None:
        caller = await connect(address, HTTP_PORT)
        while (begun := time.perf_counter()) < end:
            status, _ = await caller.ask(request(next(bodies), PATH))
            seen.answers.append((time.perf_counter() - begun, status))
        caller.close()

    begun = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(_CALLERS)))
    seen.seconds = time.perf_counter() - begun
    return seen


async def frames(folder: Path, rounds: int) -> list[Row]:
    """Frames of four scenes, 30 a second, to a worker that may use answers again and to one that may not."""
    plain, cached = loopback.address(1), loopback.address(2)
    model, cache = _net(), AnswerCache(frames=FrameReuse(similarity=_BOUND))
    with worker(folder, plain, model_file=model), worker(folder, cached, model_file=model, cache=cache):
        for address in (plain, cached):
            await asyncio.to_thread(_until_answered, address)
        return [row for number in range(rounds) for row in await asyncio.to_thread(_watch, plain, cached, number)]


def _watch(plain: str, cached: str, number: int) -> list[Row]:
    """Each scene by itself, since all of them would be more frames than two cores take."""
    photograph: Frame = load_sample_image("china.jpg")
    connections = [http.client.HTTPConnection(address, HTTP_PORT) for address in (plain, cached)]
    found = []
    for scene in _SCENES:
        taken = _frames(photograph, scene, np.random.default_rng(number))
        found.append(_shown(connections, taken, scene, f"{scene}-{number}"))
    return found


def _frames(photograph: Frame, scene: str, draw: np.random.Generator) -> list[Frame]:
    """What the camera sees."""
    step, deviation = _SCENES[scene]
    found = []
    for number in range(_SECONDS * _A_SECOND):
        left = number * step % (photograph.shape[1] - _SIDE)
        view = photograph[100 : 100 + _SIDE, left : left + _SIDE]
        found.append(np.clip(np.rint(view + draw.normal(0, deviation, view.shape)), 0, 255).astype(np.uint8))
    return found


def _shown(connections: list[http.client.HTTPConnection], taken: list[Frame], scene: str, stream: str) -> Row:
    """Send each frame to both workers when it is due, the first by turns, and judge what was said of it."""
    seconds: tuple[list[float], list[float]] = ([], [])
    told, begun = [], time.perf_counter()
    for number, frame in enumerate(taken):
        time.sleep(max(0.0, begun + number / _A_SECOND - time.perf_counter()))
        for side in (0, 1) if number % 2 else (1, 0):
            asked = time.perf_counter()
            answer = _ask(connections[side], frame, stream)
            seconds[side].append(time.perf_counter() - asked)
            if side:
                told.append(answer)
    took = time.perf_counter() - begun
    again = _likenesses(taken, told)
    plain, cached = (round(float(np.median(each)) * 1e3, 2) for each in seconds)
    runs = len(taken) - len(again)
    return {
        "part": "frames",
        "scene": scene,
        "frames": len(taken),
        "runs": runs,
        "framesPerRun": round(len(taken) / runs, 1),
        "framesASecond": round(len(taken) / took, 1),
        "belowBound": sum(likeness < _BOUND for likeness in again),
        "leastLikeness": round(min(again, default=1.0), 4),
        "plainP50Ms": plain,
        "cachedP50Ms": cached,
    }


def _likenesses(taken: list[Frame], told: list[tuple[str, bytes]]) -> list[float]:
    """How like each frame whose answer was used again is to the one that the answer was computed from, known by the answer."""
    found: list[float] = []
    computed: dict[bytes, Frame] = {}
    for frame, (mark, answer) in zip(taken, told, strict=True):
        if mark:
            found.append(_similarity(computed[answer], frame))
        else:
            computed[answer] = frame
    return found


def _ask(connection: http.client.HTTPConnection, frame: Frame, stream: str) -> tuple[str, bytes]:
    """An answer's mark, and the answer."""
    entry = {"name": "x", "datatype": "UINT8", "shape": [1, *frame.shape], "parameters": {"binary_data_size": frame.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"stream_id": stream}}).encode()
    connection.request("POST", PATH, head + frame.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise OSError(body)
    return answer.getheader("inference-cache") or "", body


def _until_answered(address: str) -> None:
    give_up = time.monotonic() + 60
    while True:
        try:
            _ask(http.client.HTTPConnection(address, HTTP_PORT), np.zeros((_SIDE, _SIDE, 3), np.uint8), "first")
            return
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _net() -> bytes:
    """UINT8 [N, 224, 224, 3] through some convolutions to ten numbers: tens of milliseconds on a core."""
    draw = np.random.default_rng(0)
    nodes = [
        helper.make_node("Cast", ["x"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["cast"], ["c0"], perm=[0, 3, 1, 2]),
    ]
    weights = {}
    for layer in range(_LAYERS):
        before, stride = (3, 2) if layer == 0 else (_CHANNELS, 1)
        weights[f"w{layer}"] = draw.normal(0, 0.05, (_CHANNELS, before, 3, 3)).astype(np.float32)
        made = [f"c{layer}", f"w{layer}"]
        nodes.append(helper.make_node("Conv", made, [f"v{layer}"], strides=[stride] * 2, pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"v{layer}"], [f"c{layer + 1}"]))
    nodes.append(helper.make_node("GlobalAveragePool", [f"c{_LAYERS}"], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["y"]))
    pictures = models.tensor("x", TensorProto.UINT8, ["N", _SIDE, _SIDE, 3])
    return models.model(nodes, [pictures], [models.tensor("y", TensorProto.FLOAT, ["N", _CHANNELS])], weights)


_PLACES = np.arange(11) - 5
_WEIGHTS = np.exp(-(_PLACES**2) / (2 * 1.5**2))


def _similarity(one: Frame, other: Frame) -> float:
    """The least SSIM of the channels (Wang et al. 2004), over the windows that lie inside."""
    return min(_of_channel(one[..., c].astype(np.float64), other[..., c].astype(np.float64)) for c in range(3))


def _of_channel(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    def mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        weights = _WEIGHTS / _WEIGHTS.sum()
        found: npt.NDArray[np.float64] = correlate1d(correlate1d(values, weights, axis=0), weights, axis=1)[5:-5, 5:-5]
        return found

    mx, my = mean(x), mean(y)
    vx, vy, both = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float((((2 * mx * my + c1) * (2 * both + c2)) / ((mx * mx + my * my + c1) * (vx + vy + c2))).mean())

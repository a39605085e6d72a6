"""ONNX Runtime and TorchScript on one CUDA device: the same net, the same rows; and what the device's own energy counter says."""

import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bench.gpu.meter import metered
from inference_protocol.messages import ModelSignature, TensorSignature
from inference_worker.engines.engine import Engine, Tensors
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.torchscript import TorchScriptEngine
from inference_worker.warmup import warm_up

CUDA = "CUDAExecutionProvider"
BATCH = 64
ROUNDS = 5
_SECONDS = 3.0
# Declared for the class gpu in the chart's values: what energy is modelled from where nothing measures it.
DECLARED_BUSY_WATTS, DECLARED_IDLE_WATTS = 300.0, 60.0


def compare(onnx_data: bytes, images: Callable[[int], Tensors], side: int) -> dict[str, Any]:
    """Both engines by turns: milliseconds a batch, rows a second, joules a row; then the device at rest."""
    signature = ModelSignature((TensorSignature("x", "FP32", (-1, 3, side, side)),), (TensorSignature("y", "FP32", (-1, 64)),))
    engines: dict[str, Engine] = {
        "onnxruntime": OnnxEngine(onnx_data, providers=(CUDA,), threads=2),
        "torchscript": TorchScriptEngine(in_torchscript(onnx_data), signature, providers=(CUDA,), threads=2),
    }
    found: dict[str, Any] = {name: {"provider": engine.provider} for name, engine in engines.items()}
    for name, engine in engines.items():
        begun = time.perf_counter()
        warm = warm_up(engine, BATCH)
        found[name] |= {
            "warmupSeconds": round(time.perf_counter() - begun, 2),
            "switchMilliseconds": round(warm.switch_seconds * 1e3, 2),
            "millisecondsByRows": {rows: round(seconds * 1e3, 3) for rows, seconds in warm.profile.measured.items()},
            "rounds": [],
        }
    feeds = images(BATCH)
    answers = {name: engine.run(feeds)["y"] for name, engine in engines.items()}
    for _ in range(ROUNDS):
        for name, engine in engines.items():
            found[name]["rounds"].append(_busy(engine, feeds))
    for name in engines:
        rounds = found[name]["rounds"]
        found[name] |= {key: round(statistics.median(one[key] for one in rounds), 4) for key in rounds[0]}
    idle = _idle()
    return {
        "engines": found,
        "largestDifference": float(np.max(np.abs(answers["onnxruntime"] - answers["torchscript"]))),
        "largestAnswer": float(np.max(np.abs(answers["onnxruntime"]))),
        "idleWatts": idle,
        "declaredBusyWatts": DECLARED_BUSY_WATTS,
        "declaredIdleWatts": DECLARED_IDLE_WATTS,
    }


def in_torchscript(data: bytes) -> bytes:
    """The net of convolutions with the weights of its ONNX file."""
    import torch

    weights = [numpy_helper.to_array(one) for one in onnx.load_from_string(data).graph.initializer]
    layers: list[torch.nn.Module] = []
    for weight in weights:
        layer = torch.nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1, bias=False)
        layer.weight.data = torch.from_numpy(weight.copy())
        layers += [layer, torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(net.eval()), buffer)
    return buffer.getvalue()


def _busy(engine: Engine, feeds: Tensors) -> dict[str, float]:
    """Runs of whole batches, for some seconds."""
    engine.run(feeds)
    runs = 0
    with metered() as meter:
        begun = time.perf_counter()
        while time.perf_counter() - begun < _SECONDS:
            engine.run(feeds)
            runs += 1
        seconds = time.perf_counter() - begun
    return {
        "rowsPerSecond": runs * BATCH / seconds,
        "watts": meter.joules / meter.seconds,
        "joulesPerRow": meter.joules / (runs * BATCH),
        "declaredJoulesPerRow": DECLARED_BUSY_WATTS * seconds / (runs * BATCH),
        "utilisation": statistics.mean(meter.shares) if meter.shares else 0.0,
    }


def _idle() -> float:
    with metered() as meter:
        time.sleep(_SECONDS)
    return round(meter.joules / meter.seconds, 1)

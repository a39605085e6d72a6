"""The worker's engine on a real CUDA device: what warming saves, what batching brings, how a batch shrinks when memory is short."""

import gc
import statistics
import time
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from bench.gpu.engines import BATCH, CUDA, ROUNDS, compare
from bench.report import Result, at_least, at_most
from inference_protocol.reasons import WorkerReason
from inference_worker.batching.execute import Execution
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.device import memory
from inference_worker.engines.engine import Cancellation, RunCancelledError, Tensor
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.model import padding
from inference_worker.warmup import Warm, warm_up

SIDE = 224
_LEFT_BYTES = 3 << 30
_COLOCATED = 3


def measure() -> Result:
    """All of it, within one round."""
    data = convolutions()
    # Before anything else uses the device: the first model brings the libraries' memory with it.
    company = beside_each_other(data)
    begun = time.perf_counter()
    engine = OnnxEngine(data, providers=(CUDA,), threads=2)
    loaded = time.perf_counter()
    warm = warm_up(engine, BATCH)
    record: dict[str, Any] = {
        "device": _device(),
        "onnxruntime": ort.__version__,
        "provider": engine.provider,
        "loadSeconds": round(loaded - begun, 3),
        "warmupSeconds": round(time.perf_counter() - loaded, 3),
        "millisecondsByRows": {rows: round(seconds * 1e3, 3) for rows, seconds in warm.profile.measured.items()},
        "whyNotBatched": warm.layout.why,
        "switchMilliseconds": round(warm.switch_seconds * 1e3, 2),
    }
    record["backEnds"] = compare(data, images, SIDE)
    record |= company
    record |= changing_rows(engine, warm)
    record |= cancelled(engine, data)
    record |= short_of_memory(data)
    return Result(
        [record],
        [
            at_most(
                "gpu.padding", "time of a stream of batches, filled up, over as they come", record["filledUpOverAsTheyCome"], 0.5
            ),
            at_least("gpu.memory", "rows answered of 2,048 with 3 GiB free", record["rowsAnswered"], 2048),
            at_most(
                "gpu.colocated",
                "most of the device's memory that a model took beside others over what it took alone",
                max(record["besideOthersMebibytes"]) / record["aloneMebibytes"],
                # Devices hand out memory in pieces of two mebibytes.
                1.01,
            ),
            at_most("gpu.memory-again", "runs that found no memory, the second time", record["overflowsAgain"], 0),
        ],
    )


def beside_each_other(data: bytes) -> dict[str, Any]:
    """What a model takes of the device's memory alone, as a worker of its own measures it, and beside others; MiB.

    The first in a process brings the libraries' own memory with it, and that stays when it goes.
    """
    taken, engines = [], []
    for _ in range(1 + _COLOCATED):
        before = _free()
        engine = OnnxEngine(data, providers=(CUDA,), threads=2)
        warm_up(engine, BATCH)
        taken.append(before - _free())
        engines.append(engine)
    full = _free()
    while len(engines) > 1:
        engines.pop().close()
    gc.collect()
    given_back = _free() - full
    engines.pop().close()
    mebibytes = [round(size / 2**20, 1) for size in taken]
    return {
        "aloneMebibytes": mebibytes[0],
        "besideOthersMebibytes": mebibytes[1:],
        "givenBackMebibytes": round(given_back / 2**20, 1),
    }


def _free() -> int:
    found = memory()
    assert found is not None, "the driver does not tell the device's memory"
    return found.free


def convolutions() -> bytes:
    """A net of eight convolutions over images, some 20 GFLOP a row, whose activations are what fills the memory."""
    random = np.random.default_rng(0)
    nodes, weights = [], []
    name, channels = "x", 3
    for layer in range(8):
        wide = 64
        weights.append(
            numpy_helper.from_array((random.standard_normal((wide, channels, 3, 3)) * 0.05).astype(np.float32), f"w{layer}")
        )
        nodes.append(helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        name, channels = f"r{layer}", wide
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["p"]))
    nodes.append(helper.make_node("Flatten", ["p"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])],
        weights,
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return made


def images(rows: int) -> dict[str, Tensor]:
    """Random ones, the same each time."""
    return {"x": np.random.default_rng(rows).random((rows, 3, SIDE, SIDE), dtype=np.float32)}


def changing_rows(engine: OnnxEngine, warm: Warm) -> dict[str, Any]:
    """A stream of batches of ever other sizes: as they come, and filled up by the ski-rental rule."""
    random = np.random.default_rng(1)
    # Bursts: mostly a few rows, now and then many, as a queue gives them.
    stream = [int(rows) for rows in np.minimum(random.geometric(0.15, 120), BATCH)]
    feeds = {rows: images(rows) for rows in set(stream)}
    plain = Execution(engine, warm.layout, prepares=warm.prepares)
    padded = Execution(engine, warm.layout, pad=padding(engine, warm), prepares=warm.prepares)

    def timed(execution: Execution) -> float:
        begun = time.perf_counter()
        for rows in stream:
            execution.run([feeds[rows]], [rows], (), BATCH, Cancellation())
        return time.perf_counter() - begun

    rounds = [(timed(plain), timed(padded)) for _ in range(ROUNDS)]
    return {
        "streamSecondsAsTheyCome": [round(one, 3) for one, _ in rounds],
        "streamSecondsFilledUp": [round(other, 3) for _, other in rounds],
        "filledUpOverAsTheyCome": round(statistics.median(other / one for one, other in rounds), 3),
    }


def cancelled(engine: OnnxEngine, data: bytes) -> dict[str, Any]:
    """How long a run goes on after it was told to end, and whether the next one is right."""
    from threading import Timer

    feeds = images(512)
    engine.run(feeds)
    begun = time.perf_counter()
    engine.run(feeds)
    whole = time.perf_counter() - begun
    cancellation = Cancellation()
    Timer(whole / 4, cancellation.cancel).start()
    begun = time.perf_counter()
    try:
        engine.run(feeds, (), cancellation)
        ended = "ran to its end"
    except RunCancelledError:
        ended = "cancelled"
    took = time.perf_counter() - begun
    cpu = OnnxEngine(data, providers=("CPUExecutionProvider",), threads=8)
    right = np.allclose(engine.run(images(2))["y"], cpu.run(images(2))["y"], rtol=1e-2, atol=1e-3)
    return {
        "wholeRunSeconds": round(whole, 4),
        "cancelledRunSeconds": round(took, 4),
        "cancelled": ended,
        "rightAfterwards": bool(right),
    }


def short_of_memory(data: bytes) -> dict[str, Any]:
    """2,048 rows with 3 GiB free on the device: halves until they fit, remembers, and answers as the CPU does."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    hog = torch.empty(max(0, free - _LEFT_BYTES), dtype=torch.uint8, device="cuda")
    try:
        engine = OnnxEngine(data, providers=(CUDA,), threads=2)
        warm = warm_up(engine, 4)
        ceilings, rows = MemoryCeilings(), 2048
        feeds = images(rows)
        bucket = warm.layout.bucket(feeds, ())
        execution = Execution(engine, warm.layout, prepares=warm.prepares)
        found: dict[str, Any] = {"freeBytes": _LEFT_BYTES}
        for name in ("", "Again"):
            limit = ceilings.limit(bucket, rows, time.monotonic())
            begun = time.perf_counter()
            report = execution.run([feeds], [rows], (), limit, Cancellation())
            found[f"seconds{name}"] = round(time.perf_counter() - begun, 3)
            found[f"overflows{name}"] = len(report.overflows)
            found[f"limit{name}"] = limit
            for size in report.overflows:
                ceilings.failed(bucket, size, time.monotonic())
            (answer,) = report.answers
            if isinstance(answer, Exception):
                raise WorkerError(WorkerReason.OUT_OF_MEMORY, str(answer)) from answer
            last = answer["y"]
        cpu = OnnxEngine(data, providers=("CPUExecutionProvider",), threads=8)
        some = [0, 1023, 2047]
        alone = cpu.run({"x": feeds["x"][some]})["y"]
        agree = np.allclose(last[some], alone, rtol=1e-2, atol=1e-3)
        return found | {"rowsAnswered": len(last) if agree else 0, "ceiling": ceilings.lowest}
    finally:
        del hog


def _device() -> str:
    try:
        import torch

        return str(torch.cuda.get_device_name(0))
    except (ImportError, RuntimeError):
        return "unknown"

"""ONNX Runtime and PyTorch on the device by themselves: what a worker is held against."""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from bench.gpu.nets import BATCH, CLASSES, INPUT, OUTPUT, images

_WARM, _RUNS = 8, 40


def session(path: Path, **options: str) -> ort.InferenceSession:
    """A session as the documentation shows it."""
    return ort.InferenceSession(
        str(path), providers=[("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC", **options})]
    )


def milliseconds(run: Callable[[], object]) -> float:
    """The median of a run, warmed."""
    for _ in range(_WARM):
        run()
    taken = []
    for _ in range(_RUNS):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e3


def measure(path: Path) -> dict[str, Any]:
    """Milliseconds by rows, with copies and bound to the device; images a second of the bound run at BATCH rows."""
    bare = session(path)
    copied, bound = {}, {}
    for rows in (1, 8, 32, BATCH):
        feeds = {INPUT: images(rows)}
        copied[rows] = milliseconds(partial(bare.run, None, feeds))
        binding = bare.io_binding()
        binding.bind_ortvalue_input(INPUT, ort.OrtValue.ortvalue_from_numpy(feeds[INPUT], "cuda", 0))
        out = ort.OrtValue.ortvalue_from_shape_and_type((rows, CLASSES), np.float32, "cuda", 0)
        binding.bind_ortvalue_output(OUTPUT, out)
        bound[rows] = milliseconds(partial(bare.run_with_iobinding, binding))
    return {
        "millisecondsByRows": {rows: round(value, 3) for rows, value in copied.items()},
        "boundMillisecondsByRows": {rows: round(value, 3) for rows, value in bound.items()},
        "boundImagesPerSecond": round(BATCH / bound[BATCH] * 1e3),
    }


def torchscript(path: Path) -> dict[str, Any]:
    """The same of TorchScript, from the host's memory and back."""
    import torch

    module = torch.jit.load(str(path), map_location="cuda").eval()
    batch = torch.from_numpy(images(BATCH))
    with torch.inference_mode():
        taken = milliseconds(lambda: module(batch.to("cuda")).cpu())
    return {"torch": torch.__version__, "milliseconds": round(taken, 3), "imagesPerSecond": round(BATCH / taken * 1e3)}

"""A plug-in provider that does not take this card: the next one of its class serves, and a class without a next one is refused."""

from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import serving
from bench.gpu.nets import images
from bench.gpu.served import answers, worker
from inference_protocol.reasons import WorkerReason
from inference_worker.engines.providers import TENSORRT_RTX, usable
from inference_worker.errors import WorkerError


def measure(net: Path) -> dict[str, Any]:
    """What each class comes to; `lost` and `wrong` count what must not be."""
    found: dict[str, Any] = {"lost": 0, "wrong": 0}
    try:
        found["usable"] = list(usable([TENSORRT_RTX]))
    except WorkerError as error:
        found["alone"] = str(error)
    rows = images(4)
    with worker(net, providers=[TENSORRT_RTX, serving.CUDA]) as fallback, worker(net) as plain:
        found["serves"] = fallback.get("/telemetry")["model"]["provider"]
        mine, right = answers(fallback, rows), answers(plain, rows)
        found["lost"] += mine is None
        found["wrong"] += mine is None or right is None or not np.allclose(mine, right, rtol=1e-3, atol=1e-3)
    try:
        with worker(net, providers=[TENSORRT_RTX]):
            found["wrong"] += 1
    except RuntimeError as error:
        found["refused"] = WorkerReason.PROVIDER_UNAVAILABLE in str(error)
        found["words"] = str(error)[-400:]
    return found

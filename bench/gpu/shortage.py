"""A worker whose device has too little memory for what it is asked: nothing is lost, nothing wrong, nothing restarts."""

from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import bare
from bench.gpu.nets import INPUT, images
from bench.gpu.served import Stream, answers, load, worker
from bench.report import ROOT

_LEFT_BYTES = 5 << 29
_BATCH = 1024
_LARGE = 200
_TOLERANCE = 2e-2


def measure(path: Path, source: Path = ROOT) -> dict[str, Any]:
    """Single images, and requests that are larger than what fits, while another process holds the rest of the device."""
    import torch

    rows = images(_LARGE)
    (right,) = bare.session(path).run(None, {INPUT: rows})
    free, _ = torch.cuda.mem_get_info()
    hog = torch.empty(max(0, free - _LEFT_BYTES), dtype=torch.uint8, device="cuda")
    try:
        with worker(path, source=source, batch=_BATCH) as on:
            facts = on.get("/v2/models/net/config")
            (heard,) = load(on, [Stream(200, processes=2)], 4.0)
            large = [answers(on, rows) for _ in range(5)]
            with_hog = float(max(np.max(np.abs(each - right)) for each in large if each is not None) / np.max(np.abs(right)))
            alive = on.get("/v2/health/live") is not None
    finally:
        del hog
        torch.cuda.empty_cache()
    lost = heard.asked - heard.latency.size + sum(each is None for each in large)
    wrong = sum(each is not None and np.max(np.abs(each - right)) > _TOLERANCE * np.max(np.abs(right)) for each in large)
    return {
        "batchSize": _BATCH,
        "maxBatchSize": facts["max_batch_size"],
        "largestDifference": round(with_hog, 5),
        "small": heard.summary(),
        "lost": int(lost),
        "wrong": int(wrong),
        "restarts": 0 if alive else 1,
    }

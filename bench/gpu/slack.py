"""A batch in the slack of a worker that serves: what it costs the requests, and what the device gets done."""

import hashlib
import json
import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.meter import metered
from bench.gpu.nets import images
from bench.gpu.served import Stream, Worker, load, worker

_TOKEN = "of this worker"
_DEADLINE_MS = 24.0
_SECONDS = 6.0
_ROWS = 12_000
_KINDS = 64
_BATCH = 8
"""Rows of a background run: as long as a request may wait for it."""


def measure(path: Path, rate: float) -> dict[str, Any]:
    """The service's p99 at a rate, alone and with a batch in its slack, by turns; and the batch's images a second meanwhile."""
    with tempfile.TemporaryDirectory(prefix="inference-bench-", dir=path.parent) as name:
        folder = Path(name)
        shutil.copyfile(path, folder / "model.onnx")
        rows = np.tile(images(_KINDS), (-(-_ROWS // _KINDS), 1, 1, 1))[:_ROWS]
        np.save(folder / "rows.npy", rows)
        stream = Stream(rate, deadline_ms=_DEADLINE_MS)
        digest = hashlib.sha256(_TOKEN.encode()).hexdigest()
        looks: list[dict[str, Any]] = []
        with worker(folder / "model.onnx", taskTokenDigest=digest) as on:
            load(on, [Stream(500)], 2.0)
            for turn in range(2):
                looks.append({"background": False, **_look(on, stream)})
                _ask(on, "/tasks", _order(turn))
                before = _completed(on, turn)
                looks.append({"background": True, **_look(on, stream)})
                looks[-1]["backgroundImagesPerSecond"] = round((_completed(on, turn) - before) / _SECONDS)
                _ask(on, "/tasks/stop", {"uid": f"u{turn}", "attempt": 1})
    alone = [look["p99Ms"] for look in looks if not look["background"]]
    beside = [look["p99Ms"] for look in looks if look["background"]]
    return {
        "rate": round(rate),
        "looks": looks,
        "p99OverAlone": round(float(np.median(beside) / np.median(alone)), 3),
        "utilisation": looks[-1]["utilisation"],
    }


def _look(on: Worker, stream: Stream) -> dict[str, Any]:
    with metered() as meter:
        (heard,) = load(on, [stream], _SECONDS)
    return {**heard.summary(), **meter.summary()}


def _completed(on: Worker, turn: int) -> int:
    """Items of a task that are committed."""
    state = _ask(on, "/tasks/wait", {"uid": f"u{turn}", "attempt": 1, "seconds": 0})
    progress = state.get("progress") or (state.get("report") or {}).get("progress") or {}
    return int(progress.get("completed", 0))


def _ask(on: Worker, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{on.http_port}{path}", json.dumps(body).encode(), {"Authorization": f"Bearer {_TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _order(turn: int) -> dict[str, Any]:
    return {
        "namespace": "bench",
        "job": f"background-{turn}",
        "uid": f"u{turn}",
        "attempt": 1,
        "revision": "r",
        "created": "2026-01-01T00:00:00Z",
        "model": {"name": "net", "version": "1", "uri": "pvc://data/model.onnx"},
        "batchSize": _BATCH,
        "task": {"inputUri": "pvc://data/rows.npy", "outputUri": f"pvc://data/out-{turn}"},
    }

"""A run that never ends, on the device: how long until a worker says so, to its callers and for a batch, and that it ends."""

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np

from bench.gpu.served import Worker, worker
from dev.console import wait_until
from tests.process.models import endless

_POISON, _ROWS, _BAD = 1000.0, 80, 32
# A minute, and as long again.
_MOST_SECONDS = 120.0


def measure(**more: Any) -> dict[str, Any]:
    """Seconds from the poisoned request to a worker that is not live, and a batch's last words."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "endless.onnx"
        path.write_bytes(endless())
        rows = np.zeros((_ROWS, 2), np.float32)
        rows[_BAD] = _POISON
        np.save(path.parent / "in.npy", rows)
        task = {"inputUri": "pvc://data/in.npy", "outputUri": "pvc://data/out"}
        with worker(path, batch=8, **more) as serves, worker(path, batch=8, task=task, waits=False, **more) as runs:
            assert _ask(serves, 1.0) == 200
            begun = time.monotonic()
            asking = threading.Thread(target=_ask, args=(serves, _POISON), daemon=True)
            asking.start()
            wait_until(
                "a worker that is not live", lambda: _status(serves, "/v2/health/live") != 200, timeout_seconds=_MOST_SECONDS
            )
            live = time.monotonic()
            said = runs.ended(_MOST_SECONDS)
            asking.join(5.0)
        return {
            "notLiveSeconds": round(live - begun, 1),
            "batch": {key: said.get(key) for key in ("outcome", "reason", "message")},
            "committed": (said.get("progress") or {}).get("completed"),
        }


def _ask(of: Worker, value: float) -> int:
    row = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value, value]}
    return _status(of, "/v2/models/net/infer", json.dumps({"inputs": [row]}).encode(), seconds=_MOST_SECONDS)


def _status(of: Worker, path: str, body: bytes | None = None, *, seconds: float = 5.0) -> int:
    """What is answered; 0 without an answer. A run of microseconds hangs the worker's own loop, as probes then see."""
    asked = Request(f"http://127.0.0.1:{of.http_port}{path}", body, {"Content-Type": "application/json"})
    try:
        with urlopen(asked, timeout=seconds) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except (URLError, OSError):
        return 0

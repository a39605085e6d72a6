"""The worker's engine under a test's control, in the worker's own process: named in a worker's patches, so that it is imported there.

`SCRIPT` holds paths and numbers. A file that exists is an order, so a test gives and takes it back at any time. Only what callers
ask for is touched: the warm-up's runs are not.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference_worker import worker_state
from inference_worker.engines.engine import Cancellation, RunCancelledError, Tensor, Tensors
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.triton.engine import TritonEngine
from inference_worker.model import Loaded
from inference_worker.model import load as _load

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.harness import Place

    Run = Callable[..., dict[str, Tensor]]

SCRIPT: dict[str, Any] = {}
# A scripted run may wait for its test, so it must not happen on the event loop; and there is one at a time, whatever the warm-up
# finds: behind Triton two may pay.
IN_A_THREAD = {"inference_worker.warmup:_INLINE_SECONDS": 0.0, "inference_worker.warmup:_CONCURRENT_WORTH": 1e9}


class Orders:
    """The test's side of a script: files in a directory that its worker looks at."""

    def __init__(self, place: Place) -> None:
        self._root = place.root

    def patches(self, **more: Any) -> dict[str, Any]:
        """What a worker is started with; `more` are keys of the script."""
        names = ("hold", "hold_load", "fail", "fail_load", "die", "runs")
        return {"tests.process.scripted:SCRIPT": {**{name: str(self._root / name) for name in names}, **more}, **IN_A_THREAD}

    def give(self, order: str) -> None:
        (self._root / order).touch()

    def take_back(self, order: str) -> None:
        (self._root / order).unlink()

    @property
    def runs(self) -> list[int]:
        """Rows of every run so far."""
        path = self._root / "runs"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def scripted(run: Run) -> Run:
    """`hold` keeps every run until it is taken back or its callers are gone, `hold-2` only the second; `fail` and `die` end one.

    `rows_that_fit` is the memory.
    """

    def by_script(
        self: Any, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None
    ) -> dict[str, Tensor]:
        if cancellation is None or not SCRIPT:
            return run(self, feeds, wanted, cancellation)
        rows = next(iter(feeds.values())).shape[0]
        with Path(SCRIPT["runs"]).open("a") as log:
            log.write(f"{rows}\n")
        mine = Path(f"{SCRIPT['hold']}-{len(Path(SCRIPT['runs']).read_text().splitlines())}")
        while _ordered("hold") or mine.exists():
            if cancellation.cancelled:
                raise RunCancelledError("told to end")
            time.sleep(0.001)
        if _ordered("die"):
            raise SystemExit
        if _ordered("fail"):
            raise RuntimeError("a fault by order")
        if rows > SCRIPT.get("rows_that_fit", rows):
            raise MemoryError(f"no room for {rows} rows, by order")
        return run(self, feeds, wanted, cancellation)

    return by_script


def load(*args: Any, **more: Any) -> Loaded:
    """`hold_load` keeps a model from being loaded, `fail_load` breaks it in a way that nobody thought of."""
    while SCRIPT and _ordered("hold_load"):
        time.sleep(0.001)
    if SCRIPT and _ordered("fail_load"):
        raise OSError("a fault by order")
    return _load(*args, **more)


def _ordered(order: str) -> bool:
    return Path(SCRIPT[order]).exists()


OnnxEngine.run = scripted(OnnxEngine.run)  # type: ignore[method-assign]
TritonEngine.run = scripted(TritonEngine.run)  # type: ignore[method-assign]
worker_state.load = load  # type: ignore[attr-defined]

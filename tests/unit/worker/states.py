"""A worker's state in one process, with a model from bytes or by hand, and callers of its routes who wait, listen or leave."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inference_protocol.messages import ModelFacts
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.model import Loaded
from inference_worker.serve.health import Health
from inference_worker.serve.http_messages import Request, Response
from inference_worker.serve.inference import Inference
from inference_worker.serve.routes import Routes
from inference_worker.tracing import Tracer
from inference_worker.warmup import Warm, warm_up
from inference_worker.worker_state import WorkerState
from tests.process.harness import a_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_protocol.messages import ModelSource
    from inference_worker.engines.engine import Engine

INFER = "/v2/models/net/infer"
FACTS = ModelFacts("sha256:" + "a" * 64, "CPUExecutionProvider", 0.1, 0.1, 1, 1)
MADE: list[WorkerState] = []
_PATIENCE_SECONDS = 20.0


def real(data: bytes) -> OnnxEngine:
    return OnnxEngine(data, providers=("CPUExecutionProvider",), threads=1)


def an_unloaded_worker_state(*, root: Path = Path("/nowhere"), **config: Any) -> WorkerState:
    """Nothing is loaded."""
    state = WorkerState(msgspec.structs.replace(a_config("pvc://data/m.onnx"), **config), root=root)
    MADE.append(state)
    return state


def loading(state: WorkerState, engine: Engine | Callable[[], Engine], warm: Warm | None = None) -> None:
    """Load `engine` when the worker's model is loaded the next time."""

    async def load(source: ModelSource) -> Loaded:
        made = engine() if callable(engine) else engine
        return Loaded(source, made, warm or warm_up(made, state.config.batch_size), FACTS)

    state.repository._load = load


async def a_worker_state(model: bytes | Engine, warm: Warm | None = None, **config: Any) -> WorkerState:
    """The model is loaded."""
    state = an_unloaded_worker_state(**config)
    loading(state, (lambda: real(model)) if isinstance(model, bytes) else model, warm)
    await state.repository.load("net")
    return state


def routes_of(state: WorkerState, tracer: Tracer | None = None) -> Routes:
    return Routes(state, Inference(tracer or Tracer({})))


class Asking:
    """One request and its caller, in the place of a connection."""

    def __init__(self, routes: Routes | Health, path: str, body: bytes = b"", *, method: str = "GET", **headers: str) -> None:
        self._answered = asyncio.Event()
        self.request = Request(method, path, headers, body, keep_alive=True, arrived=time.monotonic(), connection=self)
        routes.handle(self.request)

    def flush(self) -> None:
        self._answered.set()

    @property
    def answered(self) -> bool:
        return self._answered.is_set()

    async def reply(self) -> Response:
        await asyncio.wait_for(self._answered.wait(), _PATIENCE_SECONDS)
        assert self.request.response is not None
        return self.request.response

    def leave(self) -> None:
        """As a connection does it that is lost."""
        self.request.connection = None
        callback, self.request.on_abandoned = self.request.on_abandoned, None
        if callback is not None:
            callback()


async def ask(routes: Routes | Health, path: str, body: bytes = b"", *, method: str = "GET", **headers: str) -> Response:
    return await Asking(routes, path, body, method=method, **headers).reply()


def inferring(routes: Routes, body: bytes, **headers: str) -> Asking:
    return Asking(routes, INFER, body, method="POST", **headers)


async def infer(routes: Routes, body: bytes, **headers: str) -> Response:
    return await inferring(routes, body, **headers).reply()

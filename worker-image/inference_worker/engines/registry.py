"""The engines there are, by the name of their back end.

Another one needs one file and one line: a module that offers `open_engine(opening) -> Engine`, and its name in ENGINES.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from inference_protocol.messages import Backend
from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import Engine
from inference_worker.engines.opening import Opening
from inference_worker.errors import WorkerError

ENGINES: Mapping[Backend, str] = {
    "onnx": "inference_worker.engines.onnx",
    "torchscript": "inference_worker.engines.torchscript",
    "triton": "inference_worker.engines.triton.engine",
}
"""Modules, imported when they are first asked for: a worker pays only for the engine that it uses."""


class EngineModule(Protocol):
    """What each of these modules offers."""

    def open_engine(self, opening: Opening) -> Engine:
        """The engine, with the model loaded. Raises WorkerError."""
        ...


def open_engine(opening: Opening) -> Engine:
    """Load a model into the back end that the worker was told to use. Raises WorkerError."""
    name = ENGINES.get(opening.config.backend)
    if name is None:
        known = ", ".join(ENGINES)
        raise WorkerError(
            WorkerReason.BACKEND_MISSING,
            f"this worker has no back end {opening.config.backend!r}, only {known}; are operator and worker of one release?",
        )
    return cast(EngineModule, import_module(name)).open_engine(opening)

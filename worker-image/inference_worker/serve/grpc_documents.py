"""What the small calls of gRPC answer with: the worker's documents, and the regions of shared memory."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from inference_worker.errors import RequestError
from inference_worker.model import Model
from inference_worker.serve import documents
from inference_worker.serve.ask import bad, no_version
from inference_worker.serve.documents import Document
from inference_worker.serve.model_config import configuration
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.serve.shared_memory_routes import NO_CUDA
from inference_worker.worker_state import WorkerState


def asked_model(state: WorkerState, name: str, version: str) -> Model:
    """The model that a call names; any version where it names none. Raises RequestError: 404, and 503 while it is not loaded."""
    entry = state.repository.entries.get(name)
    if entry is None:
        text = f"Request for unknown model: {name[:200]!r} is not found; this worker serves {', '.join(state.repository.entries)}"
        raise RequestError(HTTPStatus.NOT_FOUND, text)
    if version and version != entry.source.version:
        raise RequestError(HTTPStatus.NOT_FOUND, no_version(name, version, entry.source.version))
    if entry.model is None:
        text = f"{name} is not loaded: {entry.reason or 'the model is still loading'}"
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return entry.model


def answers(state: WorkerState, shared: SharedMemory) -> dict[str, Callable[[Any], Document]]:
    """What answers a request, by method. Each may raise RequestError."""

    def model(request: Any) -> Model:
        return asked_model(state, request.name, request.version)

    return {
        "ServerLive": lambda _: {"live": state.stuck is None},
        "ServerReady": lambda _: {"ready": state.ready},
        "ModelReady": lambda request: {"ready": _is_ready(state, request)},
        "ServerMetadata": lambda _: documents.server(shared_memory=shared.allowed),
        "ModelMetadata": lambda request: documents.metadata(model(request)),
        "ModelConfig": lambda request: {"config": configuration(model(request))},
        "ModelStatistics": lambda r: documents.statistics(asked_model(state, r.name or state.config.model.name, r.version)),
        "RepositoryIndex": lambda request: {"models": documents.index(state.repository, ready=request.ready)},
        "SystemSharedMemoryStatus": lambda request: {"regions": {str(one["name"]): one for one in shared.status(request.name)}},
        "SystemSharedMemoryRegister": lambda request: _register(shared, request),
        "SystemSharedMemoryUnregister": lambda request: _unregister(shared, request),
        "CudaSharedMemoryStatus": lambda _: {},
        "CudaSharedMemoryRegister": _refuse_cuda,
        "CudaSharedMemoryUnregister": lambda _: {},
    }


def _is_ready(state: WorkerState, request: Any) -> bool:
    try:
        asked_model(state, request.name, request.version)
    except RequestError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise
        return False
    return state.stuck is None and not state.draining


def _register(shared: SharedMemory, request: Any) -> Document:
    shared.register(request.name, request.key, request.offset, request.byte_size)
    return {}


def _unregister(shared: SharedMemory, request: Any) -> Document:
    shared.unregister(request.name)
    return {}


def _refuse_cuda(_: Any) -> Document:
    raise bad(NO_CUDA)

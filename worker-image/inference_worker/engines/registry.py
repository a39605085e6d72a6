"""The engines there are, by the name of their back end. Another one needs a file of its own and a line in ENGINES."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inference_protocol.messages import Backend, ModelSource, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import Engine
from inference_worker.errors import WorkerError


@dataclass(frozen=True, slots=True)
class Opening:
    """What an engine is opened with: a verified file, its digest (`sha256:HEX`), where it came from, what the worker was told.

    `on_hopeless` is for an engine whose problem does not end: the worker ends with the reason. Any thread may call it.
    """

    data: bytes
    digest: str
    source: ModelSource
    config: WorkerConfig
    threads: int
    on_hopeless: Callable[[WorkerError], None] = lambda _: None

    @property
    def steady(self) -> bool:
        """Whether all runs will have one shape, as those of a batch task have."""
        return self.config.task is not None

    @property
    def patient(self) -> bool:
        """Whether it is for batches, which rather wait for what computes than to fail."""
        return self.config.task is not None or bool(self.config.task_token_digest)


def open_engine(opening: Opening) -> Engine:
    """Load a model into the back end that the worker was told to use. Raises WorkerError."""
    engine = ENGINES.get(opening.config.backend)
    if engine is None:
        known = ", ".join(ENGINES)
        raise WorkerError(
            WorkerReason.BACKEND_MISSING,
            f"this worker has no back end {opening.config.backend!r}, only {known}; are operator and worker of one release?",
        )
    return engine(opening)


def _onnx(opening: Opening) -> Engine:
    from inference_worker.engines.graph_cache import cache_for
    from inference_worker.engines.onnx import OnnxEngine

    return OnnxEngine(
        opening.data,
        providers=opening.config.providers,
        threads=opening.threads,
        cache=cache_for(opening.data, opening.digest),
        steady=opening.steady,
    )


def _torchscript(opening: Opening) -> Engine:
    from inference_worker.engines.torchscript import TorchScriptEngine

    return TorchScriptEngine(opening.data, opening.source.signature, providers=opening.config.providers, threads=opening.threads)


def _triton(opening: Opening) -> Engine:
    from inference_worker.engines.triton.engine import TritonEngine

    return TritonEngine(
        opening.data,
        opening.digest,
        opening.config.triton,
        providers=opening.config.providers,
        threads=opening.threads,
        steady=opening.steady,
        patient=opening.patient,
        on_hopeless=opening.on_hopeless,
    )


# Imported when first asked for: a worker pays only for the engine that it uses.
ENGINES: Mapping[Backend, Callable[[Opening], Engine]] = {"onnx": _onnx, "torchscript": _torchscript, "triton": _triton}

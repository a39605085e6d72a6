"""The worker's state, from loading to drained. Ready is true only between warmed up and draining."""

import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inference_protocol.messages import ModelFacts, Telemetry, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker import cpu, fetch
from inference_worker.batch.task import Task
from inference_worker.engine import Engine, Tensor
from inference_worker.errors import WorkerError
from inference_worker.onnx_engine import OnnxEngine
from inference_worker.runner import Runner

_FREE_SIZE = 1


@dataclass(slots=True)
class Loaded:
    """A model that is loaded, verified and warmed."""

    engine: Engine
    runner: Runner
    facts: ModelFacts


class Life:
    """What the worker knows of itself; read by the routes, written by the main program."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.loaded: Loaded | None = None
        self.task: Task | None = None
        self.draining = False

    @property
    def ready(self) -> bool:
        """Loaded, verified, warmed, on the promised provider, and not about to leave."""
        return self.loaded is not None and not self.draining

    def telemetry(self, *, requests: int, failed: int) -> Telemetry:
        """What the operator asks for."""
        loaded, task = self.loaded, self.task
        sketch = task.sketch if task is not None else loaded.runner.sketch if loaded is not None else None
        return Telemetry(
            ready=self.ready,
            draining=self.draining,
            model=self.facts,
            progress=task.progress if task is not None else None,
            sketch=dict(sketch.counts) if sketch is not None else {},
            queued=loaded.runner.waiting if loaded is not None else 0,
            requests_total=requests,
            failed_total=failed,
        )

    @property
    def facts(self) -> ModelFacts | None:
        """What was measured of the model, with the task's throughput once there is one."""
        if self.loaded is None:
            return None
        task = self.task
        if task is None or not task.sketch.total or not task.compute_seconds:
            return self.loaded.facts
        return msgspec.structs.replace(self.loaded.facts, items_per_second=task.sketch.total / task.compute_seconds)


def load(config: WorkerConfig, *, root: Path) -> tuple[Engine, ModelFacts]:
    """Fetch, verify, load and warm the model. Raises WorkerError."""
    begun = time.perf_counter()
    data, digest = fetch.read_verified(
        config.model.uri,
        digest=config.model.digest,
        limit=config.model_limit_bytes,
        missing=WorkerReason.MODEL_NOT_FOUND,
        root=root,
    )
    engine = OnnxEngine(data, providers=config.providers, threads=cpu.usable_cpus())
    del data
    loaded = time.perf_counter()
    rate = warm_up(engine, config.batch_size)
    facts = ModelFacts(
        digest=digest,
        provider=engine.provider,
        load_seconds=loaded - begun,
        warmup_seconds=time.perf_counter() - loaded,
        batch_size=engine.rows or config.batch_size,
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        items_per_second=rate,
    )
    return engine, facts


def warm_up(engine: Engine, batch_size: int) -> float | None:
    """Run one batch of zeros three times: a first run allocates and picks kernels, which no caller should pay for.

    Returns items per second of the quickest, or None for models that refuse zeros (a valid model may: a reshape by its input,
    say), which are ready all the same.
    """
    rows = engine.rows or batch_size
    try:
        feeds = {spec.name: _zeros(spec.shape, spec.dtype, rows) for spec in engine.inputs}
        quickest = min(_timed(engine, feeds) for _ in range(3))
    except (ValueError, RuntimeError):
        return None
    except MemoryError as error:
        raise WorkerError(
            WorkerReason.OUT_OF_MEMORY, f"no memory for a batch of {batch_size}: {error}; lower batchSize or raise the memory limit"
        ) from error
    return rows / quickest


def _timed(engine: Engine, feeds: dict[str, Tensor]) -> float:
    begun = time.perf_counter()
    engine.run(feeds)
    return time.perf_counter() - begun


def _zeros(shape: tuple[int | None, ...], dtype: np.dtype[Any], rows: int) -> Tensor:
    sizes = [rows if i == 0 and d is None else _FREE_SIZE if d is None else d for i, d in enumerate(shape)]
    if dtype.kind == "O":
        return np.full(sizes, b"", dtype=object)
    return np.zeros(sizes, dtype=dtype)

"""The tritonserver beside the worker as an Engine: queue, batches and front stay the worker's, the runs are Triton's."""

import hashlib
import itertools
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from inference_protocol.messages import TritonServer
from inference_protocol.reasons import WorkerReason
from inference_worker.engines import shape_faults
from inference_worker.engines.engine import (
    Cancellation,
    EngineUnavailableError,
    Shapes,
    Tensor,
    Tensors,
    TensorSpec,
    process_memory_bytes,
    zeros_of,
)
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.opening import Opening
from inference_worker.engines.triton import tensors
from inference_worker.engines.triton.client import TritonGoneError, TritonRefusedError
from inference_worker.engines.triton.repository import facts, remove_model, write_model
from inference_worker.engines.triton.server import ServedModel
from inference_worker.engines.triton.supervisor import Supervisor
from inference_worker.errors import WorkerError

log = logging.getLogger(__name__)

_LOAD_SECONDS = 600.0
_TASK_PATIENCE_SECONDS = 20.0
"""How long a batch task waits for a server to come back, before its attempt ends; shorter than the time to drain."""

_CPU = "CPUExecutionProvider"
_STUB_MARKS = ("Stub process", "stub process")
_MEMORY_MARK = "MEMORY: "
_NUMBERS = itertools.count(1)


def open_engine(opening: Opening) -> "TritonEngine":
    """The model of an ONNX file in the tritonserver that the worker was told of. Raises WorkerError."""
    return TritonEngine(opening)


class TritonEngine:
    """One model in the tritonserver. `run` may be called from several threads."""

    platform = "onnx_onnxv1"

    def __init__(self, opening: Opening) -> None:
        """Write the model, wait for the server, load."""
        server = opening.config.triton
        if server is None:
            raise WorkerError(WorkerReason.BACKEND_MISSING, "no tritonserver is beside this worker; was it started by an operator?")
        self._describe(opening.data, opening.beside, defaults=server.platform == "python")
        self._patience_seconds = _TASK_PATIENCE_SECONDS if opening.patient else 0.0
        self._root = Path(server.repository)
        self._name = _name_of(opening.digest)
        self._folder = self._write(opening, server)
        self._model = ServedModel(server.port, self._name)
        try:
            version = self._model.wait_for_server(server.startup_seconds)
            begun = time.monotonic()
            self._model.load(_LOAD_SECONDS)
            load_seconds = time.monotonic() - begun
            self.provider = self._computes(server, version, opening.config.providers[0])
        except BaseException:
            self._forget()
            raise
        self._supervisor = Supervisor(self._model, self._run_zeros, load_seconds=load_seconds, on_hopeless=opening.on_hopeless)
        self._supervisor.start()

    def _describe(self, data: bytes, beside: Mapping[str, bytes], *, defaults: bool) -> None:
        """Inputs, outputs and rows, by the same reading as without Triton: what callers see must not depend on the back end.

        Without `defaults`, inputs that have one keep it: Triton's own ONNX Runtime knows no initializers as inputs.
        """
        reading = OnnxEngine(data, providers=(_CPU,), threads=1, beside=beside)
        self.inputs = tuple(spec for spec in reading.inputs if defaults or not spec.optional)
        self.outputs, self.rows = reading.outputs, reading.rows
        self._graph = reading.graph
        reading.close()
        if not self.inputs:
            raise WorkerError(WorkerReason.MODEL_REFUSED, "Triton takes no model without inputs; use backend: onnx")
        if any(spec.datatype == "BF16" for spec in (*self.inputs, *self.outputs)):
            raise WorkerError(WorkerReason.MODEL_REFUSED, "BF16 tensors can't be passed through Triton here; use backend: onnx")
        self._types = {spec.name: spec.datatype for spec in self.inputs}
        self._all = tuple(spec.name for spec in self.outputs)
        self._scalars = {spec.name for spec in self.outputs if not spec.shape}

    # What computes decides by itself how; nothing is prepared beside its runs.
    device_runs = None

    def stage(self, shapes: Shapes, *, wait: bool = True) -> None:
        """See Engine."""

    def capture(self, feeds: Tensors) -> None:
        """See Engine."""

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:
        """See Engine."""
        return self._graph.mixes(inputs) if self._graph is not None else ""

    def _write(self, opening: Opening, server: TritonServer) -> Path:
        return write_model(
            self._root,
            self._name,
            _files(opening),
            platform=server.platform,
            inputs=self.inputs,
            outputs=self.outputs,
            gpu=opening.config.providers[0] != _CPU,
            parameters=_parameters(opening, server),
        )

    def _computes(self, server: TritonServer, version: str, promised: str) -> str:
        """What really computes, by the model's own word where it has one. Raises WorkerError when that is not what was promised."""
        said = facts(self._folder).get("provider")
        if server.platform == "python" and said != promised:
            raise WorkerError(
                WorkerReason.PROVIDER_UNAVAILABLE,
                f"{promised} was asked for, but Triton's model process computes with {said or 'it does not say what'}; "
                "name an image whose ONNX Runtime has it in backends.triton.image",
            )
        # Triton refuses an instance of KIND_GPU without a GPU, so that the kind which was loaded is the device that computes.
        runtime = "onnxruntime" if server.platform == "onnxruntime" else "python/onnxruntime"
        return f"TritonServer {version} {runtime} {said or promised}"

    @property
    def problem(self) -> str | None:
        """See Engine."""
        return self._supervisor.problem

    @property
    def memory_bytes(self) -> int:
        """The worker's own, and what the model's process had when it was loaded."""
        return process_memory_bytes() + int(facts(self._folder).get("memoryBytes", "0"))

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """See Engine. A run whose server was lost before it answered is tried once more: a model has no memory of it."""
        names = wanted or self._all
        with self._supervisor.under_way():
            try:
                return self._run(feeds, names, cancellation)
            except EngineUnavailableError as error:
                log.warning("a run is tried again: %s", error)
            self._supervisor.wait_for_return(self._patience_seconds)
            return self._run(feeds, names, cancellation)

    def _run_zeros(self, timeout: float) -> None:
        self._run({spec.name: zeros_of(spec, self.rows or 1) for spec in self.inputs}, self._all, None, timeout)

    def _run(
        self, feeds: Tensors, wanted: tuple[str, ...], cancellation: Cancellation | None, timeout: float | None = None
    ) -> dict[str, Tensor]:
        body, head = tensors.request(feeds, self._types, wanted)
        returns = self._supervisor.returns
        try:
            data, head = self._model.infer(body, head, cancellation, timeout)
        except TritonGoneError as error:
            raise self._supervisor.lost(f"Triton does not answer ({error}); it is started anew", returns) from error
        except TritonRefusedError as error:
            raise self._meaning(error, returns) from error
        self._supervisor.answered()
        try:
            found = tensors.answer(data, head)
            return {name: found[name].reshape(()) if name in self._scalars else found[name] for name in wanted}
        except UnicodeDecodeError as error:
            raise RuntimeError(f"the model gave what is no text: {error}") from error
        except (ValueError, KeyError) as error:
            raise RuntimeError(f"Triton's answer can't be read: {error}") from error

    def _meaning(self, error: TritonRefusedError, returns: int) -> Exception:
        text = error.message
        if any(mark in text for mark in _STUB_MARKS):
            return self._supervisor.lost(f"Triton has lost the process that runs the model: {text}", returns)
        if error.status in (404, 503) or "is not ready" in text or "unknown model" in text:
            return self._supervisor.lost(f"Triton does not have the model any more: {text}", returns)
        if _MEMORY_MARK in text:
            return MemoryError(text.partition(_MEMORY_MARK)[2])
        return ValueError(text) if error.status == 400 else shape_faults.of_run(text, self.inputs)

    def close(self) -> None:
        """See Engine."""
        self._supervisor.close()
        self._forget()

    def _forget(self) -> None:
        """Take the model out of Triton, and its files away."""
        self._model.forget()
        remove_model(self._root, self._name)


def _name_of(digest: str) -> str:
    """A name for one opening, so that a reload does not touch the model that still answers."""
    return f"m{digest.removeprefix('sha256:')[:12]}-{os.getpid()}-{next(_NUMBERS)}"


def _files(opening: Opening) -> dict[str, bytes]:
    if taken := {"model.onnx", "model.py", "facts.json"} & opening.beside.keys():
        raise WorkerError(
            WorkerReason.MODEL_REFUSED,
            f"the model keeps weights in {taken.pop()}, a name that Triton needs; rename it, or use backend: onnx",
        )
    return {"model.onnx": opening.data, **opening.beside}


def _parameters(opening: Opening, server: TritonServer) -> dict[str, str]:
    threads = str(opening.threads)
    if server.platform == "onnxruntime":
        return {"intra_op_thread_count": threads, "inter_op_thread_count": "1", "session.intra_op.allow_spinning": "0"}
    providers = ",".join(opening.config.providers)
    digests = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in _files(opening).items()}
    return {"digests": json.dumps(digests), "providers": providers, "threads": threads, "steady": str(int(opening.steady))}

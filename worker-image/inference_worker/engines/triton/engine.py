"""The tritonserver beside the worker as an Engine. The worker's queue, batches and front stay as they are; the runs are Triton's.

A server that dies is started anew by the kubelet, without models: whoever looks after it here (one thread) loads the model again,
runs it once, and lets callers in again. Until then `problem` says what is the matter.
"""

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from inference_protocol.messages import TritonServer
from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import (
    Cancellation,
    EngineUnavailableError,
    Tensor,
    Tensors,
    process_memory_bytes,
    zeros_of,
)
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.triton import tensors
from inference_worker.engines.triton.client import TritonClient, TritonGoneError, TritonRefusedError, TritonSlowError
from inference_worker.engines.triton.repository import facts, remove_model, write_model
from inference_worker.errors import WorkerError

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often the server is asked whether the model is there."""

_PROBE_SHARE = 50.0
"""An idle model is run once in so many times what a run takes: at most that part of the device goes into looking after it."""

_PROBE_PATIENCE_SECONDS = 30.0
"""An idle model that does not answer for longer than this and many times what it took before is held by a run that does not end."""

_ANSWER_SECONDS = 5.0
"""A server that takes longer to say that it is ready is as good as gone."""

_LOAD_SECONDS = 600.0
_RELOAD_SHARE = 10.0
"""What was loaded once is loaded anew within so many times what that took, and within _AWAY_SECONDS: else it will not be."""

_UNLOAD_SECONDS = 10.0
_START_LOOK_SECONDS = 0.02
_TASK_PATIENCE_SECONDS = 20.0
"""How long a batch task waits for a server to come back, before its attempt ends; shorter than the time to drain."""

_AWAY_SECONDS = 60.0
"""How long a worker that serves waits for a server to come back, before it ends and another pod takes its place."""

_CPU = "CPUExecutionProvider"
_STUB_MARKS = ("Stub process", "stub process")
_MEMORY_MARK = "MEMORY: "
_POLL_MARK = "failed to poll"
_NAMES = itertools.count(1)


class _Metadata(msgspec.Struct, frozen=True):
    version: str = "?"


class TritonEngine:
    """One model in the tritonserver. `run` may be called from several threads."""

    platform = "onnx_onnxv1"

    def __init__(
        self,
        data: bytes,
        digest: str,
        server: TritonServer | None,
        *,
        providers: tuple[str, ...],
        threads: int,
        steady: bool,
        patient: bool,
        on_hopeless: Callable[[WorkerError], None],
    ) -> None:
        """Write the model, wait for the server, load. `steady` and `patient` as Opening has them."""
        if server is None:
            raise WorkerError(WorkerReason.BACKEND_MISSING, "no tritonserver is beside this worker; was it started by an operator?")
        self._describe(data)
        self._server = server
        self._on_hopeless = on_hopeless
        self._root = Path(server.repository)
        self._patience = _TASK_PATIENCE_SECONDS if patient else 0.0
        self._client = TritonClient(server.port)
        self._types = {spec.name: spec.datatype for spec in self.inputs}
        self._all = tuple(spec.name for spec in self.outputs)
        self._scalars = {spec.name for spec in self.outputs if not spec.shape}
        # Its own name for each opening, so that a reload does not touch the model that still answers.
        self._name = f"m{digest.removeprefix('sha256:')[:12]}-{os.getpid()}-{next(_NAMES)}"
        self._gpu = providers[0] != _CPU
        self._folder = write_model(
            self._root,
            self._name,
            data,
            platform=server.platform,
            inputs=self.inputs,
            outputs=self.outputs,
            gpu=self._gpu,
            parameters=self._parameters(digest, providers, threads, steady=steady),
        )
        self._changed = threading.Condition()
        self._problem: str | None = None
        self._closed = False
        self._answered = self._probe_seconds = 0.0
        self._running = 0
        try:
            self._wait_for_server()
            begun = time.monotonic()
            self._load(_LOAD_SECONDS)
            self._load_seconds = time.monotonic() - begun
            self.provider = self._computes(providers)
        except BaseException:
            self._forget()
            raise
        threading.Thread(target=self._look_after, name="triton", daemon=True).start()

    def _describe(self, data: bytes) -> None:
        """Inputs, outputs and rows, by the same reading as without Triton: what callers see must not depend on the back end."""
        reading = OnnxEngine(data, providers=(_CPU,), threads=1)
        self.inputs, self.outputs, self.rows = reading.inputs, reading.outputs, reading.rows
        reading.close()
        if not self.inputs:
            raise WorkerError(WorkerReason.MODEL_REFUSED, "Triton takes no model without inputs; use backend: onnx")
        if any(spec.datatype == "BF16" for spec in (*self.inputs, *self.outputs)):
            raise WorkerError(WorkerReason.MODEL_REFUSED, "BF16 tensors can't be passed through Triton here; use backend: onnx")

    def _parameters(self, digest: str, providers: tuple[str, ...], threads: int, *, steady: bool) -> dict[str, str]:
        if self._server.platform == "onnxruntime":
            return {"intra_op_thread_count": str(threads), "inter_op_thread_count": "1", "session.intra_op.allow_spinning": "0"}
        return {"digest": digest, "providers": ",".join(providers), "threads": str(threads), "steady": str(int(steady))}

    @property
    def problem(self) -> str | None:
        """See Engine."""
        return self._problem

    @property
    def memory_bytes(self) -> int:
        """The worker's own, and what the model's process had when it was loaded."""
        return process_memory_bytes() + int(facts(self._folder).get("memoryBytes", "0"))

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """See Engine. A run whose server was lost before it answered is tried once more: a model has no memory of it."""
        names = wanted or self._all
        with self._under_way():
            try:
                return self._run(feeds, names, cancellation)
            except EngineUnavailableError as error:
                log.warning("a run is tried again: %s", error)
            self._wait_for_return()
            return self._run(feeds, names, cancellation)

    @contextlib.contextmanager
    def _under_way(self) -> Iterator[None]:
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1

    def _run(
        self, feeds: Tensors, wanted: tuple[str, ...], cancellation: Cancellation | None, timeout: float | None = None
    ) -> dict[str, Tensor]:
        body, head = tensors.request(feeds, self._types, wanted)
        path = f"/v2/models/{self._name}/infer"
        try:
            data, head = self._client.call("POST", path, body, head_length=head, cancellation=cancellation, timeout=timeout)
        except TritonGoneError as error:
            raise self._lost(f"Triton does not answer ({error}); it is started anew") from error
        except TritonRefusedError as error:
            raise self._meaning(error) from error
        self._answered = time.monotonic()
        try:
            found = tensors.answer(data, head)
            return {name: found[name].reshape(()) if name in self._scalars else found[name] for name in wanted}
        except UnicodeDecodeError as error:
            raise RuntimeError(f"the model gave what is no text: {error}") from error
        except (ValueError, KeyError) as error:
            raise RuntimeError(f"Triton's answer can't be read: {error}") from error

    def _meaning(self, error: TritonRefusedError) -> Exception:
        text = error.message
        if any(mark in text for mark in _STUB_MARKS):
            return self._lost(f"Triton has lost the process that runs the model: {text}")
        if error.status in (404, 503) or "is not ready" in text or "unknown model" in text:
            return self._lost(f"Triton does not have the model any more: {text}")
        if _MEMORY_MARK in text:
            return MemoryError(text.partition(_MEMORY_MARK)[2])
        return ValueError(text) if error.status == 400 else RuntimeError(text)

    def close(self) -> None:
        """See Engine."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._forget()

    # what becomes of the server

    def _lost(self, why: str) -> EngineUnavailableError:
        with self._changed:
            self._problem = why
            self._changed.notify_all()
        return EngineUnavailableError(why)

    def _wait_for_return(self) -> None:
        with self._changed:
            back = self._changed.wait_for(lambda: self._problem is None or self._closed, self._patience)
        if not back or self._closed:
            raise EngineUnavailableError(self._problem or "the model is being unloaded")

    def _look_after(self) -> None:
        away_since: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._problem is not None, LOOK_SECONDS)
                if self._closed:
                    return
            try:
                if self._problem is not None:
                    self._bring_back()
                else:
                    self._look()
                away_since = None
            except (TritonGoneError, TritonRefusedError, WorkerError, EngineUnavailableError) as error:
                self._lost(f"Triton is away, and is waited for: {error}")
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > _AWAY_SECONDS:
                    # Retryable whatever it was: another pod has another server, and a repository of its own.
                    text = f"Triton stayed away for {_AWAY_SECONDS:g} s: {error}; see the log of its container"
                    self._on_hopeless(WorkerError(WorkerReason.BACKEND_UNREACHABLE, text))
                time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """See whether the model answers; while callers are answered, that is known. Raises when it does not."""
        self._client.get(f"/v2/models/{self._name}/ready", timeout=_ANSWER_SECONDS)
        # Triton calls a model ready whose process has died, until the next request meets it. A caller's run that is under way tells
        # as much, and a probe would wait behind it.
        idle = not self._running and time.monotonic() - self._answered > max(LOOK_SECONDS, _PROBE_SHARE * self._probe_seconds)
        if idle:
            self._probe()

    def _bring_back(self) -> None:
        """Load the model anew and run it once, before callers come. Raises while that does not succeed."""
        self._client.get("/v2/health/live", timeout=_ANSWER_SECONDS)
        # A model of which only the process has died would be found unchanged, and left as it is.
        self._unload()
        self._load(max(_AWAY_SECONDS, _RELOAD_SHARE * self._load_seconds))
        self._probe()
        with self._changed:
            self._problem = None
            self._changed.notify_all()
        log.info("Triton is back, and the model with it")

    def _probe(self) -> None:
        begun = time.monotonic()
        # A model that refuses zeros has answered all the same.
        with contextlib.suppress(ValueError, RuntimeError, MemoryError):
            self._run(self._sample(), self._all, None, _PROBE_PATIENCE_SECONDS + _PROBE_SHARE * self._probe_seconds)
        self._answered = time.monotonic()
        self._probe_seconds = self._answered - begun

    def _wait_for_server(self) -> None:
        give_up = time.monotonic() + self._server.startup_seconds
        while True:
            try:
                self._version = msgspec.json.decode(self._client.get("/v2", timeout=_ANSWER_SECONDS), type=_Metadata).version
                # Not /ready: one model that was refused makes the whole server not ready.
                self._client.get("/v2/health/live", timeout=_ANSWER_SECONDS)
                return
            except (TritonGoneError, TritonRefusedError) as error:
                if time.monotonic() > give_up:
                    raise WorkerError(
                        WorkerReason.BACKEND_UNREACHABLE,
                        f"Triton was not ready after {self._server.startup_seconds:g} s: {error}; see the log of its container",
                    ) from error
            time.sleep(_START_LOOK_SECONDS)

    def _load(self, seconds: float) -> None:
        try:
            self._client.post(f"/v2/repository/models/{self._name}/load", timeout=seconds)
        except TritonSlowError as error:
            raise WorkerError(
                WorkerReason.BACKEND_UNREACHABLE,
                f"Triton has not loaded the model within {seconds:g} s; see the log of its container",
            ) from error
        except TritonGoneError as error:
            raise WorkerError(
                WorkerReason.BACKEND_UNREACHABLE, f"Triton went away while it loaded the model: {error}; was its memory short?"
            ) from error
        except TritonRefusedError as error:
            # That is all that it says of them over HTTP.
            hint = (
                "; it can't read its config.pbtxt or its folder, the log of its container says why"
                if _POLL_MARK in str(error)
                else ""
            )
            raise WorkerError(WorkerReason.MODEL_REFUSED, f"Triton refuses the model: {error}{hint}") from error

    def _unload(self) -> None:
        with contextlib.suppress(TritonRefusedError):
            self._client.post(f"/v2/repository/models/{self._name}/unload", timeout=_UNLOAD_SECONDS)

    def _computes(self, providers: tuple[str, ...]) -> str:
        """What really computes, by the model's own word where it has one. Raises WorkerError when that is not what was promised."""
        said = facts(self._folder).get("provider")
        if self._server.platform == "python" and said != providers[0]:
            raise WorkerError(
                WorkerReason.PROVIDER_UNAVAILABLE,
                f"{providers[0]} was asked for, but Triton's model process computes with {said or 'it does not say what'}; "
                "use an image whose ONNX Runtime has it",
            )
        # Triton refuses an instance of KIND_GPU without a GPU, so that the kind which was loaded is the device that computes.
        runtime = "onnxruntime" if self._server.platform == "onnxruntime" else "python/onnxruntime"
        return f"TritonServer {self._version} {runtime} {said or providers[0]}"

    def _sample(self) -> dict[str, Tensor]:
        return {spec.name: zeros_of(spec, self.rows or 1) for spec in self.inputs}

    def _forget(self) -> None:
        """Take the model out of Triton and its files away; a server that is gone has forgotten it already."""
        with contextlib.suppress(TritonGoneError):
            self._unload()
        self._client.close()
        remove_model(self._root, self._name)

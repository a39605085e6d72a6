"""ONNX Runtime as an Engine."""

import contextlib
import logging
from collections.abc import Mapping
from types import MappingProxyType

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as faults

from inference_protocol.reasons import WorkerReason
from inference_worker import device
from inference_worker.engines import external_data, onnx_faults, shape_faults
from inference_worker.engines.alignment import aligned
from inference_worker.engines.device_session import DeviceSession
from inference_worker.engines.engine import (
    Cancellation,
    DeviceRuns,
    RunCancelledError,
    Shapes,
    Stage,
    Tensor,
    Tensors,
    TensorSpec,
    counted,
    process_memory_bytes,
)
from inference_worker.engines.graph_cache import GraphCache, cache_for
from inference_worker.engines.mixing import Graph
from inference_worker.engines.onnx_signature import inputs_and_outputs, optional_inputs
from inference_worker.engines.onnx_values import from_value, to_value
from inference_worker.engines.opening import Opening
from inference_worker.engines.providers import (
    Options,
    forget_engines,
    open_session,
    own_options,
    usable,
    why_dropped,
    with_engine_caches,
)
from inference_worker.errors import WorkerError, out_of_memory
from inference_worker.row_axes import candidates

log = logging.getLogger(__name__)

# Beside ORT_DISABLE_TELEMETRY, which the package sets: nothing about models or data leaves a worker.
ort.disable_telemetry_events()

_LOAD_FAULTS = (
    faults.InvalidProtobuf,
    faults.InvalidGraph,
    faults.InvalidArgument,
    faults.NoSuchFile,
    faults.NotImplemented,
    faults.Fail,
    faults.EPFail,
    faults.RuntimeException,
    # The runtime's own words are not always text once a byte of the file has changed.
    UnicodeDecodeError,
)
_CANCELLED_MARK = "terminate flag"
_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_RUNTIME = f"ONNX Runtime {ort.__version__}"


def open_engine(opening: Opening) -> "OnnxEngine":
    """The session of an ONNX file in ONNX Runtime. Raises WorkerError."""
    return OnnxEngine(
        opening.data,
        beside=opening.beside,
        providers=opening.config.providers,
        options=with_engine_caches(opening.config.providers, opening.config.provider_options, opening.data, opening.beside),
        threads=opening.threads,
        cache=cache_for(opening.data, opening.digest) if not opening.beside else None,
        steady=opening.steady,
        device_memory_bytes=opening.config.device_memory_bytes,
    )


class OnnxEngine:
    """One ONNX Runtime session. The provider in use is checked, because the runtime falls back to CPU without a word."""

    platform = "onnx_onnxv1"
    # The runtime is in this process: while that lives, so does it.
    problem = None

    def __init__(
        self,
        data: bytes,
        *,
        providers: tuple[str, ...],
        options: Mapping[str, Options] = MappingProxyType({}),
        threads: int,
        beside: Mapping[str, bytes] = MappingProxyType({}),
        cache: GraphCache | None = None,
        steady: bool = False,
        device_memory_bytes: int | None = None,
    ) -> None:
        """`providers` come in order of preference: the first that can be had computes. `options` are theirs, over our own.

        `beside` are the files that hold weights, by the names that the model has for them. A device gives the session at most
        `device_memory_bytes`. `steady` says that all runs will have one shape, so that more may be spent on finding the quickest
        way for it.
        """
        external_data.require_readable(data)
        self._beside = beside
        self._steady = steady
        # Each session of a model takes a share of its own.
        self._room = _half_is_free if device_memory_bytes is None else _no_room
        own = {name: own_options(name, steady=steady, limit=device_memory_bytes) for name in providers}
        self._providers = [(name, {**own[name], **options.get(name, {})}) for name in usable(providers)]
        self._session = self._open_first(data, threads, cache)
        self._beside = {}
        self.provider = self._providers[0][0]
        inputs, self.outputs = inputs_and_outputs(self._session)
        likely = candidates(inputs, self.outputs)
        required, self.rows = counted(likely[0] if likely else inputs)
        self.inputs = (*required, *optional_inputs(self._session, required))
        # One row has nobody beside it.
        self.graph = Graph.of(data) if self.rows != 1 else None
        self._all = [spec.name for spec in self.outputs]
        # numpy has no BF16, so the runtime's Python face takes and gives it in its own values only.
        kinds = {spec.datatype for spec in (*self.inputs, *self.outputs)}
        self._own_values = "BF16" in kinds
        _require_takable(kinds)

    def _open_first(self, data: bytes, threads: int, cache: GraphCache | None) -> ort.InferenceSession | DeviceSession:
        """The session on the first provider that can be had, which is the first of `_providers` from then on."""
        while True:
            try:
                return self._open_promised(data, threads, cache)
            except WorkerError as error:
                (first, options), *others = self._providers
                forget_engines(options)
                if not others:
                    raise
                log.warning("%s can't be used (%s); trying %s", first, error.message, others[0][0])
                self._providers = others

    def _open_promised(self, data: bytes, threads: int, cache: GraphCache | None) -> ort.InferenceSession | DeviceSession:
        promised = self._providers[0][0]
        # The runtime would compute on CPUs without a word.
        if promised == _CUDA and (why := device.why_absent()):
            raise WorkerError(WorkerReason.PROVIDER_UNAVAILABLE, f"{promised} was asked for, but {why}")
        session = self._open(data, threads, cache if promised == _CPU else None)
        if (got := session.get_providers()[0]) != promised:
            if isinstance(session, DeviceSession):
                session.close()
            raise WorkerError(
                WorkerReason.PROVIDER_UNAVAILABLE,
                f"{promised} was asked for, but the runtime fell back to {got}: {why_dropped(promised)}",
            )
        return session

    def _open(self, data: bytes, threads: int, cache: GraphCache | None) -> ort.InferenceSession | DeviceSession:
        providers = self._providers
        if providers[0][0] == _CUDA:
            (first, options), *others = providers
            beside = self._beside
            return DeviceSession(
                lambda more: self._open_with([(first, {**options, **more}), *others], data, threads, beside), room=self._room
            )
        if cache is not None and (optimised := cache.get()) is not None:
            options = _options(threads, steady=self._steady)
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            try:
                return ort.InferenceSession(optimised, options, providers=providers)
            except _LOAD_FAULTS:
                cache.drop()
        if cache is not None:
            options = _options(threads, steady=self._steady)
            # A cache that can't be written (a full disk) is no fault of the model: it is loaded once more without.
            with contextlib.suppress(*_LOAD_FAULTS), cache.filling() as path:
                if path is not None:
                    options.optimized_model_filepath = str(path)
                return ort.InferenceSession(data, options, providers=providers)
        return self._open_with(providers, data, threads, self._beside)

    def _open_with(
        self, providers: list[tuple[str, dict[str, str]]], data: bytes, threads: int, beside: Mapping[str, bytes]
    ) -> ort.InferenceSession:
        options = _options(threads, steady=self._steady)
        if beside:
            # From memory: what was verified is what is used, whatever becomes of the files.
            names, contents = list(beside), list(beside.values())
            options.add_external_initializers_from_files_in_memory(names, contents, [len(each) for each in contents])
            # The runtime would copy each weight into the model, which takes long, and where one of 2 GiB has no room.
            if large := external_data.large_weights(data, beside):
                values = [ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind) for array, kind in large.values()]
                options.add_external_initializers(list(large), values)
        try:
            return open_session(data, options, providers)
        except _LOAD_FAULTS as error:
            text = str(error)
            if onnx_faults.no_memory(text):
                what = f"to load the model: {onnx_faults.plain(text)}"
                raise out_of_memory(what, on_cpu=self._providers[0][0] == _CPU) from error
            raise WorkerError(*onnx_faults.of_load(data, text, runtime=_RUNTIME)) from error

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """See Engine."""
        names = list(wanted) if wanted else self._all
        feeds = aligned(feeds)
        options = None
        if cancellation is not None:
            # One for each run: once told to end, such an object ends every later run too.
            options = ort.RunOptions()
            cancellation.bind(lambda: setattr(options, "terminate", True))
        try:
            if self._own_values:
                return self._run_values(feeds, names, options)
            return dict(zip(names, self._session.run(names, feeds, options), strict=True))
        except (faults.InvalidArgument, faults.NotImplemented) as error:
            raise ValueError(onnx_faults.plain(error)) from error
        except UnicodeDecodeError as error:
            # The model's own words or answers; the caller's were text before they came here.
            raise RuntimeError(f"the model gave what is no text: {error}") from error
        except (ValueError, MemoryError):
            raise
        except Exception as error:
            # The runtime has more fault classes than it documents; to the caller they are all one.
            text = str(error)
            if cancellation is not None and cancellation.cancelled and _CANCELLED_MARK in text:
                raise RunCancelledError(onnx_faults.plain(error)) from error
            if onnx_faults.no_memory(text):
                raise MemoryError(onnx_faults.plain(error)) from error
            raise shape_faults.of_run(onnx_faults.plain(error), self.inputs) from error

    def _run_values(self, feeds: Tensors, names: list[str], options: ort.RunOptions | None) -> dict[str, Tensor]:
        values = {name: to_value(array) for name, array in feeds.items()}
        answers = self._session.run_with_ort_values(names, values, options)
        return {name: from_value(answer) for name, answer in zip(names, answers, strict=True)}

    @property
    def _device(self) -> DeviceSession | None:
        return self._session if isinstance(self._session, DeviceSession) and not self._own_values else None

    @property
    def device_runs(self) -> DeviceRuns | None:
        """See Engine."""
        return self._device.runs if self._device is not None else None

    def capture(self, feeds: Tensors) -> None:
        """See Engine."""
        if self._device is not None:
            self._device.capture(feeds)

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        """See Engine."""
        return self._device.stage(shapes, wait=wait) if self._device is not None else None

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:
        """See Engine."""
        return self.graph.mixes(inputs) if self.graph is not None else ""

    @property
    def memory_bytes(self) -> int:
        """See Engine."""
        return process_memory_bytes()

    def close(self) -> None:
        """See Engine."""
        if isinstance(self._session, DeviceSession):
            self._session.close()
        del self._session


def _no_room() -> bool:
    return False


def _half_is_free() -> bool:
    memory = device.memory()
    return memory is not None and memory.free > memory.total / 2


def _require_takable(kinds: set[str]) -> None:
    if kinds >= {"BF16", "BYTES"}:
        raise WorkerError(
            WorkerReason.MODEL_TYPE_UNSUPPORTED,
            "the model has BF16 tensors and strings, which ONNX Runtime's Python interface can't take together; export one of "
            "them as another type",
        )


def _options(threads: int, *, steady: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads burn whole cores that neighbours could use, for microseconds of gain.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # The arena keeps the peak of every shape that it ever saw. With one shape that is what is needed; with many, allocator.py
    # gives nearly its speed without that.
    options.enable_cpu_mem_arena = steady
    options.log_severity_level = 3
    return options

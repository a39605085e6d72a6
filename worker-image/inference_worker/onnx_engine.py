"""ONNX Runtime as an Engine."""

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as faults

from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from inference_worker.engine import Tensor, Tensors, TensorSpec
from inference_worker.errors import WorkerError

# Beside ORT_DISABLE_TELEMETRY, which the package sets: nothing about models or data leaves a worker.
ort.disable_telemetry_events()

_LOAD_FAULTS = (
    faults.InvalidProtobuf,
    faults.InvalidGraph,
    faults.InvalidArgument,
    faults.NoSuchFile,
    faults.NotImplemented,
    faults.Fail,
    faults.RuntimeException,
    # The runtime's own words are not always text once a byte of the file has changed.
    UnicodeDecodeError,
)
_MEMORY_MARKS = ("AllocateRaw", "out of memory", "bad_alloc", "Failed to allocate")


class OnnxEngine:
    """One ONNX Runtime session. The provider in use is checked, because the runtime falls back to CPU without a word."""

    platform = "onnx_onnxv1"

    def __init__(self, data: bytes, *, providers: tuple[str, ...], threads: int) -> None:
        promised = providers[0]
        available = ort.get_available_providers()
        if promised not in available:
            raise WorkerError(
                WorkerReason.PROVIDER_UNAVAILABLE,
                f"{promised} is not in this worker's ONNX Runtime ({', '.join(available)}); use an image that has it, "
                "or configure another execution provider for the accelerator class",
            )
        self._session = self._open(data, providers, threads)
        self.provider = str(self._session.get_providers()[0])
        if self.provider != promised:
            raise WorkerError(
                WorkerReason.PROVIDER_UNAVAILABLE,
                f"{promised} was asked for, but the runtime fell back to {self.provider}; is the device's driver in the pod?",
            )
        try:
            self.inputs = tuple(map(_spec, self._session.get_inputs()))
            self.outputs = tuple(map(_spec, self._session.get_outputs()))
        except UnicodeDecodeError as error:
            raise WorkerError(
                WorkerReason.MODEL_CORRUPT, f"a name in the model is no text ({error}); is the file whole?"
            ) from error

    @staticmethod
    def _open(data: bytes, providers: tuple[str, ...], threads: int) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads burn whole cores that neighbours could use, for microseconds of gain.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            return ort.InferenceSession(data, options, providers=list(providers))
        except _LOAD_FAULTS as error:
            raise WorkerError(WorkerReason.MODEL_CORRUPT, _explain_load(data, str(error))) from error

    @property
    def rows(self) -> int | None:
        """See Engine."""
        firsts = [spec.shape[0] if spec.shape else 1 for spec in self.inputs]
        return None if not firsts or None in firsts else firsts[0]

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """See Engine."""
        names = list(wanted) or [spec.name for spec in self.outputs]
        try:
            return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))
        except (faults.InvalidArgument, faults.NotImplemented) as error:
            raise ValueError(_first_line(error)) from error
        except (ValueError, MemoryError):
            raise
        except Exception as error:
            # The runtime has more fault classes than it documents; to the caller they are all one.
            if any(mark in str(error) for mark in _MEMORY_MARKS):
                raise MemoryError(_first_line(error)) from error
            raise RuntimeError(_first_line(error)) from error


def _spec(node: ort.NodeArg) -> TensorSpec:
    if node.type not in datatypes.ONNX:
        raise WorkerError(
            WorkerReason.MODEL_CORRUPT,
            f"{node.name!r} is a {node.type}, which can't be sent over the protocol; export the model with plain tensors "
            "(scikit-learn: zipmap=False)",
        )
    name = datatypes.ONNX[node.type]
    shape = tuple(d if isinstance(d, int) and d >= 0 else None for d in node.shape)
    return TensorSpec(node.name, name, datatypes.NUMPY[name], shape)


def _explain_load(data: bytes, error: str) -> str:
    if not data:
        return "the model file is empty; upload it again"
    if data.startswith(b"version https://git-lfs"):
        return "the model file is a Git LFS pointer, not the model; fetch it with git lfs pull and upload that"
    if data.lstrip()[:1] in (b"<", b"{"):
        return "the model file is text (HTML, XML or JSON), not ONNX; was an error page saved instead of the model?"
    return f"ONNX Runtime can't load the model: {_first_line(error)}; is the file whole, and ONNX?"


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__

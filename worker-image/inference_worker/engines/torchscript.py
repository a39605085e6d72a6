"""TorchScript as an Engine. PyTorch is an optional part of the image: without it a worker says so, and does nothing else.

A TorchScript file says neither shapes nor names of its tensors, so they come with the model's version, in the order of `forward`'s
arguments and results. Nothing of the file is read by Python's pickle: archives of that kind are refused before PyTorch sees them.
"""

import io
import re
import warnings
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_protocol.messages import ModelSignature, TensorSignature
from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes, device
from inference_worker.engines import shape_faults
from inference_worker.engines.engine import (
    Cancellation,
    Shapes,
    Stage,
    Tensor,
    Tensors,
    TensorSpec,
    counted,
    process_memory_bytes,
    zeros_of,
)
from inference_worker.engines.opening import Opening
from inference_worker.engines.torch_staging import TorchStaging
from inference_worker.errors import WorkerError
from inference_worker.row_axes import candidates

if TYPE_CHECKING:
    import torch

_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_DYNAMIC = re.compile(r"quantized::\w*dynamic\w*|aten::quantize_per_tensor_dynamic|aten::quantized_(?:lstm|gru)\w*")
_MEMORY_MARKS = ("out of memory", "can't allocate memory", "bad_alloc")
# What torch.jit.save writes and torch.save does not.
_MARKS = ("constants.pkl", "data.pkl", "version")


def open_engine(opening: Opening) -> "TorchScriptEngine":
    """The module of a TorchScript file in PyTorch. Raises WorkerError."""
    return TorchScriptEngine(opening.data, opening.source.signature, providers=opening.config.providers, threads=opening.threads)


class TorchScriptEngine:
    """One module. A run can't be interrupted: PyTorch has no way to."""

    platform = "pytorch_libtorch"
    problem = None

    def __init__(self, data: bytes, signature: ModelSignature | None, *, providers: tuple[str, ...], threads: int) -> None:
        """`data` must be verified: loading it runs what is in it."""
        if signature is None:
            raise WorkerError(
                WorkerReason.SIGNATURE_MISMATCH,
                "a TorchScript file does not say what it takes and gives; set signature at its version in the InferenceModel",
            )
        require_torchscript(data)
        self._torch = _require_torch()
        self._device = self._place(providers[0])
        self._torch.set_num_threads(threads)
        self.provider = f"TorchScript {self._torch.__version__} {'CUDA' if self._device == 'cuda' else 'CPU'}"
        inputs = tuple(_spec(tensor) for tensor in signature.inputs)
        self.outputs = tuple(_spec(tensor) for tensor in signature.outputs)
        likely = candidates(inputs, self.outputs)
        self.inputs, self.rows = counted(likely[0] if likely else inputs)
        self._module = self._load(data)
        self._require_fit()
        staged = self._device == "cuda" and all(spec.datatype != "BF16" for spec in (*self.inputs, *self.outputs))
        self._staging = TorchStaging(self._computed) if staged else None

    def _place(self, promised: str) -> str:
        if promised == _CPU:
            return "cpu"
        if promised == _CUDA and (why := device.why_absent()):
            raise WorkerError(WorkerReason.PROVIDER_UNAVAILABLE, f"{promised} was asked for, but {why}")
        if promised != _CUDA or not self._torch.cuda.is_available():
            raise WorkerError(
                WorkerReason.PROVIDER_UNAVAILABLE,
                f"{promised} was asked for, but PyTorch {self._torch.__version__} finds no such device; name an image whose "
                "PyTorch has it in backends.torchscript.image, and see whether the device's driver is in the pod",
            )
        return "cuda"

    def _load(self, data: bytes) -> Any:
        try:
            with warnings.catch_warnings():
                # That the format is an old one is known to whoever chose it.
                warnings.simplefilter("ignore")
                return self._torch.jit.load(io.BytesIO(data), map_location=self._device).eval()
        except (RuntimeError, ValueError) as error:
            raise WorkerError(
                WorkerReason.MODEL_CORRUPT, f"PyTorch can't load the model: {_first_line(error)}; is the file whole?"
            ) from error

    def _require_fit(self) -> None:
        """Raise WorkerError SIGNATURE_MISMATCH when the module is not what the signature says."""
        arguments = self._module.forward.schema.arguments[1:]
        needed = sum(not argument.has_default_value() for argument in arguments)
        if not needed <= len(self.inputs) <= len(arguments):
            names = ", ".join(argument.name for argument in arguments)
            raise _mismatch(f"its forward takes {len(arguments)} inputs ({names}), the signature has {len(self.inputs)}")
        sample = {spec.name: zeros_of(spec, self.rows or 1) for spec in self.inputs}
        try:
            answers = self.run(sample)
        except MemoryError:
            return
        except (ValueError, RuntimeError) as error:
            if all(size is not None or axis == spec.batch_axis for spec in self.inputs for axis, size in enumerate(spec.shape)):
                raise _mismatch(f"it refuses zeros of the signature's own shapes: {error}") from error
            # With sizes of 1 where any is allowed, a right one may refuse them (a convolution, say).
            return
        for spec in self.outputs:
            array = answers[spec.name]
            if array.dtype != spec.dtype or array.ndim != len(spec.shape):
                raise _mismatch(
                    f"output {spec.name!r} is {datatypes.name_of(array)} of shape {list(array.shape)}, not {spec.datatype} of "
                    f"{spec.wire_shape}"
                )

    # PyTorch decides by itself how.
    device_runs = None

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        """See Engine."""
        asked = dict(shapes)
        if self._staging is None or any(spec.name not in asked or not _fits(asked[spec.name], spec) for spec in self.inputs):
            return None
        return self._staging.stage([(spec.name, asked[spec.name], spec.dtype) for spec in self.inputs], wait=wait)

    def _computed(self, arguments: "Sequence[torch.Tensor]") -> "dict[str, torch.Tensor]":
        try:
            with self._torch.inference_mode():
                return self._named(self._module(*arguments))
        except RuntimeError as error:
            raise self._told(error) from error

    def capture(self, feeds: Tensors) -> None:
        """See Engine."""

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:  # noqa: ARG002
        """See Engine. Dynamically quantised layers take one scale over their whole input, as those of ONNX do."""
        found = _DYNAMIC.search(str(self._module.inlined_graph))
        return f"its operator {found.group()} takes one scale over all rows of a run" if found else ""

    @property
    def memory_bytes(self) -> int:
        """See Engine."""
        return process_memory_bytes()

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:  # noqa: ARG002
        """See Engine."""
        results = self._computed([self._tensor(feeds, spec) for spec in self.inputs])
        try:
            return {name: _array(results[name]) for name in wanted or results}
        except RuntimeError as error:
            raise self._told(error) from error

    def _told(self, error: RuntimeError) -> Exception:
        if any(mark in str(error) for mark in _MEMORY_MARKS):
            return MemoryError(_first_line(error))
        return shape_faults.of_run(_first_line(error), self.inputs)

    def _tensor(self, feeds: Tensors, spec: TensorSpec) -> "torch.Tensor":
        array = feeds.get(spec.name)
        if array is None:
            raise ValueError(f"input {spec.name!r} is missing")
        if array.dtype != spec.dtype:
            raise ValueError(f"input {spec.name!r} is {spec.datatype}, not {array.dtype}")
        if not _fits(array.shape, spec):
            raise ValueError(f"input {spec.name!r}: shape {list(array.shape)} does not fit the model's {spec.wire_shape}")
        if spec.datatype == "BF16":
            # numpy's face of PyTorch has no such type: the same bits go by another name.
            tensor = self._torch.from_numpy(_own(array.view(np.uint16))).view(self._torch.bfloat16)
        else:
            tensor = self._torch.from_numpy(_own(array))
        moved: torch.Tensor = tensor.to(self._device)
        return moved

    def _named(self, result: Any) -> "dict[str, torch.Tensor]":
        names = [spec.name for spec in self.outputs]
        if isinstance(result, dict):
            missing = [name for name in names if name not in result]
            if missing:
                raise RuntimeError(f"the model gives no output {missing[0]!r}; it gives {', '.join(map(str, result))}")
            return {name: result[name] for name in names}
        values: Sequence[Any] = result if isinstance(result, list | tuple) else (result,)
        if len(values) != len(names):
            raise RuntimeError(f"the model gives {len(values)} outputs, the signature has {len(names)}")
        return dict(zip(names, values, strict=True))

    def close(self) -> None:
        """See Engine."""
        if self._staging is not None:
            self._staging.close()
        del self._module


def require_torchscript(data: bytes) -> None:
    """Raise WorkerError unless the bytes are an archive as torch.jit.save writes it; only names of its members are read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise WorkerError(WorkerReason.MODEL_CORRUPT, _explain(data, str(error))) from error
    root = names[0].partition("/")[0] if names else ""
    missing = [mark for mark in _MARKS if f"{root}/{mark}" not in names]
    if missing or not any(name.startswith(f"{root}/code/") for name in names):
        raise WorkerError(
            WorkerReason.MODEL_CORRUPT,
            f"the file is an archive, but no TorchScript ({missing[0] if missing else 'code'} is not in it); torch.save writes "
            "pickles, which are not loaded here: export the model with torch.jit.save",
        )


def _explain(data: bytes, error: str) -> str:
    if not data:
        return "the model file is empty; upload it again"
    if data.startswith(b"version https://git-lfs"):
        return "the model file is a Git LFS pointer, not the model; fetch it with git lfs pull and upload that"
    if data.startswith(b"\x80"):
        return "the model file is a Python pickle, which is not loaded here: export the model with torch.jit.save"
    return f"the model file is no TorchScript archive ({error}); is the file whole, and TorchScript?"


def _require_torch() -> Any:
    if find_spec("torch") is None:
        raise WorkerError(
            WorkerReason.BACKEND_MISSING,
            "this worker's image has no PyTorch; build it with requirements-torchscript.txt and set backends.torchscript.image",
        )
    import torch

    return torch


def _spec(tensor: TensorSignature) -> TensorSpec:
    if tensor.datatype not in datatypes.NUMPY or tensor.datatype == "BYTES":
        raise _mismatch(f"{tensor.name!r} is {tensor.datatype}, which PyTorch has no tensors of")
    shape = tuple(None if size < 0 else size for size in tensor.shape)
    return TensorSpec(tensor.name, tensor.datatype, datatypes.NUMPY[tensor.datatype], shape, None)


def _fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    return len(shape) == len(spec.shape) and all(wanted in (None, had) for wanted, had in zip(spec.shape, shape, strict=True))


def _own(array: Tensor) -> Tensor:
    """Contiguous and writable, as PyTorch wants it: what came by the network is neither's to change."""
    return np.require(array, requirements=("C", "W"))


def _array(tensor: "torch.Tensor") -> Tensor:
    tensor = tensor.detach().cpu().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":
        import torch

        words: Tensor = tensor.view(torch.uint16).numpy()
        return words.view(datatypes.NUMPY["BF16"])
    array: Tensor = tensor.numpy()
    return array


def _mismatch(text: str) -> WorkerError:
    return WorkerError(WorkerReason.SIGNATURE_MISMATCH, f"the model is not what its signature says: {text}; correct the signature")


def _first_line(error: object) -> str:
    # TorchScript tells where in the model first, and what in the end.
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__

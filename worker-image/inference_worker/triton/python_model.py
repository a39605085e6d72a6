"""model.py of Triton's Python back end: one ONNX Runtime session. Written into the model repository; runs beside the worker.

Nothing of the worker may be imported here. Faults carry the code that tells whose they are: INVALID_ARG the request's, else the
model's; lack of memory begins with MEMORY.
"""

import hashlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

# The stub's interpreter has its own ideas of where packages are.
sys.path[:0] = [part for part in os.environ.get("INFERENCE_PYTHON_PATH", "").split(os.pathsep) if part]

import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
import triton_python_backend_utils as pb  # type: ignore[import-not-found]  # noqa: E402
from onnxruntime.capi import onnxruntime_pybind11_state as faults  # noqa: E402

ort.disable_telemetry_events()
# The stub of Triton 2.51 was built with numpy 1, and reads wrong sizes from arrays of numpy 2; by DLPack nothing of that is read.
_NUMPY_2 = int(np.__version__.partition(".")[0]) >= 2
_MEMORY_MARKS = ("AllocateRaw", "out of memory", "bad_alloc", "Failed to allocate")


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Check the file once more, load it, and say what computes. Raises what Triton gives as the reason."""
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        folder = Path(args["model_repository"]) / args["model_version"]
        data = (folder / "model.onnx").read_bytes()
        if (found := f"sha256:{hashlib.sha256(data).hexdigest()}") != parameters["digest"]:
            raise pb.TritonModelException(f"model.onnx is {found}, but {parameters['digest']} was verified")
        providers = parameters["providers"].split(",")
        self._session = ort.InferenceSession(data, _options(parameters), providers=providers)
        provider = self._session.get_providers()[0]
        if provider != providers[0]:
            raise pb.TritonModelException(f"{providers[0]} was asked for, but ONNX Runtime fell back to {provider}")
        if _NUMPY_2 and any(tensor["data_type"] == "TYPE_STRING" for tensor in (*config["input"], *config["output"])):
            raise pb.TritonModelException("strings pass through this Triton with numpy 1 only; use backend: onnx, or such an image")
        self._texts = {tensor["name"] for tensor in config["input"] if tensor["data_type"] == "TYPE_STRING"}
        # Triton has no scalars: by its configuration they are tensors of one element.
        self._scalars = {node.name for node in self._session.get_inputs() if not node.shape}
        self._names = [tensor["name"] for tensor in config["input"]]
        facts = {
            "provider": provider,
            "runtime": ort.__version__,
            "memoryBytes": str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        }
        (folder / "facts.json").write_text(json.dumps(facts))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself: the worker has put together what goes together."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        names = list(request.requested_output_names())
        try:
            feeds = {name: self._input(request, name) for name in self._names}
            answers = self._session.run(names, feeds)
        except (faults.InvalidArgument, faults.NotImplemented, ValueError) as error:
            return _refusal(str(error), pb.TritonError.INVALID_ARG)
        except Exception as error:  # noqa: BLE001 -- an exception that left here would take the whole batch of requests with it
            short = isinstance(error, MemoryError) or any(mark in str(error) for mark in _MEMORY_MARKS)
            return _refusal(f"{'MEMORY: ' if short else ''}{error}", pb.TritonError.INTERNAL)
        return pb.InferenceResponse([_output(name, array) for name, array in zip(names, answers, strict=True)])

    def _input(self, request: Any, name: str) -> Any:
        array: Any
        tensor = pb.get_input_tensor_by_name(request, name)
        array = np.from_dlpack(tensor) if _NUMPY_2 else tensor.as_numpy()
        if name in self._scalars:
            array = array.reshape(())
        if name not in self._texts:
            return array
        return _objects([value.decode() for value in array.ravel()], array.shape)


def _output(name: str, array: Any) -> Any:
    if array.dtype.kind == "O":
        values = [value.encode() if isinstance(value, str) else value for value in array.ravel()]
        return pb.Tensor(name, _objects(values, array.shape or (1,)))
    array = np.ascontiguousarray(array).reshape(array.shape or (1,))
    # What is empty counts as not contiguous there.
    return pb.Tensor.from_dlpack(name, array) if _NUMPY_2 and array.size else pb.Tensor(name, array)


def _objects(values: list[Any], shape: tuple[int, ...]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def _refusal(text: str, code: Any) -> Any:
    return pb.InferenceResponse(error=pb.TritonError(text.strip()[:500], code))


def _options(parameters: dict[str, str]) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(parameters["threads"])
    options.inter_op_num_threads = 1
    # As in the worker: spinning threads burn cores that neighbours could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = parameters["steady"] == "1"
    options.log_severity_level = 3
    return options

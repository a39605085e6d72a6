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
_MEMORY_MARKS = ("AllocateRaw", "out of memory", "bad_alloc", "Failed to allocate")


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Check the file once more, load it, and say what computes. Raises what Triton gives as the reason."""
        if not np.__version__.startswith("1."):
            # The stub was built with it, and reads wrong sizes from newer arrays.
            raise pb.TritonModelException(f"this Triton takes arrays of numpy 1, and numpy {np.__version__} is installed beside it")
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        folder = Path(args["model_repository"]) / args["model_version"]
        files = {name: _verified(folder / name, digest) for name, digest in json.loads(parameters["digests"]).items()}
        data = files.pop("model.onnx")
        providers = parameters["providers"].split(",")
        options = _options(parameters)
        if files:
            contents = list(files.values())
            options.add_external_initializers_from_files_in_memory(list(files), contents, [len(each) for each in contents])
        self._session = ort.InferenceSession(data, options, providers=providers)
        provider = self._session.get_providers()[0]
        if provider != providers[0]:
            raise pb.TritonModelException(f"{providers[0]} was asked for, but ONNX Runtime fell back to {provider}")
        self._texts = {tensor["name"] for tensor in config["input"] if tensor["data_type"] == "TYPE_STRING"}
        # Triton has no scalars: by its configuration they are tensors of one element.
        nodes = (*self._session.get_inputs(), *self._session.get_overridable_initializers())
        self._scalars = {node.name for node in nodes if not node.shape}
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
            given = {name: pb.get_input_tensor_by_name(request, name) for name in self._names}
            # What is left out has a default in the file: Triton refuses a request without any other.
            feeds = {name: self._array(tensor, name) for name, tensor in given.items() if tensor is not None}
            answers = self._session.run(names, feeds)
        except UnicodeDecodeError as error:
            # The worker sends nothing but text.
            return _refusal(f"the model gave what is no text: {error}", pb.TritonError.INTERNAL)
        except (faults.InvalidArgument, faults.NotImplemented, ValueError) as error:
            return _refusal(str(error), pb.TritonError.INVALID_ARG)
        except Exception as error:  # noqa: BLE001 -- an exception that left here would take the whole batch of requests with it
            short = isinstance(error, MemoryError) or any(mark in str(error) for mark in _MEMORY_MARKS)
            return _refusal(f"{'MEMORY: ' if short else ''}{error}", pb.TritonError.INTERNAL)
        return pb.InferenceResponse([_output(name, array) for name, array in zip(names, answers, strict=True)])

    def _array(self, tensor: Any, name: str) -> Any:
        array = tensor.as_numpy()
        if name in self._scalars:
            array = array.reshape(())
        if name not in self._texts:
            return array
        return _objects([value.decode() for value in array.ravel()], array.shape)


def _output(name: str, array: Any) -> Any:
    if array.dtype.kind == "O":
        values = [value.encode() if isinstance(value, str) else value for value in array.ravel()]
        return pb.Tensor(name, _objects(values, array.shape or (1,)))
    return pb.Tensor(name, np.ascontiguousarray(array).reshape(array.shape or (1,)))


def _objects(values: list[Any], shape: tuple[int, ...]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def _verified(path: Path, digest: str) -> bytes:
    data = path.read_bytes()
    if (found := f"sha256:{hashlib.sha256(data).hexdigest()}") != digest:
        raise pb.TritonModelException(f"{path.name} is {found}, but {digest} was verified")
    return data


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

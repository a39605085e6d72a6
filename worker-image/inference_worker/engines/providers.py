"""ONNX Runtime's execution providers: which of those asked for this worker has, what each is set to, and where engines are kept.

An engine of TensorRT is good for one model, one driver, one kind of device and one set of options, so all of these are in its key.
Building one takes minutes, loading it seconds.
"""

import ctypes
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import onnxruntime as ort

from inference_protocol.reasons import WorkerReason
from inference_worker import device
from inference_worker.device import DeviceKind
from inference_worker.engines.graph_cache import DIRECTORY_VARIABLE, is_private
from inference_worker.errors import WorkerError

log = logging.getLogger(__name__)

Options = Mapping[str, str]

TENSORRT = "TensorrtExecutionProvider"
TENSORRT_RTX = "NvTensorRTRTXExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
# Providers that come as a package of their own, which says where its library is.
_PLUGINS = {TENSORRT_RTX: "onnxruntime_ep_nv_tensorrt_rtx", "OpenVINOExecutionProvider": "onnxruntime_ep_openvino"}
# By which pip finds them.
_PACKAGES = {TENSORRT_RTX: "onnxruntime-ep-nv-tensorrt-rtx-cu13", "OpenVINOExecutionProvider": "onnxruntime-ep-openvino"}
# Built in, each with a library that the runtime loads once it is asked for it, and that needs others of the image.
_LIBRARIES = {_CUDA: "libonnxruntime_providers_cuda.so", TENSORRT: "libonnxruntime_providers_tensorrt.so"}
_SHARED_LIBRARY = "libonnxruntime_providers_shared.so"
_RUNTIME_FOLDER = Path(ort.__file__).parent / "capi"
# A pod has 2 GiB for temporary files, and ends when they are more.
_TEMPORARY_LIMIT_BYTES = 1 << 29


_ENGINES = "engines"
_KEY = re.compile(r"[0-9a-f]{64}")
_CACHE_OPTIONS = ("trt_engine_cache_path", "nv_runtime_cache_path")


def usable(asked: Sequence[str]) -> tuple[str, ...]:
    """Return those of the providers asked for that this worker can use, in the same order. Raises WorkerError for none."""
    problems = {name: problem for name in asked if (problem := _problem(name))}
    found = tuple(name for name in asked if name not in problems)
    if not found:
        raise WorkerError(
            WorkerReason.PROVIDER_UNAVAILABLE,
            f"{'; '.join(problems.values())}; use an image and a node that have it, "
            "or configure another execution provider for the accelerator class",
        )
    for problem in problems.values():
        log.warning("%s; using %s", problem, found[0])
    return found


def open_session(data: bytes, options: ort.SessionOptions, providers: Sequence[tuple[str, Options]]) -> ort.InferenceSession:
    """Open a model on usable providers, in their order, each with its options. Raises what the runtime raises.

    The runtime takes a plug-in by its device, never by its name (microsoft/onnxruntime#27832). It gets the first device: a session
    computes on one.
    """
    if not any(name in _PLUGINS for name, _ in providers):
        return ort.InferenceSession(data, options, providers=list(providers))
    devices = {device.ep_name: device for device in reversed(ort.get_ep_devices())}
    for name, given in providers:
        if name in _PLUGINS:
            options.add_provider_for_devices([devices[name]], given)
        elif name != _CPU:
            # The CPU comes last by itself.
            options.add_provider(name, given)
    return ort.InferenceSession(data, options)


def _problem(name: str) -> str:
    """Why this worker can't use a provider; empty where it can."""
    available = ort.get_available_providers()
    if name in available:
        return ""
    if name not in _PLUGINS:
        return f"{name} is not in this worker's ONNX Runtime ({', '.join(available)})"
    if problem := _load_plugin(name):
        return problem
    return (
        ""
        if any(device.ep_name == name for device in ort.get_ep_devices())
        else f"{name} finds no device on this node that the package {_PACKAGES[name]} takes"
    )


@cache
def _load_plugin(name: str) -> str:
    """Make a plug-in known to the runtime, which takes each but once. Return why that can't be; empty where it was done."""
    try:
        package = import_module(_PLUGINS[name])
        ort.register_execution_provider_library(name, package.get_library_path())
    except ImportError:
        return f"{name} is not in this worker's image: install the package {_PACKAGES[name]} there"
    except Exception as error:  # noqa: BLE001 -- the runtime has more fault classes than it documents, and another provider may do
        return f"{name} can't be loaded: {error}"
    return ""


def why_dropped(name: str, folder: Path = _RUNTIME_FOLDER) -> str:
    """Why the runtime does not compute with a provider that it was built with, as far as that shows, and what to do."""
    if name in _LIBRARIES:
        try:
            # Without this one the other lacks symbols, and the loader would name those.
            ctypes.CDLL(str(folder / _SHARED_LIBRARY), mode=ctypes.RTLD_GLOBAL)
            ctypes.CDLL(str(folder / _LIBRARIES[name]))
        except OSError as error:
            return f"this worker's image lacks a library for it ({error}); use an image that has it"
    return "as a rule the node's driver is older than the image's CUDA needs; the worker's log has the runtime's own words"


def own_options(name: str, *, steady: bool, limit: int | None = None) -> dict[str, str]:
    """What a provider is set to unless its class says otherwise. `limit` is its share of the device's memory, in bytes."""
    if name != _CUDA:
        return {}
    # An exhaustive search is a few per cent quicker in the end and four times dearer at each change of shape.
    options = {"cudnn_conv_algo_search": "EXHAUSTIVE" if steady else "HEURISTIC"}
    return options if limit is None else {**options, "gpu_mem_limit": str(limit)}


def with_engine_caches(
    asked: Sequence[str], options: Mapping[str, Options], data: bytes, beside: Mapping[str, bytes], directory: str | None = None
) -> dict[str, dict[str, str]]:
    """Return the options of each provider that has any, with a place for its engines; what the class says of that wins.

    `directory` is by default the one that the environment names, else one for temporary files.
    """
    found = {name: dict(given) for name, given in options.items()}
    for name in {TENSORRT, TENSORRT_RTX} & set(asked):
        given = options.get(name, {})
        place = _place(name, given, data, beside, directory if directory is not None else os.environ.get(DIRECTORY_VARIABLE, ""))
        if place is not None:
            found[name] = {**cache_options(name, place), **given}
    return found


def cache_options(name: str, place: Path) -> dict[str, str]:
    """What tells a provider to keep its engines in a directory."""
    if name == TENSORRT_RTX:
        return {"nv_runtime_cache_path": str(place)}
    return {
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(place),
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": str(place),
    }


def engine_key(digest: str, provider: str, options: Options, *, runtime: str, kind: DeviceKind) -> str:
    """Return the name of the directory of these engines: hexadecimal, another one for each difference in what is given.

    `digest` is that of all that is compiled, and `runtime` ONNX Runtime's version.
    """
    parts = [digest, provider, sorted(options.items()), runtime, kind.driver, kind.name]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def forget_engines(options: Options) -> None:
    """Drop the engines that a provider could not be used with: one that a kill has cut short would stand in its way for ever."""
    for place in {Path(value) for key, value in options.items() if key in _CACHE_OPTIONS}:
        if place.parent.name == _ENGINES and _KEY.fullmatch(place.name):
            shutil.rmtree(place, ignore_errors=True)


def _place(name: str, options: Options, data: bytes, beside: Mapping[str, bytes], directory: str) -> Path | None:
    """The private directory of these engines; None where none is to be had, which costs time only."""
    kind = device.kind()
    if kind is None or (not directory and len(data) + sum(map(len, beside.values())) > _TEMPORARY_LIMIT_BYTES):
        return None
    digest = hashlib.sha256(data)
    for file, weights in sorted(beside.items()):
        digest.update(json.dumps([file, hashlib.sha256(weights).hexdigest()]).encode())
    key = engine_key(digest.hexdigest(), name, options, runtime=ort.__version__, kind=kind)
    place = Path(directory or tempfile.gettempdir()) / _ENGINES / key
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An engine is code, which the runtime reads by itself: who could write here could make the worker run theirs.
        if is_private(place) and is_private(place.parent):
            return place
    log.warning("%s can't be kept private or written, so engines are built anew at each start", place)
    return None

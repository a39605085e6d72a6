"""Execution providers: the first that can be had computes, with its class's options, and engines are kept apart by what they are of."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker import device
from inference_worker.device import DeviceKind, kind_by
from inference_worker.engines import graph_cache, providers
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.providers import TENSORRT, TENSORRT_RTX, engine_key, usable, why_dropped, with_engine_caches
from inference_worker.errors import WorkerError
from tests.process import models
from tests.unit.worker.test_device import Driver

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
H200 = DeviceKind("570.124.06 CUDA 12080", "NVIDIA H200")
MODEL = models.matmul()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the runtime says that it has."""
    found = [TENSORRT, CUDA, CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: list(found))
    monkeypatch.setattr(device, "why_absent", lambda: "")
    return found


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "kind", lambda: H200)


class Sessions:
    """In the place of InferenceSession: has no provider but those of `works`, and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *works: str) -> None:
        self.works = works
        self.given: list[list[tuple[str, dict[str, str]]]] = []
        self._real = onnxruntime.InferenceSession
        monkeypatch.setattr(onnxruntime, "InferenceSession", self)

    def __call__(self, data: bytes, options: Any, *, providers: list[tuple[str, dict[str, str]]]) -> Any:
        self.given.append(providers)
        session = self._real(data, options, providers=[CPU])
        had = [name for name, _ in providers if name in self.works]
        session.get_providers = lambda: [*had, CPU]
        return session

    @property
    def tried(self) -> list[str]:
        return list(dict.fromkeys(given[0][0] for given in self.given))


def test_a_provider_that_the_runtime_lacks_is_passed_over(known: list[str]) -> None:
    known.remove(TENSORRT)

    assert usable((TENSORRT, CUDA)) == (CUDA,)


def test_the_next_provider_is_taken_when_the_first_can_not_be_used(known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT is built into the runtime, and its libraries are not in the image."""
    sessions = Sessions(monkeypatch, CUDA)
    engine = OnnxEngine(MODEL, providers=(TENSORRT, CUDA), threads=1)

    assert engine.provider == CUDA
    assert sessions.tried == [TENSORRT, CUDA]
    engine.close()


def test_a_provider_that_was_not_asked_for_is_never_used(known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch)

    with pytest.raises(WorkerError) as error:
        OnnxEngine(MODEL, providers=(TENSORRT, CUDA), threads=1)
    assert error.value.reason is WorkerReason.PROVIDER_UNAVAILABLE and f"fell back to {CPU}" in error.value.message
    assert sessions.tried == [TENSORRT, CUDA]


def test_the_cpu_is_used_where_it_is_asked_for_last(known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Sessions(monkeypatch)

    assert OnnxEngine(MODEL, providers=(TENSORRT, CUDA, CPU), threads=1).provider == CPU


def test_options_of_the_class_win_over_our_own(known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(monkeypatch, CUDA)
    options = {CUDA: {"cudnn_conv_algo_search": "DEFAULT", "gpu_mem_limit": "1"}}
    OnnxEngine(MODEL, providers=(CUDA,), options=options, threads=1).close()

    first = sessions.given[0][0][1]
    assert (first["cudnn_conv_algo_search"], first["gpu_mem_limit"]) == ("DEFAULT", "1")


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_model_that_no_provider_takes_is_refused_once_all_have_tried(known: list[str]) -> None:
    with pytest.raises(WorkerError) as error:
        OnnxEngine(b"not a model", providers=(TENSORRT, CPU), threads=1)
    assert error.value.reason is not WorkerReason.PROVIDER_UNAVAILABLE


class Plugin:
    """A plug-in in the place of TensorRT's for RTX: its package is installed, and it takes those devices of the node that are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *devices: str, problem: str = "") -> None:
        self.registered: list[tuple[str, str]] = []
        self.problem = problem
        self.devices = [SimpleNamespace(ep_name=TENSORRT_RTX, device=name) for name in devices]
        monkeypatch.setitem(sys.modules, "onnxruntime_ep_nv_tensorrt_rtx", SimpleNamespace(get_library_path=lambda: "/lib/rtx.so"))
        monkeypatch.setattr(onnxruntime, "register_execution_provider_library", self.register)
        monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [SimpleNamespace(ep_name=CPU), *self.devices])

    def register(self, name: str, path: str) -> None:
        if self.problem:
            raise RuntimeError(self.problem)
        self.registered.append((name, path))


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Plug-ins stay loaded for as long as a process lives."""
    yield
    providers._load_plugin.cache_clear()


def test_a_plug_in_is_loaded_once_from_its_package(known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Plugin(monkeypatch, "L4")

    assert usable((TENSORRT_RTX, CUDA)) == (TENSORRT_RTX, CUDA), "though the runtime never lists it"
    assert usable((TENSORRT_RTX,)) == (TENSORRT_RTX,), "a second model"
    assert plugin.registered == [(TENSORRT_RTX, "/lib/rtx.so")]


def test_a_plug_in_gets_the_first_of_its_devices(known: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Plugin(monkeypatch, "L4", "another L4")
    options = Options()
    opened = []
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *given, **more: opened.append((given, more)))
    providers.open_session(b"model", options, [(TENSORRT_RTX, {"nv_a": "1"}), (CUDA, {"b": "2"}), (CPU, {})])

    assert options.added == [([plugin.devices[0]], {"nv_a": "1"}), (CUDA, {"b": "2"})], "and the CPU comes by itself"
    assert opened == [((b"model", options), {})], "named providers would take the place of those of the options"


class Options:
    """In the place of SessionOptions: what was added, in its order."""

    def __init__(self) -> None:
        self.added: list[tuple[Any, dict[str, str]]] = []

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        self.added.append((name, options))

    def add_provider_for_devices(self, devices: list[Any], options: dict[str, str]) -> None:
        self.added.append((devices, options))


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("no libcudart", "can't be loaded: no libcudart"),
        ("", "finds no device on this node that the package onnxruntime-ep-nv-tensorrt-rtx-cu13 takes"),
    ],
)
def test_a_plug_in_that_can_not_be_used_is_passed_over(
    problem: str, told: str, known: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Plugin(monkeypatch, problem=problem)

    assert usable((TENSORRT_RTX, CUDA)) == (CUDA,)
    with pytest.raises(WorkerError, match=f"{TENSORRT_RTX} {told}; use an image and a node that have it"):
        usable((TENSORRT_RTX,))


# Engines.

GIVEN = {"digest": "d", "provider": TENSORRT, "options": {"trt_fp16_enable": "True"}, "runtime": "1.32.0", "kind": H200}
OTHER: dict[str, Any] = {
    "digest": "e",
    "provider": TENSORRT_RTX,
    "options": {"trt_fp16_enable": "False"},
    "runtime": "1.33.0",
    "kind": H200._replace(driver="575.51.03 CUDA 12090"),
    "device": H200._replace(name="NVIDIA H200 MIG 1g.18gb"),
}


def key(**changes: Any) -> str:
    given: dict[str, Any] = {**GIVEN, **changes}
    return engine_key(given.pop("digest"), given.pop("provider"), given.pop("options"), **given)


@pytest.mark.parametrize("part", OTHER)
def test_an_engine_of_something_else_is_never_taken(part: str) -> None:
    assert key(**{"kind" if part == "device" else part: OTHER[part]}) != key()


def test_the_order_of_options_makes_no_other_engine() -> None:
    assert key(options={"a": "1", "b": "2"}) == key(options={"b": "2", "a": "1"})


def place_of(directory: Path, data: bytes = MODEL, beside: dict[str, bytes] | None = None, **options: str) -> str | None:
    found = with_engine_caches((TENSORRT, CUDA), {TENSORRT: options}, data, beside or {}, str(directory))
    assert CUDA not in found
    return found[TENSORRT].get("trt_engine_cache_path")


@pytest.mark.usefixtures("on_device")
def test_tensorrt_keeps_its_engines_in_a_private_directory_of_the_model(tmp_path: Path) -> None:
    found = with_engine_caches((TENSORRT, CUDA), {TENSORRT: {"trt_fp16_enable": "True"}}, MODEL, {}, str(tmp_path))[TENSORRT]
    place = Path(found["trt_engine_cache_path"])

    assert found.items() >= {"trt_fp16_enable": "True", "trt_engine_cache_enable": "True"}.items()
    assert place.is_dir() and place.is_relative_to(tmp_path) and place.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("on_device")
def test_no_engine_comes_from_a_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine is code: another pod of the same user could leave one there."""
    monkeypatch.setattr(graph_cache, "VOLUME_ROOT", str(tmp_path))

    assert place_of(tmp_path / "claim") is None


@pytest.mark.usefixtures("on_device")
def test_each_model_each_precision_and_each_file_of_weights_has_a_place_of_its_own(tmp_path: Path) -> None:
    places = [
        place_of(tmp_path),
        place_of(tmp_path, models.identity()),
        place_of(tmp_path, trt_fp16_enable="True"),
        place_of(tmp_path, beside={"w.bin": b"1"}),
        place_of(tmp_path, beside={"w.bin": b"2"}),
    ]

    assert len(set(places)) == len(places) and place_of(tmp_path) == places[0]


@pytest.mark.usefixtures("on_device")
def test_the_class_may_put_engines_elsewhere(tmp_path: Path) -> None:
    assert place_of(tmp_path, trt_engine_cache_path="/engines") == "/engines"


@pytest.mark.usefixtures("on_device")
def test_tensorrt_rtx_keeps_its_own_kind(tmp_path: Path) -> None:
    found = with_engine_caches((TENSORRT_RTX,), {}, MODEL, {}, str(tmp_path))

    assert set(found[TENSORRT_RTX]) == {"nv_runtime_cache_path"}


@pytest.mark.usefixtures("on_device")
def test_engines_that_others_could_write_are_not_loaded(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    assert place is not None
    Path(place).chmod(0o777)

    assert place_of(tmp_path) is None


@pytest.mark.usefixtures("on_device")
def test_engines_that_could_not_be_used_are_built_anew(known: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed while it writes one leaves half of it, which no later start could load."""
    Sessions(monkeypatch, CUDA)
    options = with_engine_caches((TENSORRT,), {}, MODEL, {}, str(tmp_path))
    place = Path(options[TENSORRT]["trt_engine_cache_path"])
    (place / "half.engine").write_bytes(b"half")
    OnnxEngine(MODEL, providers=(TENSORRT, CUDA), options=options, threads=1).close()

    assert not place.exists()


def test_a_directory_that_the_class_names_is_left_alone(tmp_path: Path) -> None:
    providers.forget_engines({"trt_engine_cache_path": str(tmp_path)})

    assert tmp_path.exists()


@pytest.mark.usefixtures("on_device")
def test_a_large_model_does_not_fill_the_pods_own_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_TEMPORARY_LIMIT_BYTES", 10)

    assert with_engine_caches((TENSORRT,), {}, MODEL, {}, "") == {}
    assert place_of(tmp_path) is not None


def test_without_a_device_there_are_no_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "kind", lambda: None)

    assert place_of(tmp_path) is None


def test_a_device_is_known_by_its_driver_and_its_name() -> None:
    class Named(Driver):
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> int:
                if name == "cuDriverGetVersion":
                    arguments[0]._obj.value = 12080
                if name == "cuDeviceGetName":
                    arguments[0].value = b"NVIDIA H200"
                return 2 if name == self.fails else 0

            return call

    module = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder)"
    assert kind_by(Named(), module) == H200
    assert kind_by(Named()) == H200._replace(driver="CUDA 12080")
    for call in ("cuInit", "cuDeviceGet", "cuDriverGetVersion", "cuDeviceGetName"):
        assert kind_by(Named(call), module) is None


@pytest.mark.parametrize(
    ("provider", "package"),
    [(TENSORRT_RTX, "onnxruntime-ep-nv-tensorrt-rtx-cu13"), ("OpenVINOExecutionProvider", "onnxruntime-ep-openvino")],
)
def test_a_plug_in_that_the_image_lacks_is_told_by_the_name_that_pip_knows(provider: str, package: str, known: list[str]) -> None:
    """The module's name installs nothing."""
    with pytest.raises(WorkerError, match=f"{provider} is not in this worker's image: install the package {package} there"):
        usable((provider,))


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A runtime's folder whose libraries can all be loaded."""
    for name in (providers._SHARED_LIBRARY, *providers._LIBRARIES.values()):
        (tmp_path / name).symlink_to(onnxruntime.capi.onnxruntime_pybind11_state.__file__)
    return tmp_path


def test_a_library_that_the_image_lacks_is_named_in_the_loaders_words(runtime: Path) -> None:
    """The runtime has TensorRT by name wherever it was built in, and said nothing but that the driver may be missing."""
    library = runtime / providers._LIBRARIES[TENSORRT]
    library.unlink()

    assert f"lacks a library for it ({library}: cannot open shared object file" in why_dropped(TENSORRT, runtime)
    assert "library" not in why_dropped(CUDA, runtime)


def test_where_all_libraries_are_there_the_driver_is_looked_at(runtime: Path) -> None:
    assert "driver is older" in why_dropped(CUDA, runtime)
    # A provider without a library of its own, or a plug-in.
    assert "driver is older" in why_dropped("ROCMExecutionProvider", runtime)

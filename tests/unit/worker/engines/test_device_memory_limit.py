"""A worker that has a share of its device's memory keeps to it."""

from typing import Any

import msgspec
import onnxruntime
import pytest

from inference_protocol.messages import WorkerConfig
from inference_worker import device
from inference_worker.engines.opening import Opening
from inference_worker.engines.registry import open_engine
from inference_worker.errors import WorkerError
from tests.process import models
from tests.process.harness import a_config

CUDA = "CUDAExecutionProvider"


def options_of(monkeypatch: pytest.MonkeyPatch, config: WorkerConfig) -> dict[str, str]:
    """With what the runtime is told to open the device."""
    told: list[dict[str, str]] = []

    def session(_data: bytes, _options: Any, *, providers: list[tuple[str, dict[str, str]]]) -> None:
        told.append(dict(providers)[CUDA])
        raise onnxruntime.capi.onnxruntime_pybind11_state.Fail("no device here")

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA])
    monkeypatch.setattr(device, "why_absent", lambda: "")
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    with pytest.raises(WorkerError):
        open_engine(Opening(models.matmul(), "", config.model, config, threads=1, on_hopeless=lambda _: None))
    return told[-1]


def test_the_share_of_the_devices_memory_is_the_runtimes_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    config = msgspec.structs.replace(a_config("pvc://data/m.onnx", providers=(CUDA,)), device_memory_bytes=2 << 30)

    assert options_of(monkeypatch, config)["gpu_mem_limit"] == str(2 << 30)


def test_a_worker_that_has_its_device_alone_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gpu_mem_limit" not in options_of(monkeypatch, a_config("pvc://data/m.onnx", providers=(CUDA,)))

"""The device's memory by its driver: what is asked of it, and that one which does not answer is no fault."""

from typing import Any

import msgspec
import pytest

from inference_worker import device
from inference_worker.device import DeviceMemory, look_by, looker
from tests.process.harness import a_config


class Driver:
    """In the place of libcuda: fails where it is told to, and counts contexts."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.pushed = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == self.fails:
                return 2
            self.pushed += {"cuCtxPushCurrent_v2": 1, "cuCtxPopCurrent_v2": -1}.get(name, 0)
            if name == "cuMemGetInfo_v2":
                free, total = arguments
                free._obj.value, total._obj.value = 60, 80
            return 0

        return call


def test_the_driver_tells_what_is_free() -> None:
    driver = Driver()
    look = look_by(driver)
    assert look is not None

    assert look() == DeviceMemory(60, 80)
    assert driver.pushed == 0


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"])
def test_without_a_device_there_is_nothing_to_look_at(call: str) -> None:
    assert look_by(Driver(call)) is None


@pytest.mark.parametrize("call", ["cuCtxPushCurrent_v2", "cuMemGetInfo_v2"])
def test_a_driver_that_does_not_answer_tells_nothing_and_leaves_no_context(call: str) -> None:
    driver = Driver(call)
    look = look_by(driver)
    assert look is not None

    assert look() is None
    assert driver.pushed == 0


def test_a_worker_on_cpus_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "memory", lambda: DeviceMemory(1, 1))

    on_cpu = a_config("pvc://data/m.onnx")
    on_device = msgspec.structs.replace(on_cpu, providers=("CUDAExecutionProvider", "CPUExecutionProvider"))

    assert looker(msgspec.structs.replace(on_cpu, providers=("CPUExecutionProvider",)))() is None
    assert looker(on_device)() == DeviceMemory(1, 1)
    # There it is the server that computes, and its device need not be the one that this container sees.
    assert looker(msgspec.structs.replace(on_device, backend="triton"))() is None


def test_a_driver_that_is_not_there_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    device._driver.cache_clear()
    monkeypatch.setattr(device, "_DRIVER", "libnone.so.1")
    try:
        assert device.memory() is None
    finally:
        device._driver.cache_clear()

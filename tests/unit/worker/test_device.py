"""The device by its driver: its memory, which it is, why there is none; and that a driver which does not answer is no fault."""

import uuid
from typing import Any

import msgspec
import pytest

from inference_worker import device
from inference_worker.device import DeviceMemory, identity_by, look_by, looker, why_absent_by
from inference_worker.model import device_taken, left_of_device
from tests.process.harness import a_config


class Driver:
    """In the place of libcuda: fails where it is told to, and counts contexts."""

    def __init__(self, fails: str = "", *, code: int = 2, count: int = 1) -> None:
        self.fails = fails
        self.code = code
        self.count = count
        self.pushed = 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == self.fails:
                return self.code
            self.pushed += {"cuCtxPushCurrent_v2": 1, "cuCtxPopCurrent_v2": -1}.get(name, 0)
            if name == "cuMemGetInfo_v2":
                free, total = arguments
                free._obj.value, total._obj.value = 60, 80
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.count
            if name == "cuDeviceGetUuid_v2":
                arguments[0]._obj[:] = list(range(16))
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


def test_the_device_is_the_first_that_the_driver_leaves_visible() -> None:
    assert identity_by(Driver()) == uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDeviceGetUuid_v2"])
def test_a_driver_without_a_device_names_none(call: str) -> None:
    assert identity_by(Driver(call)) is None


def test_a_device_that_is_there_is_not_absent() -> None:
    assert why_absent_by(Driver(), {}) == ""
    # A driver that has a device obeys the variable itself.
    assert why_absent_by(Driver(), {"CUDA_VISIBLE_DEVICES": "GPU-1"}) == ""


NONE_LEFT = Driver("cuInit", code=100)


@pytest.mark.parametrize(
    ("driver", "environment", "says"),
    [
        (None, {}, "has no NVIDIA driver (libcuda.so.1); name the device's resource"),
        (NONE_LEFT, {}, "finds no device in the pod; name the device's resource"),
        (Driver(count=0), {}, "finds no device in the pod"),
        (NONE_LEFT, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES is empty"),
        (NONE_LEFT, {"CUDA_VISIBLE_DEVICES": "GPU-9"}, "CUDA_VISIBLE_DEVICES='GPU-9' names no device that the pod has"),
        (Driver("cuInit", code=803), {"CUDA_VISIBLE_DEVICES": ""}, "fails with CUDA error 803; see what nvidia-smi says"),
        (Driver("cuDeviceGetCount", code=999), {}, "fails with CUDA error 999"),
    ],
    ids=["no driver", "no device", "none counted", "all hidden", "another named", "driver broken", "count broken"],
)
def test_a_device_that_is_absent_is_absent_for_a_reason_that_says_what_to_do(
    driver: Driver | None, environment: dict[str, str], says: str
) -> None:
    assert says in why_absent_by(driver, environment)


@pytest.mark.parametrize(("limit", "left"), [(None, 90), (60, 50), (5, 0), (1000, 90)])
def test_a_worker_offers_no_more_of_a_shared_device_than_its_share(limit: int | None, left: int) -> None:
    assert left_of_device(90, 10, limit) == left


@pytest.mark.parametrize(("free", "limit", "taken"), [(60, None, 40), (60, 100, 40), (60, 30, 30), (120, 30, 0)])
def test_a_model_takes_no_more_than_its_share_though_others_load_meanwhile(free: int, limit: int | None, taken: int) -> None:
    """Two workers of one H200 with 2 GiB each said that their models took 5.7 and 5.2 GB."""
    assert device_taken(DeviceMemory(100, 200), DeviceMemory(free, 200), limit) == taken
    assert device_taken(None, DeviceMemory(free, 200), limit) == 0

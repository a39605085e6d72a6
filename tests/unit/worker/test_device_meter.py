"""The meters of the device by NVML: what is read, what a device does not tell, and that a driver which hangs holds nothing up."""

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from prometheus_client.core import Metric

from inference_protocol.messages import DeviceReading
from inference_worker import device, device_meter
from inference_worker.device_meter import DeviceMeter, find, meter_for
from inference_worker.device_metrics import DeviceCollector
from inference_worker.nvml import meter_by
from tests.process.harness import a_config

DEVICE = uuid.UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
WHOLE = DeviceReading(
    uuid=f"GPU-{DEVICE}",
    name="NVIDIA H200",
    driver="580.95.05",
    compute_capability="9.0",
    utilization=0.37,
    memory_used_bytes=30,
    memory_total_bytes=80,
    energy_joules=5000.25,
    watts=120.5,
)


class Nvml:
    """In the place of libnvidia-ml: fails where it is told to, and lacks what it is told to lack."""

    def __init__(self, *fails: str, kind: str = "GPU", lacks: str = "") -> None:
        self.fails = fails
        self.kind = kind
        self.lacks = lacks

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name == self.lacks:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name in self.fails:
                return 3
            if name == "nvmlDeviceGetHandleByUUID":
                return 0 if arguments[0].startswith(self.kind.encode()) else 6
            _answer(name, arguments)
            return 0

        return call


def _answer(name: str, arguments: tuple[Any, ...]) -> None:
    match name:
        case "nvmlDeviceGetName":
            arguments[1].value = b"NVIDIA H200"
        case "nvmlSystemGetDriverVersion":
            arguments[0].value = b"580.95.05"
        case "nvmlDeviceGetCudaComputeCapability":
            arguments[1]._obj.value, arguments[2]._obj.value = 9, 0
        case "nvmlDeviceGetUtilizationRates":
            arguments[1]._obj.gpu = 37
        case "nvmlDeviceGetMemoryInfo":
            arguments[1]._obj.used, arguments[1]._obj.total = 30, 80
        case "nvmlDeviceGetPowerUsage":
            arguments[1]._obj.value = 120_500
        case "nvmlDeviceGetTotalEnergyConsumption":
            arguments[1]._obj.value = 5_000_250


def read(nvml: Nvml) -> DeviceReading:
    meter = meter_by(nvml, DEVICE)
    assert meter is not None
    return meter()


def test_the_meters_tell_utilisation_memory_power_and_energy() -> None:
    assert read(Nvml()) == WHOLE


def test_a_part_of_a_device_is_found_by_its_own_uuid() -> None:
    assert read(Nvml(kind="MIG")).uuid == f"MIG-{DEVICE}"


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        ("nvmlDeviceGetName", {"name": ""}),
        ("nvmlSystemGetDriverVersion", {"driver": ""}),
        ("nvmlDeviceGetCudaComputeCapability", {"compute_capability": ""}),
        # Of a part of a device there is no utilisation, power or energy.
        ("nvmlDeviceGetUtilizationRates", {"utilization": None}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes": None, "memory_total_bytes": None}),
        ("nvmlDeviceGetPowerUsage", {"watts": None}),
        ("nvmlDeviceGetTotalEnergyConsumption", {"energy_joules": None}),
    ],
)
def test_what_a_device_does_not_tell_is_left_out(call: str, changes: dict[str, Any]) -> None:
    assert read(Nvml(call)) == msgspec.structs.replace(WHOLE, **changes)


def test_a_call_that_an_older_driver_lacks_leaves_its_value_out() -> None:
    lacking = Nvml(lacks="nvmlDeviceGetTotalEnergyConsumption")

    assert read(lacking) == msgspec.structs.replace(WHOLE, energy_joules=None)


@pytest.mark.parametrize("call", ["nvmlInit_v2", "nvmlDeviceGetHandleByUUID"])
def test_without_the_device_there_is_no_meter(call: str) -> None:
    assert meter_by(Nvml(call), DEVICE) is None


def test_without_a_driver_there_is_no_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_DRIVER", "libnone.so.1")

    assert find() is None


def test_a_worker_on_cpus_has_no_meter_and_no_thread_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_meter, "find", lambda: pytest.fail("a worker on CPUs asked for a device"))

    assert meter_for(a_config("pvc://data/m.onnx")) is None


def _newest(meter: DeviceMeter) -> DeviceReading:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if (newest := meter.newest) is not None:
            return newest
        time.sleep(0.001)
    raise AssertionError("the meter has read nothing")


def test_the_newest_reading_says_how_old_it_is() -> None:
    meter = DeviceMeter(lambda: lambda: WHOLE, seconds=60)

    first = _newest(meter)
    time.sleep(0.05)
    later = _newest(meter)
    meter.close()

    assert msgspec.structs.replace(later, age_seconds=0.0) == WHOLE
    assert later.age_seconds >= first.age_seconds + 0.04


def test_a_driver_that_hangs_holds_nobody_up_and_gives_nothing_new() -> None:
    readings = iter([WHOLE])
    hangs = threading.Event()

    def look() -> DeviceReading:
        found = next(readings, None)
        if found is None:
            hangs.wait()
            return WHOLE
        return found

    meter = DeviceMeter(lambda: look, seconds=0.001)
    _newest(meter)
    time.sleep(0.05)
    age = _newest(meter).age_seconds
    meter.close()
    # All of this came while it hung.
    hangs.set()

    assert age >= 0.04


def families(reading: DeviceReading | None) -> dict[str, Metric]:
    return {family.name: family for family in DeviceCollector(lambda: reading).collect()}


def test_the_metrics_tell_what_the_device_tells() -> None:
    told = families(WHOLE)

    values = {family.samples[0].name: family.samples[0].value for family in told.values()}
    assert values == {
        "inference_device_info": 1,
        "inference_device_utilization_ratio": 0.37,
        "inference_device_memory_used_bytes": 30,
        "inference_device_memory_total_bytes": 80,
        "inference_device_power_watts": 120.5,
        "inference_device_energy_joules_total": 5000.25,
        "inference_device_reading_age_seconds": 0,
    }
    assert told["inference_device_info"].samples[0].labels["driver"] == "580.95.05"


def test_what_the_device_does_not_tell_has_no_series() -> None:
    assert families(None) == {}
    assert families(DeviceReading("MIG-1")).keys() == {"inference_device_info", "inference_device_reading_age_seconds"}

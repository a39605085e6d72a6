"""The meters of one NVIDIA device, by the driver's own library (NVML): utilisation, memory, power and energy.

By ctypes, since the library is the node's and comes with its driver, whatever image the worker runs in.
"""

import contextlib
import ctypes
import uuid
from collections.abc import Callable
from typing import Any

from inference_protocol.messages import DeviceReading

_LIBRARY = "libnvidia-ml.so.1"
# A part of a device (MIG) has a uuid of its own, which says no more of what it is than that of a whole one.
_KINDS = ("GPU", "MIG")
_TEXT_BYTES = 96

Meter = Callable[[], DeviceReading]


class _Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t, percent of the last sample period."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def meter_of(device: uuid.UUID) -> Meter | None:
    """What reads the meters of a device; None where there is no NVML, or it does not know the device."""
    try:
        return meter_by(ctypes.CDLL(_LIBRARY), device)
    except OSError:
        return None


def meter_by(nvml: Any, device: uuid.UUID) -> Meter | None:
    """The same by a loaded library. A call that fails, or that this driver lacks, leaves its value out."""
    if nvml.nvmlInit_v2():
        return None
    handle = ctypes.c_void_p()
    names = (f"{kind}-{device}" for kind in _KINDS)
    name = next((name for name in names if not nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))), None)
    if name is None:
        return None
    fixed = DeviceReading(
        uuid=name,
        name=_text(nvml, "nvmlDeviceGetName", handle),
        driver=_text(nvml, "nvmlSystemGetDriverVersion"),
        compute_capability=_capability(nvml, handle),
    )

    def read() -> DeviceReading:
        utilization = _value(nvml, "nvmlDeviceGetUtilizationRates", handle, _Utilization())
        memory = _value(nvml, "nvmlDeviceGetMemoryInfo", handle, _Memory())
        milliwatts = _value(nvml, "nvmlDeviceGetPowerUsage", handle, ctypes.c_uint())
        millijoules = _value(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.c_ulonglong())
        return DeviceReading(
            uuid=fixed.uuid,
            name=fixed.name,
            driver=fixed.driver,
            compute_capability=fixed.compute_capability,
            utilization=min(1.0, utilization.gpu / 100) if utilization is not None else None,
            memory_used_bytes=memory.used if memory is not None else None,
            memory_total_bytes=memory.total if memory is not None else None,
            energy_joules=millijoules.value / 1e3 if millijoules is not None else None,
            watts=milliwatts.value / 1e3 if milliwatts is not None else None,
        )

    return read


def _value(nvml: Any, call: str, handle: ctypes.c_void_p, value: Any) -> Any | None:
    # An older driver lacks the call: ctypes says so by AttributeError.
    with contextlib.suppress(AttributeError):
        return None if getattr(nvml, call)(handle, ctypes.byref(value)) else value
    return None


def _text(nvml: Any, call: str, *handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    return "" if getattr(nvml, call)(*handle, text, _TEXT_BYTES) else text.value.decode(errors="replace")


def _capability(nvml: Any, handle: ctypes.c_void_p) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)):
        return ""
    return f"{major.value}.{minor.value}"

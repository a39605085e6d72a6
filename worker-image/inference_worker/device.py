"""The CUDA device that this worker has, by its driver: what it is, and its memory.

The driver counts what all use of that: as a rule, this worker alone.
"""

import ctypes
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from inference_protocol.messages import WorkerConfig

_DRIVER = "libcuda.so.1"
_CPU = "CPUExecutionProvider"
_VERSION = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b\d+\.\d+(\.\d+)?\b")
_NAME_BYTES = 256


class DeviceMemory(NamedTuple):
    """Bytes."""

    free: int
    total: int


class DeviceIdentity(NamedTuple):
    """The version of the driver, and the device's name, which for a slice (MIG) tells which."""

    driver: str
    name: str


Look = Callable[[], DeviceMemory | None]


def looker(config: WorkerConfig) -> Look:
    """What tells the memory of the device that this process computes on; nothing, where it has none or another process computes."""
    return memory if config.providers[0] != _CPU and config.backend != "triton" else lambda: None


def memory() -> DeviceMemory | None:
    """The device's memory; None where there is no driver, or it gives no answer."""
    driver = _driver()
    return driver() if driver is not None else None


@functools.cache
def identity() -> DeviceIdentity | None:
    """What the device is; None where there is no driver, or it gives no answer."""
    try:
        return identity_by(ctypes.CDLL(_DRIVER), _VERSION.read_text() if _VERSION.exists() else "")
    except OSError:
        return None


def identity_by(driver: Any, kernel_module: str = "") -> DeviceIdentity | None:
    """What the device is by a loaded driver and its kernel module's own word; None where the driver has no device."""
    device, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDriverGetVersion(ctypes.byref(version)) or driver.cuDeviceGetName(name, _NAME_BYTES, device):
        return None
    found = _RELEASE.search(kernel_module)
    release = found.group() if found is not None else ""
    return DeviceIdentity(f"{release} CUDA {version.value}".strip(), name.value.decode(errors="replace"))


@functools.cache
def _driver() -> Look | None:
    try:
        return look_by(ctypes.CDLL(_DRIVER))
    except OSError:
        return None


def look_by(driver: Any) -> Look | None:
    """A look by a loaded driver; None where it has no device.

    The device's primary context is kept from here on, which is the one that the runtimes use: what it takes itself is not counted
    for a model that is loaded later.
    """
    device, context, before = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return None

    def look() -> DeviceMemory | None:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if driver.cuCtxPushCurrent_v2(context):
            return None
        try:
            return (
                None if driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) else DeviceMemory(free.value, total.value)
            )
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(before))

    return look

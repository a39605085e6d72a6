"""The CUDA device that this worker has, by its driver: whether there is one, which and of what kind, and its memory.

The driver obeys CUDA_VISIBLE_DEVICES, in whatever form that names devices, and a worker computes on the first that is left. Memory
is counted for all that use the device: as a rule, this worker alone.
"""

import ctypes
import functools
import os
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from inference_protocol.messages import WorkerConfig

_DRIVER = "libcuda.so.1"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_CPU = "CPUExecutionProvider"
# CUDA_ERROR_NO_DEVICE: there is none, or none that is visible.
_NO_DEVICE = 100
_ASK = "name the device's resource at the accelerator class, and see that the node has the device plugin and its runtime"
_VERSION = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b\d+\.\d+(\.\d+)?\b")
_NAME_BYTES = 256


class DeviceMemory(NamedTuple):
    """Bytes."""

    free: int
    total: int


class DeviceKind(NamedTuple):
    """The version of the driver, and the device's name, which for a slice (MIG) tells which."""

    driver: str
    name: str


Look = Callable[[], DeviceMemory | None]


def looker(config: WorkerConfig) -> Look:
    """What tells the memory of the device that this process computes on; nothing, where it has none or another process computes."""
    return memory if computes_on_device(config) else lambda: None


def computes_on_device(config: WorkerConfig) -> bool:
    """Whether this process computes on a device. Triton is another process, whose device need not be the one that this one sees."""
    return config.providers[0] != _CPU and config.backend != "triton"


def why_absent() -> str:
    """Why this process has no CUDA device, and what to do; empty where it has one."""
    return why_absent_by(_library(), os.environ)


def why_absent_by(driver: Any | None, environment: Mapping[str, str]) -> str:
    """The same by a loaded driver, if there is one."""
    if driver is None:
        return f"the pod has no NVIDIA driver ({_DRIVER}); {_ASK}"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, _NO_DEVICE):
        return f"the NVIDIA driver fails with CUDA error {code}; see what nvidia-smi says on the node"
    if code == 0 and count.value:
        return ""
    visible = environment.get(_VISIBLE)
    if visible is None:
        return f"the NVIDIA driver finds no device in the pod; {_ASK}"
    if not visible.strip():
        return f"{_VISIBLE} is empty, which hides every device; remove it from the pod's template"
    return f"{_VISIBLE}={visible[:100]!r} names no device that the pod has; remove it: the device plugin chooses the device"


def identity() -> uuid.UUID | None:
    """Which device this process computes on; None where there is no driver, or it gives no answer."""
    driver = _library()
    return identity_by(driver) if driver is not None else None


def identity_by(driver: Any) -> uuid.UUID | None:
    """The same by a loaded driver. Of a part of a device (MIG) it is the part's own."""
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceGetUuid_v2(ctypes.byref(raw), device):
        return None
    return uuid.UUID(bytes=bytes(raw))


def memory() -> DeviceMemory | None:
    """The device's memory; None where there is no driver, or it gives no answer."""
    driver = _driver()
    return driver() if driver is not None else None


@functools.cache
def kind() -> DeviceKind | None:
    """Of what kind the device is; None where there is no driver, or it gives no answer."""
    try:
        return kind_by(ctypes.CDLL(_DRIVER), _VERSION.read_text() if _VERSION.exists() else "")
    except OSError:
        return None


def kind_by(driver: Any, kernel_module: str = "") -> DeviceKind | None:
    """The same by a loaded driver and its kernel module's own word; None where the driver has no device."""
    device, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDriverGetVersion(ctypes.byref(version)) or driver.cuDeviceGetName(name, _NAME_BYTES, device):
        return None
    found = _RELEASE.search(kernel_module)
    release = found.group() if found is not None else ""
    return DeviceKind(f"{release} CUDA {version.value}".strip(), name.value.decode(errors="replace"))


@functools.cache
def _driver() -> Look | None:
    driver = _library()
    return look_by(driver) if driver is not None else None


def _library() -> Any | None:
    try:
        return ctypes.CDLL(_DRIVER)
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

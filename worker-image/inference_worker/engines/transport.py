"""Memory and copies of a CUDA device by its driver: what ONNX Runtime's Python interface can't do beside a run.

Page-locked memory of the host is copied by the device itself, without a thread that waits
(docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html). Copies of one Transport follow each other, and run beside those of
another and beside the runs of a session.
"""

import contextlib
import ctypes
import functools
import mmap
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from inference_worker.engines.engine import Tensor

_DRIVER = "libcuda.so.1"
_NO_MEMORY = 2
_NON_BLOCKING = 1
_PORTABLE = 1

_NAME = "inference-rows"
_MOST_PARTS = 512
"""Parts of one write; the kernel takes 1,024."""

Bytes = npt.NDArray[np.uint8]


class HostMemory:
    """Memory of the host as a file: many rows are written into it by one call, which leaves the interpreter to others meanwhile.

    Copied one by one, each would have to win the interpreter back from the event loop.
    """

    def __init__(self, size: int) -> None:
        """Raises MemoryError where there is no room."""
        self._file = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        try:
            os.truncate(self._file, size)
            self._map = mmap.mmap(self._file, size)
        except (OSError, ValueError) as error:
            os.close(self._file)
            raise MemoryError(f"the host has no room for buffers: {error}") from error
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8)

    def write(self, parts: Sequence[Tensor]) -> None:
        """Write contiguous arrays one after the other."""
        at = 0
        left = [part.reshape(-1).view(np.uint8).data for part in parts if part.size]
        while left:
            taken = os.pwritev(self._file, left[:_MOST_PARTS], at)
            at += taken
            while left and taken >= len(left[0]):
                taken -= len(left.pop(0))
            if taken:
                left[0] = left[0][taken:]

    def close(self) -> None:
        """Free it."""
        del self.bytes
        # An array that somebody still holds keeps the memory until it is gone.
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self._file)


class Transport(Protocol):
    """Copies in the order in which they are asked for; only `wait` waits. Any one thread at a time.

    Raises MemoryError where there is no room, RuntimeError for any other fault of the device.
    """

    def host(self, size: int) -> HostMemory:
        """Memory of the host that the device reaches by itself, of `size` bytes, until it is freed."""
        ...

    def device(self, size: int) -> int:
        """The address of memory of the device, of `size` bytes, until it is freed."""
        ...

    def upload(self, to: int, array: Tensor) -> None:
        """Copy a contiguous array of the host's to the device."""
        ...

    def move(self, to: int, source: int, size: int) -> None:
        """Copy `size` bytes within the device."""
        ...

    def download(self, array: Tensor, source: int) -> None:
        """Copy from the device into a contiguous array of the host's."""
        ...

    def wait(self, *, briefly: bool = False) -> None:
        """Return once all copies are done; `briefly` is for those that take no longer than to let another thread go first."""
        ...

    def free(self) -> None:
        """Free all memory, which no copy uses any more."""
        ...

    def close(self) -> None:
        """Free all that there is; nothing follows."""
        ...


class CudaTransport:
    """A stream of the first device that this process sees, which is the one that a session of ONNX Runtime uses."""

    def __init__(self) -> None:
        """Raises OSError without a driver, RuntimeError without a device."""
        self._cuda, self._quick = _driver()
        device, self._context, self._stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._on_host: list[HostMemory] = []
        self._on_device: list[ctypes.c_uint64] = []
        self._enter()
        self._call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)

    def host(self, size: int) -> HostMemory:
        """See Transport."""
        self._enter()
        memory = HostMemory(size)
        try:
            self._call("cuMemHostRegister_v2", _place(memory.bytes), _size(memory.bytes), _PORTABLE)
        except BaseException:
            memory.close()
            raise
        self._on_host.append(memory)
        return memory

    def device(self, size: int) -> int:
        """See Transport."""
        self._enter()
        place = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
        self._on_device.append(place)
        return place.value

    def upload(self, to: int, array: Tensor) -> None:
        """See Transport."""
        self._enter()
        _checked("cuMemcpyHtoDAsync_v2", self._quick.cuMemcpyHtoDAsync_v2(_address(to), _place(array), _size(array), self._stream))

    def move(self, to: int, source: int, size: int) -> None:
        """See Transport."""
        self._enter()
        copy = self._quick.cuMemcpyDtoDAsync_v2
        _checked("cuMemcpyDtoDAsync_v2", copy(_address(to), _address(source), ctypes.c_size_t(size), self._stream))

    def download(self, array: Tensor, source: int) -> None:
        """See Transport."""
        self._enter()
        self._call("cuMemcpyDtoHAsync_v2", _place(array), _address(source), _size(array), self._stream)

    def wait(self, *, briefly: bool = False) -> None:
        """See Transport."""
        self._enter()
        if briefly:
            _checked("cuStreamSynchronize", self._quick.cuStreamSynchronize(self._stream))
        else:
            self._call("cuStreamSynchronize", self._stream)

    def free(self) -> None:
        """See Transport."""
        self._enter()
        while self._on_host:
            memory = self._on_host.pop()
            self._call("cuMemHostUnregister", _place(memory.bytes))
            memory.close()
        while self._on_device:
            self._call("cuMemFree_v2", self._on_device.pop())

    def close(self) -> None:
        """See Transport."""
        self.free()
        self._call("cuStreamDestroy_v2", self._stream)

    def _enter(self) -> None:
        # The context belongs to a thread, and runners come and go.
        _checked("cuCtxSetCurrent", self._quick.cuCtxSetCurrent(self._context))

    def _call(self, name: str, *arguments: Any) -> None:
        _checked(name, getattr(self._cuda, name)(*arguments))


@functools.cache
def _driver() -> tuple[Any, Any]:
    """The driver, to be called without the interpreter's lock and with it: what returns at once need not fight for it again."""
    return ctypes.CDLL(_DRIVER), ctypes.PyDLL(_DRIVER)


def _checked(name: str, code: int) -> None:
    if code == _NO_MEMORY:
        raise MemoryError(f"the device has no room for buffers ({name})")
    if code:
        raise RuntimeError(f"the CUDA driver's {name} failed with code {code}")


def _address(place: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(place)


def _place(array: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _size(array: Tensor) -> ctypes.c_size_t:
    return ctypes.c_size_t(array.nbytes)

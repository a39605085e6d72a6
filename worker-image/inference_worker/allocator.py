"""The C library's allocator, told to keep what a model's runs use again and again.

ONNX Runtime's own arena keeps the peak of every shape that it ever saw; without it each run asks the system for its large tensors
anew, whose pages are then faulted in one by one: a fifth of the time of a mid-sized net (docs/measurements.md). With these
bounds the C library keeps freed blocks for the next run, whatever its shape.

What one thread frees only threads of its arena can use again. With glibc's eight arenas a core a worker grew to twice its memory
while its model was loaded anew fifty times, each time by another thread; with two it stays where it was.
"""

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# The largest that glibc takes.
_MMAP_BYTES = 32 << 20
_TRIM_BYTES = 512 << 20
_ARENAS = 2


def keep_freed_memory() -> None:
    """Set the bounds, where the C library has them (glibc); elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)

"""Memory that a frontend writes large bodies into and its worker reads them from: neither the socket between them nor its copies.

The frontend allocates, and the worker says what nobody reads any more. A body for which there is no extent goes by the socket, so
that the arena needs no reserve and fragments cost nothing but time.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from inference_worker.frontends.messages import Extent

_PAGE = mmap.PAGESIZE
SMALLEST_BYTES = 16 << 10
"""Smaller bodies go by the socket: two small copies are cheaper than a page's first touch and its way back."""


def create(size: int) -> int:
    """The file of an arena of so many bytes: pages are taken when they are first written."""
    file = os.memfd_create("bodies", os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    return file


class Allocator:
    """The frontend's end. First fit, by pages; neighbours that are free become one."""

    def __init__(self, file: int) -> None:
        size = os.fstat(file).st_size
        self._memory = memoryview(mmap.mmap(file, size))
        # Where free runs of pages begin, in order, and how long each is.
        self._starts, self._sizes = [0], [size]
        self._lent: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """What is not lent."""
        return sum(self._sizes)

    def write(self, parts: Sequence[bytes | memoryview], size: int) -> Extent | None:
        """Copy `parts`, of `size` bytes together, into the arena; None where it has no room for them."""
        pages = -(-size // _PAGE) * _PAGE
        at = next((at for at, room in enumerate(self._sizes) if room >= pages), None)
        if at is None:
            return None
        offset, room = self._starts[at], self._sizes[at]
        if room == pages:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at], self._sizes[at] = offset + pages, room - pages
        self._lent[offset] = pages
        position = offset
        for part in parts:
            self._memory[position : position + len(part)] = part
            position += len(part)
        return Extent(offset, size)

    def free(self, offset: int) -> None:
        """Take back what was lent at `offset`."""
        size = self._lent.pop(offset)
        at = bisect_left(self._starts, offset)
        if at < len(self._starts) and offset + size == self._starts[at]:
            size += self._sizes[at]
            del self._starts[at], self._sizes[at]
        if at and self._starts[at - 1] + self._sizes[at - 1] == offset:
            self._sizes[at - 1] += size
        else:
            self._starts.insert(at, offset)
            self._sizes.insert(at, size)


class Reader:
    """The worker's end: bodies as read-only views. What is no longer referred to is gathered, to be told to the frontend."""

    def __init__(self, file: int) -> None:
        self._memory = memoryview(mmap.mmap(file, os.fstat(file).st_size, access=mmap.ACCESS_READ))
        self._views: dict[int, weakref.ref[object]] = {}
        self._free: list[int] = []
        # The last reader of a body may be the thread of a run, or the collector in the midst of this.
        self._lock = threading.RLock()

    def body(self, extent: Extent) -> memoryview:
        """The bytes of an extent. It is free once neither this view nor anything made of it is left."""
        offset = extent.offset
        array = np.frombuffer(self._memory, np.uint8, extent.size, offset)

        def gone(_: object) -> None:
            with self._lock:
                self._views.pop(offset, None)
                self._free.append(offset)

        with self._lock:
            self._views[offset] = weakref.ref(array, gone)
        return array.data

    def freed(self) -> list[int]:
        """The offsets of what nobody reads any more, since the last call."""
        if not self._free:
            return []
        with self._lock:
            freed, self._free = self._free, []
        return freed

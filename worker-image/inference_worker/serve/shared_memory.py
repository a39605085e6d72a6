"""System shared memory (Triton's extension): tensors that a caller in the same pod leaves in /dev/shm instead of sending them.

Each tensor is copied once, by pread into its array and by pwrite out of it, and is not mapped. A file that its owner shortens while
it is mapped kills the process that reads it (SIGBUS). One that its owner changes while it is mapped changes under a model that has
checked its indices already. No seal helps: only a file that memfd_create made can have one, and shm_open makes none.
"""

import contextlib
import errno
import os
import stat
import threading
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from inference_worker.errors import RequestError
from inference_worker.serve.ask import Span, bad

DIRECTORY = Path("/dev/shm")  # noqa: S108
REGIONS = 256
"""Regions that may be registered at a time: each keeps a file open."""

NOT_ALLOWED = "this worker takes no shared memory; set serve.sharedMemory to System in the job, or send the tensors"
_NAME_BYTES = 255
_LARGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a file in shared memory, under the name that a caller gave it. `fd` stays open until nobody uses it."""

    name: str
    key: str
    offset: int
    byte_size: int
    file: "_File"

    @property
    def document(self) -> dict[str, object]:
        """As the extension tells it."""
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.byte_size}


class _File:
    """An open file that is closed when the last who uses it lets it go."""

    def __init__(self, fd: int, *, writable: bool) -> None:
        self.fd = fd
        self.writable = writable

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)


class SharedMemory:
    """The registered regions. Read and written from threads too, registered on the event loop."""

    def __init__(self, *, allowed: bool, directory: Path = DIRECTORY) -> None:
        self.allowed = allowed
        self._directory = directory
        self._regions: dict[str, Region] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: str, offset: object, byte_size: object) -> None:
        """Register a region.

        Raises RequestError: 403 where the job does not allow it, 400 for a name, a size or a file that can't be used, 409 for a
        name that is taken, 429 when there are too many.
        """
        self._require_allowed()
        start, size = _size("offset", offset, least=0), _size("byte_size", byte_size, least=1)
        if not name:
            raise bad("a region of shared memory needs a name")
        with self._lock:
            if name in self._regions:
                raise RequestError(HTTPStatus.CONFLICT, f"region {name[:200]!r} is registered already; unregister it first")
            if len(self._regions) >= REGIONS:
                text = f"{REGIONS} regions are registered already; unregister those that you are done with"
                raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=1.0)
            file = self._opened(key)
            region = Region(name, key, start, size, file)
            _require_inside(region)
            self._regions[name] = region

    def unregister(self, name: str) -> None:
        """Forget a region; all of them for an empty name. One that there is not is no fault. Answers meant for it are refused."""
        with self._lock:
            if name:
                self._regions.pop(name, None)
            else:
                self._regions.clear()

    def status(self, name: str) -> list[dict[str, object]]:
        """The regions, or the one of a name. Raises RequestError: 501 where the job does not allow any, 404 for an unknown name."""
        if not self.allowed:
            raise RequestError(HTTPStatus.NOT_IMPLEMENTED, NOT_ALLOWED)
        with self._lock:
            regions = list(self._regions.values()) if not name else [self._known(name)]
        return [region.document for region in regions]

    def read(self, span: Span) -> bytearray:
        """A copy of bytes of a region. Raises RequestError(400) when they are not there (any more)."""
        region = self._found(span)
        _require_inside(region)
        data = bytearray(span.byte_size)
        view, position = memoryview(data), region.offset + span.offset
        while view:
            count = os.preadv(region.file.fd, [view], position)
            if not count:
                raise bad(f"region {span.region[:200]!r} has become shorter than it was registered; register it again")
            view, position = view[count:], position + count
        return data

    def write(self, span: Span, data: bytes | memoryview) -> None:
        """Copy bytes into a region. Raises RequestError(400) when there is no room for them (any more)."""
        region = self._found(span)
        if len(data) > span.byte_size:
            raise bad(f"the answer has {len(data)} bytes, but {span.byte_size} of region {span.region[:200]!r} are meant for it")
        if not region.file.writable:
            raise bad(f"region {span.region[:200]!r} is not writable by this worker; let its file be written by the worker's user")
        _require_inside(region)
        view, position = memoryview(data), region.offset + span.offset
        try:
            while view:
                count = os.pwrite(region.file.fd, view, position)
                view, position = view[count:], position + count
        except OSError as error:
            raise bad(f"region {span.region[:200]!r} can't be written: {error.strerror}; give it its whole size") from error

    def check(self, span: Span) -> None:
        """Raise RequestError when a span can't be used."""
        self._found(span)

    def _require_allowed(self) -> None:
        if not self.allowed:
            raise RequestError(HTTPStatus.FORBIDDEN, NOT_ALLOWED)

    def _found(self, span: Span) -> Region:
        if not self.allowed:
            raise bad(NOT_ALLOWED)
        with self._lock:
            region = self._regions.get(span.region)
        if region is None:
            raise bad(f"region {span.region[:200]!r} of shared memory is not registered; register it first")
        if span.offset + span.byte_size > region.byte_size:
            raise bad(
                f"bytes {span.offset} to {span.offset + span.byte_size} are not all in region {span.region[:200]!r}, "
                f"which has {region.byte_size}"
            )
        return region

    def _known(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise RequestError(HTTPStatus.NOT_FOUND, f"region {name[:200]!r} of shared memory is not registered")
        return region

    def _opened(self, key: str) -> _File:
        """The file of a key, as shm_open(3) names it: one slash at the beginning or none, and none elsewhere."""
        name = key.removeprefix("/")
        if not name or name in (".", "..") or "/" in name or "\0" in name or len(os.fsencode(name)) > _NAME_BYTES:
            raise bad(f"key {key[:200]!r} names no shared memory; give it as shm_open has it, such as '/input'")
        # Neither waits for the other end of a pipe, nor follows a link out of the directory.
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        path, what = self._directory / name, f"shared memory {key[:200]!r} can't be opened"
        try:
            return _regular(os.open(path, flags | os.O_RDWR), key, writable=True)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise bad(f"{what}: {error.strerror}; create it before it is registered") from error
        try:
            return _regular(os.open(path, flags | os.O_RDONLY), key, writable=False)
        except OSError as error:
            raise bad(f"{what}: {error.strerror}; let it be read by the worker's user {os.geteuid()}") from error


def _regular(fd: int, key: str, *, writable: bool) -> _File:
    file = _File(fd, writable=writable)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise bad(f"shared memory {key[:200]!r} is no ordinary file; create it with shm_open")
    return file


def _require_inside(region: Region) -> None:
    size = os.fstat(region.file.fd).st_size
    if region.offset + region.byte_size > size:
        raise bad(
            f"region {region.name[:200]!r} is bytes {region.offset} to {region.offset + region.byte_size} of {region.key[:200]!r}, "
            f"which has {size} now; register what is there"
        )


def _size(what: str, value: object, *, least: int) -> int:
    if type(value) is not int or not least <= value <= _LARGEST:
        raise bad(f"{what} must be a whole number from {least}, not {value!r}"[:200])
    return value

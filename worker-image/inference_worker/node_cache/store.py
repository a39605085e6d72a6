"""Models on disk: one folder for each namespace, one file for each of its models. Who has the same bytes shares an inode.

A file has its name only once its bytes have the digest and are on the disk; whatever a crash leaves behind has another name.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import BinaryIO

from inference_protocol.node_cache import HEAD_BYTES
from inference_worker.node_cache.faults import NotTakenError
from inference_worker.node_cache.incoming import Incoming, Place
from inference_worker.node_cache.room import Kept, giving_way

_INCOMING = ".incoming"
_ALL = "_"


@dataclass(slots=True)
class Counts:
    """What the store counts, for metrics."""

    given_way: int = 0
    received_bytes: int = 0
    refused: dict[HTTPStatus, int] = field(default_factory=dict)


@dataclass(slots=True)
class _File:
    """An inode: under which names it is, and its bytes."""

    size: int
    used: float
    names: set[tuple[str, str]] = field(default_factory=set)


class ModelStore:
    """The cache's files. Safe to be used by several threads."""

    def __init__(self, root: Path, *, limit: int, shared: bool, now: Callable[[], float]) -> None:
        """`limit` is in bytes. With `shared` each namespace reads what any has brought. Raises OSError."""
        self.limit = limit
        self.counts = Counts()
        self._root = root
        self._shared = shared
        self._now = now
        self._lock = threading.Lock()
        self._files: dict[int, _File] = {}
        self._inodes: dict[tuple[str, str], int] = {}
        self._coming: dict[str, tuple[str, int]] = {}
        self._number = 0
        self._size = 0
        self._open()

    @property
    def used(self) -> int:
        """Bytes of all models, each once."""
        return self._size

    @property
    def models(self) -> int:
        """How many different files there are."""
        return len(self._files)

    def has(self, namespace: str, digest: str) -> bool:
        """Whether a namespace may read a model here."""
        return (self._folder(namespace), digest) in self._inodes

    def open(self, namespace: str, digest: str) -> BinaryIO | None:
        """A model's bundle, which ends early once the model gives way; None where the namespace has none."""
        key = self._folder(namespace), digest
        with self._lock:
            if (inode := self._inodes.get(key)) is None:
                return None
            try:
                found = self._path(*key).open("rb")
            except OSError:
                self._drop(inode)
                return None
            self._files[inode].used = self._now()
            with suppress(OSError):
                # For the next process.
                os.utime(found.fileno(), (self._now(),) * 2)
            return found

    @contextmanager
    def incoming(self, namespace: str, digest: str) -> Iterator[Incoming]:
        """A model that comes. What isn't kept in the context is gone. Raises NotTakenError.

        Room is made as its bytes come: whoever only says that they will come takes none.
        """
        with self._lock:
            self._number += 1
            path = self._root / _INCOMING / str(self._number)
            folder = self._folder(namespace)
            self._coming[path.name] = folder, 0
        try:
            with _room_on_disk(), path.open("x+b") as file:
                yield Incoming(Place(self, path, folder, digest), file)
        except NotTakenError as error:
            self.counts.refused[error.status] = self.counts.refused.get(error.status, 0) + 1
            raise
        finally:
            path.unlink(missing_ok=True)
            with self._lock:
                self._coming.pop(path.name, None)

    def reserve(self, name: str, folder: str, size: int) -> None:
        """Make room for `size` bytes of an incoming file. Raises NotTakenError."""
        with self._lock:
            self._require_coming(name)
            del self._coming[name]
            dropped: tuple[int, ...] | None = ()
            if self._size + sum(held for _, held in self._coming.values()) + size > self.limit:
                dropped = self._giving_way(folder, size)
            if dropped is None:
                text = f"{size} of {self.limit} bytes aren't free, or are other namespaces' share; raise nodeCache.sizeLimit"
                raise NotTakenError(HTTPStatus.INSUFFICIENT_STORAGE, text)
            for inode in dropped:
                if inode < 0:
                    self._end_incoming(str(-inode))
                else:
                    self._drop(inode)
                    self.counts.given_way += 1
            self._coming[name] = folder, size

    def _giving_way(self, folder: str, size: int) -> tuple[int, ...] | None:
        """Inodes that give way to bytes of a namespace, and the numbers of others' incoming files, below zero."""
        kept = [Kept(inode, frozenset(ns for ns, _ in file.names), file.size, file.used) for inode, file in self._files.items()]
        own = sum(held for whose, held in self._coming.values() if whose == folder)
        # They go last. Nobody knows of bytes that come whether they are a model, and whoever sends them may never end.
        others = [Kept(-int(n), frozenset({whose}), held, inf) for n, (whose, held) in self._coming.items() if whose != folder]
        return giving_way([*kept, *others], folder, coming={folder: own}, more=size, limit=self.limit)

    def _end_incoming(self, name: str) -> None:
        del self._coming[name]
        # Its thread waits for bytes, and hears of it with the next ones.
        with suppress(OSError):
            os.truncate(self._root / _INCOMING / name, 0)

    def _require_coming(self, name: str) -> None:
        if name not in self._coming:
            raise NotTakenError(HTTPStatus.INSUFFICIENT_STORAGE, "another namespace needs its own share; raise nodeCache.sizeLimit")

    def keep(self, incoming: Path, folder: str, digest: str, size: int, head: bytes) -> None:
        """Give a verified file its name; one with the same bytes is shared instead. Raises NotTakenError, OSError."""
        key = folder, digest
        path = self._path(*key)
        with self._lock:
            # It has no bytes any more where its room was needed.
            self._require_coming(incoming.name)
            path.parent.mkdir(exist_ok=True)
            known = self._inodes.get(key)
            # What a worker brings although it was there was damaged: then no name keeps the old bytes.
            if known is not None:
                self._drop(known)
            if (same := self._same(digest, size, head)) is not None:
                incoming.unlink()
                os.link(self._path(*next(iter(self._files[same].names))), path)
            else:
                incoming.rename(path)
                same = path.stat().st_ino
                self._files[same] = _File(size, self._now())
                self._size += size
            self._files[same].names.add(key)
            self._inodes[key] = same
            self.counts.received_bytes += size
            for changed in (path.parent, self._root):
                _sync_folder(changed)

    def _same(self, digest: str, size: int, head: bytes) -> int | None:
        """The file that another namespace has of a model. Under another head the same bytes are other files."""
        for inode, file in self._files.items():
            for key in file.names:
                if key[1] == digest and file.size == size and _head_of(self._path(*key)) == head:
                    return inode
        return None

    def _drop(self, inode: int) -> None:
        file = self._files.pop(inode)
        self._size -= file.size
        with ExitStack() as opened:
            data = None
            with suppress(OSError):
                data = opened.enter_context(self._path(*next(iter(file.names))).open("r+b"))
            for key in file.names:
                self._inodes.pop(key, None)
                self._path(*key).unlink(missing_ok=True)
            if data is not None:
                # Whoever reads it would keep its room on the disk, and of any number of such files.
                data.truncate(0)

    def _path(self, folder: str, digest: str) -> Path:
        return self._root / folder / digest.removeprefix("sha256:")

    def _folder(self, namespace: str) -> str:
        # No namespace has this name.
        return _ALL if self._shared else namespace

    def _open(self) -> None:
        """Take in what an earlier process has left."""
        incoming = self._root / _INCOMING
        incoming.mkdir(parents=True, exist_ok=True)
        for left in incoming.iterdir():
            left.unlink()
        for folder in self._root.iterdir():
            # With another setting, what was another's may be read by all, or the reverse.
            if folder.name != _INCOMING and (folder.name == _ALL) == self._shared:
                for path in folder.iterdir():
                    self._take_in(folder.name, path)
            elif folder.name != _INCOMING:
                for path in folder.iterdir():
                    path.unlink()
        # The limit may be lower than it was.
        for inode in sorted(self._files, key=lambda inode: self._files[inode].used):
            if self._size > self.limit:
                self._drop(inode)
                self.counts.given_way += 1

    def _take_in(self, folder: str, path: Path) -> None:
        status = path.stat()
        if (file := self._files.get(status.st_ino)) is None:
            file = self._files[status.st_ino] = _File(status.st_size, status.st_mtime)
            self._size += file.size
        key = folder, f"sha256:{path.name}"
        file.names.add(key)
        self._inodes[key] = status.st_ino


@contextmanager
def _room_on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = "the node's disk is full; lower nodeCache.sizeLimit, or give the volume more room"
        raise NotTakenError(HTTPStatus.INSUFFICIENT_STORAGE, text) from error


def _head_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

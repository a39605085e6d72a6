"""A model that comes: written and hashed file by file, and kept only once its bytes have the digest."""

import hashlib
import os
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from inference_protocol.node_cache import HEAD_BYTES, BundledFile, Head, model_digest
from inference_worker.node_cache.faults import NotTakenError


class Store(Protocol):
    """What an incoming model needs of the store."""

    def reserve(self, name: str, folder: str, size: int) -> None:
        """Make room for `size` bytes of an incoming file. Raises NotTakenError."""
        ...

    def keep(self, incoming: Path, folder: str, digest: str, size: int, head: bytes) -> None:
        """Give a verified file its name. Raises NotTakenError, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is written, and whose it is to be."""

    store: Store
    path: Path
    folder: str
    digest: str

    def reserve(self, size: int) -> None:
        """Make room for so many bytes. Raises NotTakenError."""
        self.store.reserve(self.path.name, self.folder, size)

    def keep(self, size: int, head: bytes) -> None:
        """Keep what was written. Raises NotTakenError, OSError."""
        self.store.keep(self.path, self.folder, self.digest, size, head)


class Incoming:
    """Writes a bundle. One thread uses it."""

    def __init__(self, place: Place, file: BinaryIO) -> None:
        self._place = place
        self._file = file
        self._files: list[BundledFile] = []
        self._hash = hashlib.sha256()
        self._digests: dict[str, str] = {}
        self._name = ""
        self._begun = 0
        self._written = HEAD_BYTES
        file.seek(HEAD_BYTES)

    def begin(self, name: str) -> None:
        """What is written from now on is this file's; the model's own is the first."""
        self._end()
        self._name, self._begun, self._hash = name, self._written, hashlib.sha256()

    def write(self, block: bytes | memoryview) -> int:
        """Add to the file. Raises NotTakenError where there is no room, OSError."""
        end = self._written + len(block)
        self._place.reserve(end)
        self._hash.update(block)
        self._file.write(block)
        self._written = end
        return len(block)

    @property
    def digest(self) -> str:
        """The `sha256:HEX` of what has come of the current file."""
        return f"sha256:{self._hash.hexdigest()}"

    def read(self, most: int) -> bytes:
        """The first bytes of the current file. Raises OSError."""
        self._file.flush()
        return os.pread(self._file.fileno(), min(most, self._written - self._begun), self._begun)

    def verify(self) -> None:
        """Require that all that came has the model's digest. Raises NotTakenError."""
        self._end()
        if not self._digests or model_digest(self._digests) != self._place.digest:
            raise NotTakenError(HTTPStatus.UNPROCESSABLE_ENTITY, "these bytes have another digest")

    def commit(self) -> None:
        """Keep the model, which is verified. Raises NotTakenError, OSError."""
        head = msgspec.json.encode(Head(tuple(self._files))).ljust(HEAD_BYTES)
        if len(head) > HEAD_BYTES:
            raise NotTakenError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the names of its files are too long")
        self._file.seek(0)
        self._file.write(head)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._place.keep(self._written, head)

    def _end(self) -> None:
        if self._name:
            self._digests[self._name] = self.digest
            self._files.append(BundledFile(self._name, self._written - self._begun))
            self._name = ""

"""An output in a folder of a bucket: each write has a condition, and the store decides between two writers.

A store that ignores conditions would let one overwrite what the other has counted. So it is tried once, before the claim.
"""

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from uuid import uuid4

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import BucketUri
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds
from inference_worker.stores.bucket import Bucket

# No write of ours is larger than what a store takes at once.
_LIMIT_BYTES = 5 << 30
# Each commit writes all lines of its manifest again, and stores charge for requests. More than this no kill should cost.
_COMMIT_SECONDS = 5.0
_REASONS = {
    WorkerReason.MODEL_UNREACHABLE: WorkerReason.OUTPUT_UNREACHABLE,
    WorkerReason.MODEL_ACCESS_DENIED: WorkerReason.OUTPUT_ACCESS_DENIED,
}


class _StoreError(OSError):
    """What a store made of a call."""

    def __init__(self, why: WorkerError) -> None:
        super().__init__(why.message)
        self.why = why


class BucketFolder:
    """See storage.OutputStorage."""

    def __init__(self, uri: BucketUri, storage: Storage, hosts: tuple[str, ...]) -> None:
        # It is not ended by a stop: what is answered is committed first.
        bounds = Bounds(hosts, _LIMIT_BYTES, WorkerReason.OUTPUT_UNWRITABLE, WorkerReason.OUTPUT_UNWRITABLE)
        self._bucket = Bucket(uri, storage, bounds)
        self._folder = uri.key
        self._manifest = ""
        self._mark = ""
        self._lines = b""

    @property
    def label(self) -> str:
        """See Readable."""
        return self._bucket.told(self._folder)

    @property
    def commit_seconds(self) -> float:
        """See OutputStorage."""
        return _COMMIT_SECONDS

    def names(self, folder: str = "") -> list[str]:
        """See Readable."""
        with _told():
            return [entry.key for entry in self._bucket.names(self._key(f"{folder}/" if folder else ""))]

    def read(self, name: str, limit: int) -> bytes | None:
        """See Readable."""
        with _told():
            return self._bucket.read(self._key(name), limit)

    def exists(self, name: str) -> bool:
        """See OutputStorage."""
        return self.read(name, 1) is not None

    def digest(self, name: str) -> str | None:
        """See OutputStorage."""
        with _told():
            try:
                return self._bucket.digest(self._key(name)).removeprefix("sha256:")
            except WorkerError as error:
                if error.reason is WorkerReason.OUTPUT_UNWRITABLE:
                    return None
                raise

    def claim(self, name: str, data: bytes) -> bool:
        """See OutputStorage."""
        with _told():
            self._require_conditions(PurePosixPath(name))
            mark = self._bucket.write(self._key(name), data)
        if mark is None:
            return False
        self._manifest, self._mark, self._lines = name, mark, data
        return True

    def append(self, data: bytes) -> None:
        """See OutputStorage. The lines before are written again: no store adds to an object."""
        lines = self._lines + data
        with _told():
            mark = self._bucket.write(self._key(self._manifest), lines, mark=self._mark)
        if mark is None:
            raise self._claimed(self._manifest)
        self._mark, self._lines = mark, lines

    def write(self, name: str, data: bytes) -> None:
        """See OutputStorage."""
        with _told():
            mark = self._bucket.write(self._key(name), data)
        if mark is None:
            raise self._claimed(name)

    def publish(self, name: str, data: bytes) -> bool:
        """See OutputStorage."""
        self.write(name, data)
        return True

    def remove(self, name: str) -> None:
        """See OutputStorage."""
        with _told():
            self._bucket.remove(self._key(name))

    def fault(self, error: OSError) -> WorkerError:
        """See OutputStorage."""
        if not isinstance(error, _StoreError):
            return WorkerError(WorkerReason.OUTPUT_UNREACHABLE, f"{self.label}: {error}")
        why = error.why
        return WorkerError(_REASONS.get(why.reason, why.reason), why.message)

    def close(self) -> None:
        """See OutputStorage. Nothing stays open between two requests."""

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _claimed(self, name: str) -> WorkerError:
        return WorkerError(WorkerReason.OUTPUT_CLAIMED, f"another worker has written {name} in {self.label!r}")

    def _require_conditions(self, manifest: PurePosixPath) -> None:
        """Raise WorkerError OUTPUT_STORE_UNSAFE unless the store refuses a write whose condition doesn't hold."""
        key = self._key(f"{manifest.parent}/.probe-{uuid4().hex}")
        mark = self._bucket.write(key, b"1")
        try:
            holds = (
                mark is not None
                and self._bucket.write(key, b"2") is None
                and self._bucket.write(key, b"3", mark=self._bucket.strange_mark) is None
                and self._bucket.write(key, b"4", mark=mark) is not None
                and self._bucket.write(key, b"5", mark=mark) is None
            )
        finally:
            self._bucket.remove(key)
        if not holds:
            raise WorkerError(
                WorkerReason.OUTPUT_STORE_UNSAFE,
                f"{self.label}: the store carries out writes whose condition (If-None-Match, If-Match, ifGenerationMatch) doesn't "
                "hold, so two workers could overwrite each other's answers; use a store with conditional writes, or "
                "pvc://CLAIM/PATH",
            )


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What a store is short of is an error of its calls, as for every storage."""
    try:
        yield
    except WorkerError as error:
        if error.reason in (WorkerReason.OUTPUT_CLAIMED, WorkerReason.OUTPUT_STORE_UNSAFE):
            raise
        raise _StoreError(error) from error

"""An output in a directory of a volume: files that appear whole, under names that are given once, through no link."""

import errno
import hashlib
import os
from pathlib import Path

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError

# What a folder in the place of a file comes to, and a file in that of a folder.
_OCCUPIED = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# What file systems say that have no second names for a file.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})

# A commit costs two syncs; what a kill may cost is work since the last one. A second of either is a fair price.
_COMMIT_SECONDS = 1.0


class Directory:
    """See storage.OutputStorage. Files are written under a temporary name of their attempt first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._manifest: int | None = None
        self._temporary = path

    @property
    def label(self) -> str:
        """See Readable."""
        return self._path.name

    @property
    def commit_seconds(self) -> float:
        """See OutputStorage."""
        return _COMMIT_SECONDS

    def names(self, folder: str = "") -> list[str]:
        """See Readable."""
        try:
            # Opened anew each time, because NFS looks for what is new then; through no link, which could lead out of the volume.
            handle = os.open(self._path / folder, _FOLDER)
        except FileNotFoundError:
            return []
        try:
            return os.listdir(handle)  # noqa: PTH208 -- of what is open
        finally:
            os.close(handle)

    def read(self, name: str, limit: int) -> bytes | None:
        """See Readable."""
        path = self._path / name
        # A link could lead out of the volume.
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(limit)

    def exists(self, name: str) -> bool:
        """See OutputStorage."""
        return os.path.lexists(self._path / name)

    def digest(self, name: str) -> str | None:
        """See OutputStorage."""
        path = self._path / name
        try:
            # A pipe would be waited for.
            if path.is_symlink() or not path.is_file():
                return None
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None

    def claim(self, name: str, data: bytes) -> bool:
        """See OutputStorage."""
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = self._path / f".{path.stem}.tmp"
        # Through its directory, which must be no link to another one.
        handle = os.open(path.parent, _FOLDER)
        try:
            self._manifest = os.open(path.name, _NEW_FILE | os.O_APPEND, 0o644, dir_fd=handle)
            self.append(data)
            os.fsync(handle)
        except FileExistsError:
            return False
        finally:
            os.close(handle)
        return True

    def append(self, data: bytes) -> None:
        """See OutputStorage. A full disk can take less: that is taken back."""
        manifest = self._manifest
        assert manifest is not None
        before = os.fstat(manifest).st_size
        if os.write(manifest, data) != len(data):
            os.ftruncate(manifest, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(manifest)

    def write(self, name: str, data: bytes) -> None:
        """See OutputStorage."""
        self._write(data)
        self._temporary.replace(self._path / name)
        self._sync()

    def publish(self, name: str, data: bytes) -> bool:
        """See OutputStorage."""
        path, alone = self._path / name, True
        self._write(data)
        try:
            os.link(self._temporary, path, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._temporary.replace(path)
            alone = False
        finally:
            self._temporary.unlink(missing_ok=True)
        self._sync()
        return alone

    def remove(self, name: str) -> None:
        """See OutputStorage."""
        (self._path / name).unlink(missing_ok=True)

    def fault(self, error: OSError) -> WorkerError:
        """See OutputStorage."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return WorkerError(WorkerReason.OUTPUT_UNWRITABLE, f"no space left for {self.label!r}; enlarge the volume or empty it")
        if error.errno == errno.ELOOP:
            return WorkerError(
                WorkerReason.URI_FORBIDDEN, f"{self.label!r} holds a link in the place of a file; choose another output"
            )
        if error.errno in _OCCUPIED:
            what = Path(os.fsdecode(error.filename2 or error.filename or "")).name
            return WorkerError(
                WorkerReason.OUTPUT_UNWRITABLE,
                f"something else is in the place of {what!r} in {self.label!r} ({error.strerror}); remove it or use another output",
            )
        return WorkerError(
            WorkerReason.OUTPUT_UNWRITABLE,
            f"can't write to {self.label!r}: {error.strerror}; the worker runs as user 65532, which must be allowed to write there",
        )

    def close(self) -> None:
        """See OutputStorage."""
        manifest, self._manifest = self._manifest, None
        if manifest is not None:
            os.close(manifest)

    def _write(self, data: bytes) -> None:
        """Write to the temporary file, through no link, and on the disk when this returns."""
        self._temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(self._temporary, _NEW_FILE, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _sync(self) -> None:
        """A rename is on the disk only once its directory is."""
        handle = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

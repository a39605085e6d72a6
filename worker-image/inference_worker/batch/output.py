"""The output directory: chunks and manifests, so that nothing finished is lost or done twice, whoever else believes to own it.

An attempt claims the directory by creating a manifest of its own (`takeover.py`). A chunk is committed in two steps: its file is
renamed into place, then one line is appended to that manifest. Only lines count. A line that a crash tore does not, and one without
its whole file is done again. Chunks follow one another without gaps, so the next attempt goes on behind the longest chain. The
summary is created once, over chunks that are all there. Nothing depends on a lock. Answers that are finished are never deleted: who
asks the same gets them, and who asks anything else is refused.
"""

import contextlib
import errno
import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.manifest import (
    ATTEMPTS,
    CHUNK_NAME,
    SUMMARY,
    TEMPORARY_NAME,
    Chunk,
    Header,
    Summary,
    encode_summary,
    manifest_names,
    read_header,
    read_manifests,
    read_summary,
)
from inference_worker.batch.takeover import Start, Whole, require_turn, start_of
from inference_worker.errors import WorkerError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# What file systems say that have no second names for a file.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})


class Output:
    """An output directory that is open for one attempt.

    Raises WorkerError OUTPUT_UNWRITABLE, OUTPUT_CONFLICT, INPUT_CHANGED, or OUTPUT_CLAIMED once a later attempt has it.
    """

    def __init__(self, directory: Path, header: Header, *, suffix: str) -> None:
        self._directory = directory
        self._header = header
        self._suffix = suffix
        self._author = header
        self._manifest: int | None = None
        self._seen: set[str] = set()
        self.chunks: list[Chunk] = []
        try:
            self._guarded(self._open)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    @property
    def end(self) -> int:
        """The first item without a committed answer."""
        return self.chunks[-1].end if self.chunks else 0

    def commit(self, start: int, end: int, data: bytes) -> None:
        """Commit the answers to items start..end, which follow the last chunk."""
        if start != self.end:
            raise AssertionError(f"chunk {start}..{end} does not follow {self.end}")
        name = f"chunk-{start:010d}-{self._header.claim}{self._suffix}"
        chunk = Chunk(name, start, end, hashlib.sha256(data).hexdigest(), self._header.attempt)
        self._guarded(lambda: self._commit(chunk, data))
        self.chunks.append(chunk)

    def finish(self) -> None:
        """Write the summary that tells readers that all chunks are there. It names the job that has made them."""
        self._guarded(self._finish)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what may fail for want of space, rights or a network; to be outranked explains such a failure better."""
        try:
            work()
        except OSError as error:
            if self._manifest is not None:
                with contextlib.suppress(OSError):
                    self._require_claim()
            raise _unwritable(self._directory, error) from error

    def _open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        # Read once for both looks; all are read again at the end.
        whole = functools.cache(self._is_whole)
        start = self._start(whole)
        if start.chunks and start.chunks[-1].end == start.author.total and self._summary_is_there():
            self._author, self.chunks = start.author, list(start.chunks)
            return
        self._claim()
        try:
            # Whoever claimed before this line is seen now, and whoever claims after it sees us.
            start = self._start(whole)
        except WorkerError:
            (self._directory / ATTEMPTS / self._name).unlink(missing_ok=True)
            raise
        self._author, self.chunks = start.author, list(start.chunks)
        if start.chunks:
            self._append(*start.chunks)
        # With its temporary file, an earlier attempt loses the means to give a summary its name.
        self._clean()

    @property
    def _name(self) -> str:
        return f"{self._header.claim}.jsonl"

    def _start(self, whole: Whole) -> Start:
        others, claimed = read_manifests(self._directory), self._manifest is not None
        if claimed:
            others = [other for other in others if other.header.claim != self._header.claim]
        name = self._directory.name
        require_turn(self._header, (other.header for other in others), name, claimed=claimed)
        finished_by = None
        if self._summary_is_there():
            summary = read_summary(self._directory)
            finished_by = summary.uid if summary is not None else ""
        return start_of(self._header, others, finished_by, whole, name)

    def _claim(self) -> None:
        folder = self._directory / ATTEMPTS
        folder.mkdir(exist_ok=True)
        try:
            # Through its directory, which must be no link to another one.
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                self._manifest = os.open(self._name, _NEW_FILE | os.O_APPEND, 0o644, dir_fd=handle)
                self._append(self._header)
                os.fsync(handle)
            finally:
                os.close(handle)
        except FileExistsError:
            raise WorkerError(
                WorkerReason.OUTPUT_CLAIMED, f"another worker has claimed {self._directory.name!r} for this attempt"
            ) from None

    def _require_claim(self) -> None:
        """Raise WorkerError OUTPUT_CLAIMED once somebody outranks this attempt. A claim that is new is looked at once."""
        for name in manifest_names(self._directory):
            if name == self._name or name in self._seen:
                continue
            # Without a header yet, it reads what we have committed only later.
            if (header := read_header(self._directory, name)) is not None:
                require_turn(self._header, [header], self._directory.name, claimed=True)
                self._seen.add(name)

    def _commit(self, chunk: Chunk, data: bytes) -> None:
        self._write(data)
        self._temporary.replace(self._directory / chunk.file)
        _sync_directory(self._directory)
        self._require_claim()
        self._append(chunk)

    def _append(self, *lines: Header | Chunk) -> None:
        """Whole lines, on the disk. A full disk can take less: that is taken back."""
        manifest = self._manifest
        assert manifest is not None
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        before = os.fstat(manifest).st_size
        if os.write(manifest, data) != len(data):
            os.ftruncate(manifest, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(manifest)

    def _finish(self) -> None:
        if self._manifest is None:
            return
        self._require_claim()
        if self._is_settled():
            return
        if damaged := next((chunk.file for chunk in self.chunks if not self._is_whole(chunk)), None):
            raise WorkerError(
                WorkerReason.OUTPUT_UNWRITABLE,
                f"{damaged} in {self._directory.name!r} has changed since it was written; the next attempt writes it again",
            )
        header = self._author
        summary = Summary(header.job, header.uid, header.model_digest, header.total, tuple(self.chunks))
        if self._publish(encode_summary(summary)):
            self._clean()

    def _is_settled(self) -> bool:
        """Whether the summary is there already: an attempt that this one has outranked may have been first. Any other goes."""
        summary = read_summary(self._directory)
        if summary is None:
            return False
        end = summary.chunks[-1].end if summary.chunks else 0
        if summary.uid == self._author.uid and end == self._author.total and all(map(self._is_whole, summary.chunks)):
            self.chunks = list(summary.chunks)
            return True
        (self._directory / SUMMARY).unlink(missing_ok=True)
        return False

    def _publish(self, data: bytes) -> bool:
        """Give the summary its name, which nothing may have yet. Return whether the file system has made sure of that."""
        path, alone = self._directory / SUMMARY, True
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
        _sync_directory(self._directory)
        return alone

    @property
    def _temporary(self) -> Path:
        """Where what has no name yet is written."""
        return self._directory / f".{self._header.claim}.tmp"

    def _write(self, data: bytes) -> None:
        """Write to the temporary file, through no link, and on the disk when this returns."""
        self._temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(self._temporary, _NEW_FILE, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _clean(self) -> None:
        """Remove what nobody will read: chunks which are not among ours and temporary files, of all attempts but later ones."""
        kept = {chunk.file for chunk in self.chunks}
        headers = (read_header(self._directory, name) for name in manifest_names(self._directory))
        over = {header.claim for header in headers if header is not None and not header.outranks(self._header)}
        for path in list(self._directory.iterdir()):
            found = CHUNK_NAME.fullmatch(path.name) or TEMPORARY_NAME.fullmatch(path.name)
            if found is not None and found["claim"] in over and path.name not in kept:
                path.unlink(missing_ok=True)

    def _summary_is_there(self) -> bool:
        return os.path.lexists(self._directory / SUMMARY)

    def _is_whole(self, chunk: Chunk) -> bool:
        path = self._directory / chunk.file
        if not CHUNK_NAME.fullmatch(chunk.file) or path.is_symlink():
            return False
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == chunk.sha256
        except OSError:
            return False

    def _close(self) -> None:
        manifest, self._manifest = self._manifest, None
        if manifest is not None:
            os.close(manifest)


def _sync_directory(path: Path) -> None:
    """A rename is on the disk only once its directory is."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(directory: Path, error: OSError) -> WorkerError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WorkerError(WorkerReason.OUTPUT_UNWRITABLE, f"no space left for {directory.name!r}; enlarge the volume or empty it")
    if error.errno == errno.ELOOP:
        return WorkerError(
            WorkerReason.URI_FORBIDDEN, f"{directory.name!r} holds a link in the place of a file; choose another output"
        )
    return WorkerError(
        WorkerReason.OUTPUT_UNWRITABLE,
        f"can't write to {directory.name!r}: {error.strerror}; the worker runs as user 65532, which must be allowed to write there",
    )

"""The output directory: numbered chunks and a manifest, so that nothing finished is lost or done twice.

A chunk is committed in two steps: its file is renamed into place, then one line is appended to `manifest.jsonl`. Only lines
count. A line that a crash tore is cut off; a file without a line is overwritten, a line without its whole file is done again.
Chunks follow one another without gaps, so a resumed task goes on at the end of the last one. A lock on the manifest keeps a second
writer out. Answers that are finished are never deleted: who asks the same gets them, and who asks anything else is refused.
"""

import errno
import fcntl
import hashlib
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.manifest import CHUNK_NAME, MANIFEST, SUMMARY, Chunk, Header, Summary, encode_summary, header_of
from inference_worker.errors import StoppedError, WorkerError

_LOCK_WAIT_SECONDS = 20.0
_HEADER_START = b'{"job":'


class Output:
    """An output directory that is open for one attempt. Raises WorkerError OUTPUT_UNWRITABLE, OUTPUT_CONFLICT or INPUT_CHANGED.

    `stop` ends the wait for the lock, which another worker may hold for long.
    """

    def __init__(self, directory: Path, header: Header, *, attempt: int, suffix: str, stop: threading.Event | None = None) -> None:
        self._directory = directory
        self._header = header
        self._attempt = attempt
        self._suffix = suffix
        self._stop = stop or threading.Event()
        self._author = header
        self.chunks: list[Chunk] = []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # A link in the place of a file would lead the writes out of the volume.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._manifest = os.open(directory / MANIFEST, flags, 0o644)
        except OSError as error:
            raise _unwritable(directory, error) from error
        try:
            self._lock()
            self._recover()
        except OSError as error:
            os.close(self._manifest)
            raise _unwritable(directory, error) from error
        except BaseException:
            os.close(self._manifest)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._manifest)

    @property
    def end(self) -> int:
        """The first item without a committed answer."""
        return self.chunks[-1].end if self.chunks else 0

    def commit(self, start: int, end: int, data: bytes) -> None:
        """Commit the answers to items start..end, which follow the last chunk."""
        if start != self.end:
            raise AssertionError(f"chunk {start}..{end} does not follow {self.end}")
        name = f"chunk-{start:010d}{self._suffix}"
        chunk = Chunk(name, start, end, hashlib.sha256(data).hexdigest(), self._attempt)
        try:
            _write_whole(self._directory / name, data)
            self._append(chunk)
        except OSError as error:
            raise _unwritable(self._directory, error) from error
        self.chunks.append(chunk)

    def finish(self) -> None:
        """Write the summary that tells readers that all chunks are there. It names the job that has made them."""
        header = self._author
        summary = Summary(header.job, header.uid, header.model_digest, header.total, tuple(self.chunks))
        try:
            _write_whole(self._directory / SUMMARY, encode_summary(summary))
        except OSError as error:
            raise _unwritable(self._directory, error) from error

    def _append(self, line: Header | Chunk) -> None:
        """One whole line, on the disk. A full disk can take half of it: that half is taken back."""
        data = msgspec.json.encode(line) + b"\n"
        before = os.fstat(self._manifest).st_size
        if os.write(self._manifest, data) != len(data):
            os.ftruncate(self._manifest, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._manifest)

    def _lock(self) -> None:
        give_up = time.monotonic() + _LOCK_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(self._manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise WorkerError(
                        WorkerReason.OUTPUT_UNWRITABLE,
                        f"another worker still writes to {self._directory.name!r}; its lock is waited for in the next attempt",
                    ) from None
            time.sleep(0.1)
            if self._stop.is_set():
                raise StoppedError

    def _recover(self) -> None:
        """Read what earlier attempts committed; cut off what a crash tore; start anew where that loses nothing finished."""
        raw = os.pread(self._manifest, os.fstat(self._manifest).st_size, 0)
        lines = raw.split(b"\n")
        previous = header_of(lines)
        if previous is None:
            # Nothing of ours stands here: either the first line was torn at the very start, or the file is somebody else's.
            if len(lines) > 1 or not raw.startswith(_HEADER_START[: len(raw)]):
                raise _conflict(f"{MANIFEST} in {self._directory.name!r} is not ours")
            if self._has_summary():
                raise _conflict(f"{self._directory.name!r} holds finished answers, which its {MANIFEST} does not tell of")
            self._start_anew()
            return
        self._require_turn(previous)
        chunks, whole = _chunks_of(lines, self._directory)
        if previous.asks_the_same(self._header) and previous.has_the_same_input(self._header):
            self._go_on(previous, chunks, whole)
        elif self._is_finished(previous, chunks):
            raise _finished(self._directory, previous, "and this one has another input, model or options")
        elif chunks and previous.uid == self._header.uid and previous.asks_the_same(self._header):
            raise _input_changed(self._directory, len(chunks))
        else:
            self._start_anew()

    def _require_turn(self, previous: Header) -> None:
        """Raise WorkerError OUTPUT_CONFLICT where the directory is another job's, or a later one's of this name."""
        if previous.job != self._header.job:
            raise _conflict(f"{self._directory.name!r} holds the answers of job {previous.job}")
        if previous.uid != self._header.uid and previous.created > self._header.created:
            raise _conflict("a later job of this name has written here; this one is obsolete")

    def _go_on(self, previous: Header, chunks: list[Chunk], whole: int) -> None:
        """Take over the answers to the same question and input: of this job all, of an earlier one finished ones."""
        if previous.uid != self._header.uid:
            if (chunks[-1].end if chunks else 0) == previous.total:
                self.chunks, self._author = chunks, previous
            elif self._has_summary():
                raise _finished(self._directory, previous, "but a chunk of them is missing or damaged")
            else:
                self._start_anew()
            return
        if chunks and chunks[-1].attempt > self._attempt:
            raise _conflict("a later attempt has written here; this one is obsolete")
        os.ftruncate(self._manifest, whole)
        self.chunks = chunks

    def _is_finished(self, previous: Header, chunks: list[Chunk]) -> bool:
        """Whether a reader may count on what is here. A summary that has lost a chunk is still somebody's."""
        return self._has_summary() or bool(chunks and chunks[-1].end == previous.total)

    def _has_summary(self) -> bool:
        return os.path.lexists(self._directory / SUMMARY)

    def _start_anew(self) -> None:
        for path in list(self._directory.iterdir()):
            if CHUNK_NAME.fullmatch(path.name):
                path.unlink()
        os.ftruncate(self._manifest, 0)
        self._append(self._header)
        _sync_directory(self._directory)


def _chunks_of(lines: list[bytes], directory: Path) -> tuple[list[Chunk], int]:
    """The chunks that are really there, each following the last, and the length of the manifest that speaks of them.

    What comes after the first line that is torn, garbled, out of order, or whose file is missing or damaged does not count: it is
    done again.
    """
    chunks: list[Chunk] = []
    length = len(lines[0]) + 1
    for line in lines[1:-1]:
        try:
            chunk = msgspec.json.decode(line, type=Chunk)
        except (msgspec.DecodeError, msgspec.ValidationError):
            break
        if chunk.start != (chunks[-1].end if chunks else 0) or not _is_whole(directory / chunk.file, chunk.sha256):
            break
        chunks.append(chunk)
        length += len(line) + 1
    return chunks, length


def _is_whole(path: Path, sha256: str) -> bool:
    if not CHUNK_NAME.fullmatch(path.name) or path.is_symlink():
        return False
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there wholly or not at all, through no link, and on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """A rename is on the disk only once its directory is."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _conflict(what: str) -> WorkerError:
    return WorkerError(WorkerReason.OUTPUT_CONFLICT, f"{what}; choose another output, or empty it")


def _finished(directory: Path, previous: Header, why: str) -> WorkerError:
    return _conflict(f"{directory.name!r} holds the finished answers of job {previous.job} (uid {previous.uid}), {why}")


def _input_changed(directory: Path, chunks: int) -> WorkerError:
    return WorkerError(
        WorkerReason.INPUT_CHANGED,
        f"the input has changed since an earlier attempt committed {chunks} chunks in {directory.name!r}, which stay; restore the "
        "input, or set another output.uri; deleting the job and creating it anew answers the new input from its first item",
    )


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

"""The output directory: numbered parts and a manifest, so that nothing finished is lost or done twice.

A part is committed in two steps: its file is renamed into place, then one line is appended to `manifest.jsonl`. Only lines
count. A line that a crash tore is cut off; a file without a line is overwritten. Parts follow one another without gaps, so a
resumed task goes on at the end of the last one. A lock on the manifest keeps a second writer out.
"""

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError

MANIFEST = "manifest.jsonl"
SUMMARY = "manifest.json"
_LOCK_WAIT_SECONDS = 20.0


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """The manifest's first line: whose answers these are, and to what."""

    job: str
    uid: str
    model_digest: str
    input: str
    total: int


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """One committed file with the answers to items start..end (end excluded)."""

    file: str
    start: int
    end: int
    sha256: str
    attempt: int


class Output:
    """An output directory that is open for one attempt. Raises WorkerError OUTPUT_UNWRITABLE or OUTPUT_CONFLICT."""

    def __init__(self, directory: Path, header: Header, *, attempt: int, suffix: str) -> None:
        self._directory = directory
        self._header = header
        self._attempt = attempt
        self._suffix = suffix
        self.parts: list[Part] = []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._manifest = os.open(directory / MANIFEST, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise _unwritable(directory, error) from error
        try:
            self._lock()
            self._recover()
        except OSError as error:
            os.close(self._manifest)
            raise _unwritable(directory, error) from error
        except WorkerError:
            os.close(self._manifest)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._manifest)

    @property
    def end(self) -> int:
        """The first item without a committed answer."""
        return self.parts[-1].end if self.parts else 0

    def commit(self, start: int, end: int, data: bytes) -> None:
        """Commit the answers to items start..end, which follow the last part."""
        if start != self.end:
            raise AssertionError(f"part {start}..{end} does not follow {self.end}")
        name = f"part-{start:010d}{self._suffix}"
        part = Part(name, start, end, hashlib.sha256(data).hexdigest(), self._attempt)
        try:
            _write_whole(self._directory / name, data)
            os.write(self._manifest, msgspec.json.encode(part) + b"\n")
            os.fsync(self._manifest)
        except OSError as error:
            raise _unwritable(self._directory, error) from error
        self.parts.append(part)

    def finish(self) -> None:
        """Write the summary that tells readers that all parts are there."""
        summary = {
            "job": self._header.job,
            "uid": self._header.uid,
            "modelDigest": self._header.model_digest,
            "total": self._header.total,
            "parts": [msgspec.to_builtins(part) for part in self.parts],
        }
        try:
            _write_whole(self._directory / SUMMARY, json.dumps(summary, indent=1).encode() + b"\n")
        except OSError as error:
            raise _unwritable(self._directory, error) from error

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

    def _recover(self) -> None:
        """Read what earlier attempts committed; cut off a torn line; start anew where the task itself has changed."""
        raw = os.pread(self._manifest, os.fstat(self._manifest).st_size, 0)
        whole, _, torn = raw.rpartition(b"\n")
        if torn:
            os.ftruncate(self._manifest, len(raw) - len(torn))
        lines = whole.split(b"\n") if whole else []
        previous = _header_of(lines)
        if previous is not None and previous.job != self._header.job:
            raise WorkerError(
                WorkerReason.OUTPUT_CONFLICT,
                f"{self._directory.name!r} holds the answers of job {previous.job}; choose another output, or empty it",
            )
        if previous != self._header:
            self._start_anew()
            return
        self.parts = _contiguous([msgspec.json.decode(line, type=Part) for line in lines[1:]])
        if self.parts and self.parts[-1].attempt > self._attempt:
            raise WorkerError(WorkerReason.OUTPUT_CONFLICT, "a later attempt has written here; this one is obsolete")

    def _start_anew(self) -> None:
        (self._directory / SUMMARY).unlink(missing_ok=True)
        for stale in self._directory.glob("part-*"):
            stale.unlink()
        os.ftruncate(self._manifest, 0)
        os.write(self._manifest, msgspec.json.encode(self._header) + b"\n")
        os.fsync(self._manifest)


def _header_of(lines: list[bytes]) -> Header | None:
    if not lines:
        return None
    try:
        return msgspec.json.decode(lines[0], type=Header)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WorkerError(
            WorkerReason.OUTPUT_CONFLICT, f"{MANIFEST} in the output directory is not ours; choose another output"
        ) from error


def _contiguous(parts: list[Part]) -> list[Part]:
    kept: list[Part] = []
    for part in parts:
        if part.start == (kept[-1].end if kept else 0):
            kept.append(part)
    return kept


def _write_whole(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _unwritable(directory: Path, error: OSError) -> WorkerError:
    return WorkerError(
        WorkerReason.OUTPUT_UNWRITABLE,
        f"can't write to {directory.name!r}: {error.strerror}; the worker runs as user 65532, which must be allowed to write there",
    )

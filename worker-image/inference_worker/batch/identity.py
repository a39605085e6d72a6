"""What tells one question from another: the input's name, what lies there, and how it is read and answered."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from inference_protocol.messages import BatchTask, Quantization, encode
from inference_worker.batch.directory import Directory
from inference_worker.batch.items import invalid
from inference_worker.batch.manifest import read_summary, summary_digest

# To hash this much costs half a second; beyond, what the file system tells has to do.
_HASHED_BYTES = 256 << 20


def name_of(task: BatchTask) -> str:
    """Where the input of a task lies, or the digest of the data that the order holds."""
    if task.input_data is not None:
        return f"inline:{hashlib.sha256(task.input_data.encode()).hexdigest()}"
    return task.input_uri or ""


def options_of(task: BatchTask, quantization: Quantization | None) -> str:
    """What else answers depend on: how the input is read, and the variant of the model, which answers otherwise than the model."""
    variant = f" {encode(quantization).decode()}" if quantization is not None else ""
    return f"{task.input_format} {task.input_digest or ''} {task.allow_non_finite}{variant}"


def content_of(task: BatchTask, path: Path | None) -> str:
    """What names the content of a task's input, which lies at `path`; empty where its name does. Raises WorkerError INPUT_INVALID.

    A digest that was asked for and verified; that of the manifest, where it is another job's output; else that of all its bytes.
    For more than 256 MiB on a volume it is made of size, time of change and inode of each file.
    """
    if path is None or task.input_digest is not None:
        return task.input_digest or ""
    try:
        if task.input_format != "files" and read_summary(Directory(path)) is not None:
            return summary_digest(Directory(path)) or ""
        # What was fetched, or is in an image, has other inodes each time.
        return _stamp(path, stable=(task.input_uri or "").startswith("pvc:"))
    except OSError as error:
        raise invalid(f"{path.name!r} can't be read: {error.strerror}; leave the input alone until the job ends") from error


def _stamp(path: Path, *, stable: bool) -> str:
    """The digest over an input's files; `stable` where its inodes are worth something."""
    found = [(path.name, path.stat())] if path.is_file() else _listed(path)
    digest = hashlib.sha256()
    if stable and sum(stat.st_size for _, stat in found) > _HASHED_BYTES:
        for name, stat in found:
            digest.update(f"{name!r} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino}\n".encode())
        return f"files:{digest.hexdigest()}"
    if path.is_file():
        return _digest(path)
    for name, _ in found:
        digest.update(f"{name!r} {_digest(path / name)}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _listed(directory: Path) -> Sequence[tuple[str, os.stat_result]]:
    """The plain files of a directory by name; links are no items, so they don't count."""
    with os.scandir(directory) as entries:
        return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries if entry.is_file(follow_symlinks=False))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

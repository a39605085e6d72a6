"""The cache outside the checkout: content-keyed folders that survive a fresh clone."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.console import heartbeat


def cache_root() -> Path:
    """Return the cache folder; INFERENCE_OPERATOR_CACHE moves it."""
    chosen = os.environ.get("INFERENCE_OPERATOR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "inference-operator"


def digest(parts: Iterable[bytes]) -> str:
    """Return a short hash of the parts; their lengths count, so that none can run into the next."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "big"))
        sha.update(part)
    return sha.hexdigest()[:16]


def tree_digest(paths: Iterable[Path], *, base: Path, extra: Iterable[str] = ()) -> str:
    """Return a short hash of files and folders: relative names and contents, no times or owners."""
    parts: list[bytes] = [text.encode() for text in extra]
    for path in paths:
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in files:
            if "__pycache__" in file.parts:
                continue
            parts += [str(file.relative_to(base)).encode(), file.read_bytes()]
    return digest(parts)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a named lock between processes; the kernel frees it when the holder dies."""
    folder = cache_root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with heartbeat(f"another process that holds the lock {name}"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def published(target: Path) -> Iterator[Path]:
    """Yield a scratch folder that becomes `target` if the block succeeds; half is never seen."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    scratch.chmod(0o755)
    try:
        yield scratch
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

"""Graphs as ONNX Runtime has optimised them, kept so that a reload need not do it again.

An optimised graph is good for one CPU, one version of the runtime and one set of options, so all of these are in its name. The
model's digest is always checked on the original, before this is asked, and nothing in an optimised graph shows what it was made of.
So only the process that wrote a graph reads it back: its mark is made with a key that no other process has. The directory must be
this pod's own as well, because a file that is written and not marked yet could be replaced.
"""

import contextlib
import hashlib
import hmac
import logging
import os
import platform
import secrets
from collections.abc import Iterator
from pathlib import Path

import onnxruntime as ort

from inference_protocol.messages import VOLUME_ROOT

log = logging.getLogger(__name__)

DIRECTORY_VARIABLE = "INFERENCE_CACHE_DIRECTORY"
# Smaller graphs are optimised quicker than two files are written.
_WORTH_BYTES = 1 << 20
# Of this process, and never written anywhere.
_KEY = secrets.token_bytes(32)


class GraphCache:
    """One model's place in a directory of optimised graphs. What goes wrong with it costs time only, so it is passed over."""

    def __init__(self, directory: Path, digest: str) -> None:
        """`digest` is the verified one of the original."""
        self._directory = directory
        key = hashlib.sha256(f"{digest} {ort.__version__} {platform.machine()} {_cpu_flags()}".encode()).hexdigest()
        self._path = directory / f"{key}.onnx"
        self._mark = directory / f"{key}.mac"

    def get(self) -> bytes | None:
        """The optimised form; None when there is none, or none that can be trusted."""
        try:
            if not is_private(self._directory):
                return None
            optimised, mark = self._path.read_bytes(), self._mark.read_bytes()
        except OSError:
            return None
        if not hmac.compare_digest(self._mark_of(optimised), mark):
            log.warning("a cached graph is damaged, or another process wrote it, and will be made again: %s", self._path.name)
            self.drop()
            return None
        return optimised

    def drop(self) -> None:
        """Forget it."""
        for path in (self._mark, self._path):
            with contextlib.suppress(OSError):
                path.unlink()

    @contextlib.contextmanager
    def filling(self) -> Iterator[Path | None]:
        """A path for the runtime to write the optimised graph to, kept when the block ends well; None when it can't be kept."""
        scratch = self._scratch()
        try:
            yield scratch
        except BaseException:
            if scratch is not None:
                scratch.unlink(missing_ok=True)
            raise
        if scratch is not None:
            with contextlib.suppress(OSError):
                self._keep(scratch)

    def _scratch(self) -> Path | None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_private(self._directory):
                log.warning("%s is on a claim, or others can write to it, and is not used as a cache", self._directory)
                return None
        except OSError as error:
            log.warning("no cache of optimised graphs: %s", error)
            return None
        return self._directory / f".{self._path.stem}-{os.getpid()}.onnx"

    def _keep(self, scratch: Path) -> None:
        mark = scratch.with_suffix(".mac")
        mark.write_bytes(self._mark_of(scratch.read_bytes()))
        scratch.replace(self._path)
        mark.replace(self._mark)

    def _mark_of(self, optimised: bytes) -> bytes:
        """What only this process can say of a graph: that it is this model's."""
        return hmac.digest(_KEY, self._path.stem.encode() + optimised, "sha256")


def cache_for(data: bytes, digest: str, directory: str | None = None) -> GraphCache | None:
    """The cache of a model, in `directory` or the one that the environment names; None where it would not pay or none is wanted."""
    place = directory if directory is not None else os.environ.get(DIRECTORY_VARIABLE, "")
    return GraphCache(Path(place), digest) if place and len(data) >= _WORTH_BYTES else None


def _cpu_flags() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def is_private(directory: Path) -> bool:
    """Whether this pod alone can write there. On a claim others can: all workers are of one user, and so may be any pod."""
    state = directory.stat()
    if directory.resolve().is_relative_to(Path(VOLUME_ROOT).resolve()):
        return False
    return state.st_uid == os.getuid() and not state.st_mode & 0o022

"""The volume that batches write to: a small file system of its own, so that it can be filled and barred and nothing else is."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MIBIBYTES = 64
_BLOCK = bytes(1 << 20)


def output_of(volume: Path) -> Path:
    """Return the folder of a volume that batches write to."""
    return volume / "out"


@contextmanager
def small(folder: Path) -> Iterator[None]:
    """Have a small file system there, until the block ends. Pods that start meanwhile see it in their volume."""
    _run("mount", "-t", "tmpfs", "-o", f"size={_MIBIBYTES}m,mode=0777", "chaos", str(folder))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(folder))


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte free."""
    file = folder / "filling"
    try:
        with file.open("wb", buffering=0) as target:
            for size in (len(_BLOCK), 4096, 1):
                _fill(target.write, _BLOCK[:size])
        yield
    finally:
        file.unlink(missing_ok=True)


def _fill(write: Callable[[bytes], int | None], block: bytes) -> None:
    try:
        while write(block):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def barred(folder: Path) -> Iterator[None]:
    """Let nobody but root make or rename anything there, as where rights went with a mount. A kernel remounts no busy file system."""
    changed = [Path(at) for at, _, _ in os.walk(folder)]
    modes = {one: one.stat().st_mode for one in changed}
    try:
        for one in changed:
            one.chmod(0o555)
        yield
    finally:
        for one, mode in modes.items():
            with suppress(FileNotFoundError):
                one.chmod(mode)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

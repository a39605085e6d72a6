"""Turn files into the numbers that the magika model reads: int32 [N,2048].

The rule is the one that the package magika 1.0.3 follows (its paper: Y. Fratantonio et al., ICSE
2025), written anew: up to 4096 bytes from the start lose the white space in front, up to 4096
bytes from the end lose the white space behind, and the first and last 1024 of what is left are
the tokens; gaps between them are filled with 256, which no byte is. Files with fewer than eight
bytes behind the white space are not for the model.
"""

from __future__ import annotations

import os
import sysconfig
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from examples.models.file_types import KNOWN_EXTENSIONS, extension

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

BLOCK_BYTES = 4096
BEGIN_TOKENS = 1024
END_TOKENS = 1024
PADDING = 256
FEWEST_BYTES = 8

# Compiled files hold the time of their making, which would make every build another one; packages
# beside the standard library differ from one environment to the next.
SKIPPED_FOLDERS = frozenset({"__pycache__", "site-packages", ".git"})


def default_trees() -> list[Path]:
    """Return the standard library's folder and, where there is one, the system's documentation."""
    trees = [Path(sysconfig.get_paths()["stdlib"]), Path("/usr/share/doc")]
    return [tree for tree in trees if tree.is_dir()]


def tokens(begin: bytes, end: bytes) -> NDArray[np.int32] | None:
    """Return the tokens [2048] for a file's first and last block, or None if it is too short."""
    # Small files are in both blocks, yet each block is stripped on its own side only.
    head = begin.lstrip()[:BEGIN_TOKENS]
    tail = end.rstrip()[-END_TOKENS:]
    if len(head) < FEWEST_BYTES:
        return None
    row = np.full(BEGIN_TOKENS + END_TOKENS, PADDING, dtype=np.int32)
    row[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    row[len(row) - len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
    return row


def read_tokens(path: Path) -> NDArray[np.int32] | None:
    """Return the tokens [2048] of a file, or None if it is too short for the model."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        block = min(size, BLOCK_BYTES)
        file.seek(0)
        begin = file.read(block)
        file.seek(size - block)
        return tokens(begin, file.read(block))


def read_trees(roots: Sequence[Path], limit: int) -> tuple[NDArray[np.int32], list[str], list[Path]]:
    """Read at most ``limit`` files: tokens [N,2048], names that begin at the root, real paths.

    Files are taken by type in turns and returned in the order of their names.
    """
    read: list[tuple[str, Path, NDArray[np.int32]]] = []
    for name, path in _take_turns(list_files(roots)):
        if len(read) == limit:
            break
        row = _read_or_none(path)
        if row is not None:
            read.append((name, path, row))
    read.sort(key=lambda file: file[:2])
    rows = np.zeros((len(read), BEGIN_TOKENS + END_TOKENS), dtype=np.int32)
    for place, (_, _, row) in zip(rows, read, strict=True):
        place[:] = row
    return rows, [name for name, _, _ in read], [path for _, path, _ in read]


def list_files(roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Yield (name from the root's own name on, path) of each regular file, in sorted order."""
    for root in roots:
        for folder, inner, files in os.walk(root):
            inner[:] = sorted(set(inner) - SKIPPED_FOLDERS)
            for file in sorted(files):
                path = Path(folder, file)
                if path.is_file() and not path.is_symlink():
                    yield path.relative_to(root.parent).as_posix(), path


def _take_turns(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """Yield one file of each type in turn, so that a thousand Python files do not hide the rest."""
    types: dict[str, list[tuple[str, Path]]] = {}
    for name, path in files:
        kind = extension(name)
        types.setdefault(kind if kind in KNOWN_EXTENSIONS else "", []).append((name, path))
    for turn in zip_longest(*(types[kind] for kind in sorted(types))):
        yield from (file for file in turn if file is not None)


def _read_or_none(path: Path) -> NDArray[np.int32] | None:
    try:
        return read_tokens(path)
    except OSError:
        # A file of another user, or one that has gone since it was listed.
        return None

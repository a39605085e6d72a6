"""Read output directories as a program beside a job does, while the job runs."""

import contextlib
import json
from pathlib import Path
from typing import Any


def committed_chunks(directory: Path, attempt: int | None = None) -> list[dict[str, Any]]:
    """The chunks of one attempt, in their order: of that which has committed most, where none is named.

    A line that is not whole doesn't count. A server of S3 may remove an object before it puts the next in its place, so a reader
    of the disk below can find none of a log, or fewer chunks than before.
    """
    lines: list[bytes] = []
    for path in (directory / "attempts").glob(f"*-{'*' if attempt is None else attempt}.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            lines = max(lines, path.read_bytes().split(b"\n")[1:-1], key=len)
    return [json.loads(line) for line in lines]


def committed_items(directory: Path) -> int:
    """How many items, from the first one on, have committed answers."""
    chunks = committed_chunks(directory)
    return int(chunks[-1]["end"]) if chunks else 0


def chunk_file(directory: Path, start: int) -> Path:
    """The chunk that begins with an item."""
    (found,) = directory.glob(f"chunk-{start:010d}-*")
    return found

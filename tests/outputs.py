"""Read output directories as a program beside a job does, while the job runs."""

import json
from pathlib import Path
from typing import Any


def committed_chunks(directory: Path) -> list[dict[str, Any]]:
    """The chunks of that attempt which has committed most, in their order; a line that is not whole doesn't count."""
    attempts = [path.read_bytes().split(b"\n")[1:-1] for path in (directory / "attempts").glob("*.jsonl")]
    return max(([json.loads(line) for line in lines] for lines in attempts), key=len, default=[])


def committed_items(directory: Path) -> int:
    """How many items, from the first one on, have committed answers."""
    chunks = committed_chunks(directory)
    return int(chunks[-1]["end"]) if chunks else 0


def chunk_file(directory: Path, start: int) -> Path:
    """The chunk that begins with an item."""
    (found,) = directory.glob(f"chunk-{start:010d}-*")
    return found

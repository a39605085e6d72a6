"""Files that are there whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one step: readers see the old or the new bytes, never half of them. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:64]}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise

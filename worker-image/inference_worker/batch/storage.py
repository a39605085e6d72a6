"""What the commit protocol asks of the place that an output is kept in: a directory of a volume, or a folder in a bucket.

`output.py` and `takeover.py` decide, and neither knows which of the two it is.
"""

from typing import Protocol

from inference_worker.errors import WorkerError


class Readable(Protocol):
    """Files by name, below one folder. A name may have one folder before it: `attempts/NAME`. Raises OSError."""

    @property
    def label(self) -> str:
        """What messages call the folder."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """The names of what lies in the folder, or in one below it, in any order; none where there is no such folder."""
        ...

    def read(self, name: str, limit: int) -> bytes | None:
        """The first `limit` bytes of a plain file; None where there is none."""
        ...


class OutputStorage(Readable, Protocol):
    """A folder that is written to. Each write is durable, and seen by every reader, once its call returns.

    The protocol rests on `claim` and `publish`, which give a name once, whoever else tries. Raises OSError.
    """

    @property
    def commit_seconds(self) -> float:
        """How long answers are gathered before they are committed: what a commit costs differs, and so does what a kill may."""
        ...

    def exists(self, name: str) -> bool:
        """Whether the name is taken, by a file or by anything else."""
        ...

    def digest(self, name: str) -> str | None:
        """The sha256 of a whole plain file, as HEX; None where there is none, or it can't be read."""
        ...

    def claim(self, name: str, data: bytes) -> bool:
        """Make the manifest of this attempt, which `append` adds to. False where the name is taken."""
        ...

    def append(self, data: bytes) -> None:
        """Add lines to that manifest: all of them or none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file whose name nobody else has."""
        ...

    def publish(self, name: str, data: bytes) -> bool:
        """Write a file that must not be there yet. False where the volume can't make sure of that, and the file is written."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def fault(self, error: OSError) -> WorkerError:
        """What an error of one of these calls is for the job's author."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...

"""The folder on this machine that an output is fetched to. A file has its name once it is whole, and its digest right."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from inference_client.errors import ClientError, InvalidError
from inference_client.output import PARTIAL, SUMMARY, Chunk, Listing, as_json

Sink = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that gets chunks and their list. Names are those of `output.py`, which leave no folder."""

    path: Path

    def begin(self, listing: Listing, *, force: bool) -> None:
        """Make the folder. Raises InvalidError where it has another output, unless that may be replaced by `force`."""
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            there = _content(self.path / SUMMARY)
        if there is not None and not force and (not listing.whole or there != as_json(listing)):
            raise InvalidError(f"{self.path} holds another output: name another folder, or replace it by force")

    def has(self, chunk: Chunk) -> bool:
        """Whether a chunk is there already, as it should be."""
        path = self.path / chunk.file
        with _told(self.path):
            # Whatever else lies there is replaced.
            if path.is_symlink() or not path.is_file():
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == chunk.sha256

    @contextlib.contextmanager
    def writing(self, chunk: Chunk, limit: int) -> Iterator[Sink]:
        """Where a chunk's bytes go; at the end it gets its name. Raises ClientError for another digest, or too many bytes."""
        part = self.path / f".{chunk.file}.part"
        digest, size = hashlib.sha256(), 0
        with _told(self.path), contextlib.ExitStack() as stack:
            part.unlink(missing_ok=True)
            stack.callback(part.unlink, missing_ok=True)
            file = stack.enter_context(_created(part))

            def sink(data: bytes) -> None:
                nonlocal size
                size += len(data)
                if size > limit:
                    raise ClientError(f"{chunk.file} has more than {limit} bytes")
                digest.update(data)
                with _told(self.path):
                    file.write(data)

            yield sink
            if digest.hexdigest() != chunk.sha256:
                raise ClientError(
                    f"{chunk.file} has the digest {digest.hexdigest()}, and its list says {chunk.sha256}: "
                    "it has changed since it was written"
                )
            file.close()
            part.replace(self.path / chunk.file)

    def finish(self, listing: Listing) -> None:
        """Write the list, by which the folder is whole; one of an unfinished output has a name of its own."""
        self.put(SUMMARY if listing.whole else PARTIAL, as_json(listing), force=True)
        if listing.whole:
            with _told(self.path):
                (self.path / PARTIAL).unlink(missing_ok=True)

    def put(self, name: str, data: bytes, *, force: bool) -> Path:
        """Write a small file all at once. Raises InvalidError where another one is, unless that may be replaced by `force`."""
        part, path = self.path / f".{name}.part", self.path / name
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            if not force and _content(path) not in (None, data):
                raise InvalidError(
                    f"{path} is there already, and holds something else: name another folder, or replace it by force"
                )
            part.unlink(missing_ok=True)
            with _created(part) as file:
                file.write(data)
            part.replace(path)
        return path


def _created(path: Path) -> BinaryIO:
    """A file that was not there, and so is no link that somebody has put there."""
    return path.open("xb")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClientError(f"{path} can't be written: {error}") from error

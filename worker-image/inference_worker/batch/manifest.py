"""What an output directory says of itself: the records of its two manifests, and how they are read."""

import hashlib
import json
import re
from pathlib import Path

import msgspec

MANIFEST = "manifest.jsonl"
SUMMARY = "manifest.json"
CHUNK_NAME = re.compile(r"chunk-\d{10}\.(npz|jsonl)")
# A line of a chunk has some 150 bytes, and a worker commits about once a second: this is days of work.
_LIMIT_BYTES = 64 << 20
_HEADER_LIMIT_BYTES = 64 << 10


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """The manifest's first line: whose answers these are, and to what.

    `input` and `options` tell what was asked, `content` what then lay at the input; `created` orders jobs of one name. Fields that
    came later have defaults, so that a manifest from before them is still read.
    """

    job: str
    uid: str
    model_digest: str
    input: str
    total: int
    options: str = ""
    created: str = ""
    content: str = ""

    def asks_the_same(self, other: "Header") -> bool:
        """Whether both ask the same question, whatever lies at the input by now."""
        mine, theirs = ((one.job, one.model_digest, one.input, one.options) for one in (self, other))
        return mine == theirs

    def has_the_same_input(self, other: "Header") -> bool:
        """Whether both found the same at the input. A manifest that does not tell is believed."""
        return self.total == other.total and (self.content == other.content or not self.content or not other.content)


class Chunk(msgspec.Struct, frozen=True, rename="camel"):
    """One committed file with the answers to items start..end (end excluded)."""

    file: str
    start: int
    end: int
    sha256: str
    attempt: int


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """What is written once every item is answered: the job, and all chunks in their order."""

    job: str
    uid: str
    model_digest: str
    total: int
    chunks: tuple[Chunk, ...]


def encode_summary(summary: Summary) -> bytes:
    """The summary as indented JSON, for people too."""
    return json.dumps(msgspec.to_builtins(summary), indent=1).encode() + b"\n"


def header_of(lines: list[bytes]) -> Header | None:
    """The header of a manifest's lines, if the first of them is whole and one of ours."""
    if len(lines) < 2:
        return None
    try:
        return msgspec.json.decode(lines[0], type=Header)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def read_header(directory: Path) -> Header | None:
    """The header of the manifest in a directory; None where there is none of ours. Raises OSError."""
    raw = _read(directory / MANIFEST, _HEADER_LIMIT_BYTES)
    return None if raw is None else header_of(raw.split(b"\n"))


def read_summary(directory: Path) -> Summary | None:
    """The summary in a directory; None where there is none of ours. Raises OSError."""
    raw = _read(directory / SUMMARY, _LIMIT_BYTES)
    try:
        return None if raw is None else msgspec.json.decode(raw, type=Summary)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def summary_digest(directory: Path) -> str | None:
    """The `sha256:HEX` of the summary in a directory; None where there is none. Raises OSError."""
    raw = _read(directory / SUMMARY, _LIMIT_BYTES)
    return None if raw is None else f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _read(path: Path, limit: int) -> bytes | None:
    """The first `limit` bytes of a file that is no link; None where there is no such file."""
    # A link could lead out of the volume.
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(limit)

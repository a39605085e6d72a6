"""What an output says of itself: the records of its manifests, and how they are read."""

import hashlib
import json
import re
from typing import NamedTuple

import msgspec

from inference_worker.batch.storage import Readable

ATTEMPTS = "attempts"
"""The folder of the attempts' own manifests."""

SUMMARY = "manifest.json"
CHUNK_NAME = re.compile(r"chunk-\d{10}(-(?P<claim>[0-9a-f]{8}-\d+))?\.(npz|jsonl)")
TEMPORARY_NAME = re.compile(r"\.(?P<claim>[0-9a-f]{8}-\d+)\.tmp")
MANIFEST_NAME = re.compile(r"[0-9a-f]{8}-\d+\.jsonl")
# A line of a chunk has some 150 bytes, and a worker commits about once a second: this is days of work.
_LIMIT_BYTES = 64 << 20
_HEADER_LIMIT_BYTES = 64 << 10


class Header(msgspec.Struct, frozen=True, rename="camel"):
    """The first line of an attempt's manifest: whose answers these are, and to what.

    `input` and `options` tell what was asked, `content` what then lay at the input. `created` orders the jobs of one name, and
    `attempt` those of one job. `writer` tells two workers apart that both believe to be this attempt.
    """

    job: str
    uid: str
    model_digest: str
    input: str
    total: int
    options: str = ""
    created: str = ""
    content: str = ""
    attempt: int = 0
    writer: str = ""

    @property
    def claim(self) -> str:
        """The name of this attempt in the names of its files, which no other attempt of this or another job has."""
        return f"{hashlib.sha256(self.uid.encode()).hexdigest()[:8]}-{self.attempt}"

    def outranks(self, other: "Header") -> bool:
        """Whether this is the later attempt of the same job, or one of a later job of this name."""
        return self.attempt > other.attempt if self.uid == other.uid else self.created > other.created

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


class Manifest(NamedTuple):
    """What an attempt says: who it is, and what it has committed, from the first item on and without gaps."""

    header: Header
    chunks: tuple[Chunk, ...] = ()

    @property
    def end(self) -> int:
        """The first item without a committed answer."""
        return self.chunks[-1].end if self.chunks else 0


def encode_summary(summary: Summary) -> bytes:
    """The summary as indented JSON, for people too."""
    return json.dumps(msgspec.to_builtins(summary), indent=1).encode() + b"\n"


def decode_manifest(raw: bytes) -> Manifest | None:
    """What an attempt's file says; None where its first line is not whole, or none of ours.

    What comes after the first line that is torn, garbled or out of order does not count: it is done again.
    """
    first, *lines = raw.split(b"\n")
    if not lines:
        return None
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    chunks: list[Chunk] = []
    for line in lines[:-1]:
        try:
            chunk = msgspec.json.decode(line, type=Chunk)
        except (msgspec.DecodeError, msgspec.ValidationError):
            break
        if chunk.start != (chunks[-1].end if chunks else 0):
            break
        chunks.append(chunk)
    return Manifest(header, tuple(chunks))


def manifest_names(folder: Readable) -> list[str]:
    """The names of all attempts' manifests. Raises OSError."""
    return [name for name in folder.names(ATTEMPTS) if MANIFEST_NAME.fullmatch(name)]


def read_manifests(folder: Readable) -> list[Manifest]:
    """All attempts' manifests; what isn't one is left out. Raises OSError."""
    raw = (folder.read(f"{ATTEMPTS}/{name}", _LIMIT_BYTES) for name in manifest_names(folder))
    found = (decode_manifest(data) for data in raw if data is not None)
    return [manifest for manifest in found if manifest is not None]


def read_header(folder: Readable, name: str) -> Header | None:
    """The first line of one attempt's manifest; None where it is not whole yet. Raises OSError."""
    raw = folder.read(f"{ATTEMPTS}/{name}", _HEADER_LIMIT_BYTES)
    manifest = None if raw is None else decode_manifest(raw[: raw.find(b"\n") + 1])
    return None if manifest is None else manifest.header


def author_of(folder: Readable) -> Header | None:
    """The header of an attempt at the answers in a folder; None where there is none of ours. Raises OSError."""
    headers = (read_header(folder, name) for name in manifest_names(folder))
    return next((header for header in headers if header is not None), None)


def read_summary(folder: Readable) -> Summary | None:
    """The summary in a folder; None where there is none of ours. Raises OSError."""
    raw = folder.read(SUMMARY, _LIMIT_BYTES)
    try:
        return None if raw is None else msgspec.json.decode(raw, type=Summary)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def summary_digest(folder: Readable) -> str | None:
    """The `sha256:HEX` of the summary in a folder; None where there is none. Raises OSError."""
    raw = folder.read(SUMMARY, _LIMIT_BYTES)
    return None if raw is None else f"sha256:{hashlib.sha256(raw).hexdigest()}"

"""What an output says of itself, as far as whoever fetches it has to know: pure. What is read here, anybody may have written."""

import hashlib
import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from inference_client.errors import ClientError

SUMMARY = "manifest.json"
PARTIAL = "manifest.partial.json"
"""What a folder has in its place that holds only what was committed so far."""
ATTEMPTS = "attempts"
MANIFEST_BYTES = 64 << 20
"""As much as a worker reads of a manifest: days of work."""
CHUNK_BYTES = 5 << 30
"""As much as a store takes at once; a worker commits some 32 MiB."""

# Nothing that leaves a folder, hides in it, or means something to a terminal.
_CHUNK_NAME = re.compile(r"chunk-[0-9]{10}(-[0-9a-f]{8}-[0-9]{1,10})?\.(npz|jsonl)")
_ATTEMPT_NAME = re.compile(r"[0-9a-f]{8}-[0-9]{1,10}\.jsonl")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


class Chunk(msgspec.Struct, frozen=True):
    """A file with the answers to the items from `start` up to, but not including, `end`."""

    file: str
    start: int
    end: int
    sha256: str
    attempt: int = 0


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """The list of all chunks: manifest.json."""

    job: str
    uid: str
    total: int
    chunks: tuple[Chunk, ...]
    model_digest: str = ""


class _Header(msgspec.Struct, frozen=True, rename="camel"):
    job: str
    uid: str
    total: int
    model_digest: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """Chunks that follow one another from the first item on. `whole`: they are all that there will be, and `raw` lists them."""

    job: str
    uid: str
    total: int
    chunks: tuple[Chunk, ...]
    model_digest: str = ""
    whole: bool = False
    raw: bytes = b""

    @property
    def end(self) -> int:
        """The first item without an answer here."""
        return self.chunks[-1].end if self.chunks else 0


def summary(raw: bytes, job: str) -> Listing:
    """What manifest.json lists, of a job's output. Raises ClientError for what is none, or another job's."""
    found = _decoded(raw, Summary, SUMMARY)
    if found.job != job:
        raise ClientError(f"the output is that of job {found.job}, and not of {job}")
    listing = Listing(found.job, found.uid, found.total, found.chunks, found.model_digest, whole=True, raw=raw)
    _check(listing)
    if listing.end != listing.total:
        raise ClientError(f"{SUMMARY} lists the answers to {listing.end} of {listing.total} items")
    return listing


def attempt_names(names: tuple[str, ...], uid: str) -> tuple[str, ...]:
    """The lists of a job's own attempts among the names in their folder, the newest first."""
    mine = hashlib.sha256(uid.encode()).hexdigest()[:8]
    found = [name for name in names if _ATTEMPT_NAME.fullmatch(name) and name.startswith(f"{mine}-")]
    return tuple(sorted(found, key=lambda name: int(name.removesuffix(".jsonl").split("-")[1]), reverse=True))


def attempt(raw: bytes, job: str, uid: str) -> Listing | None:
    """What an attempt of a job has committed so far; none where the list is not this job's, or not begun."""
    first, *lines = raw.split(b"\n")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not lines or (header.job, header.uid) != (job, uid):
        return None
    # The last line may be torn: it counts once it is whole.
    chunks = tuple(_decoded(line, Chunk, "an attempt's list") for line in lines[:-1])
    listing = Listing(header.job, header.uid, header.total, chunks, header.model_digest)
    _check(listing)
    return listing


def longest(found: list[Listing]) -> Listing | None:
    """The list that has come furthest; of equals the first."""
    return max(found, key=lambda one: one.end, default=None)


def as_json(listing: Listing) -> bytes:
    """A list of chunks in the form of manifest.json; a whole one as it was read."""
    if listing.whole:
        return listing.raw
    made = Summary(listing.job, listing.uid, listing.total, listing.chunks, listing.model_digest)
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"


def _check(listing: Listing) -> None:
    """Raise ClientError for chunks with a gap, twice the same file, or with names or digests that no worker writes."""
    end, names = 0, set[str]()
    for chunk in listing.chunks:
        if _CHUNK_NAME.fullmatch(chunk.file) is None:
            raise ClientError(f"the output lists a file {chunk.file[:200]!r}, which is the name of no chunk: it is not fetched")
        if _DIGEST.fullmatch(chunk.sha256) is None:
            raise ClientError(f"the output lists {chunk.file} with {chunk.sha256[:80]!r}, which is no digest")
        if chunk.start != end or chunk.end <= chunk.start or chunk.end > listing.total or chunk.file in names:
            raise ClientError(f"the output lists {chunk.file} for items {chunk.start} to {chunk.end}, where {end} is due")
        end = chunk.end
        names.add(chunk.file)


def _decoded(raw: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError(f"{what} is none that a worker writes: {error}") from error

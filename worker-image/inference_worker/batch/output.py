"""The output of a batch: chunks and manifests, so that nothing finished is lost or done twice, whoever else believes to own it.

An attempt claims the output by creating a manifest of its own (`takeover.py`). A chunk is committed in two steps: its file appears
as a whole, then one line is appended to that manifest. Only lines count. A line that a crash tore does not, and one without
its whole file is done again. Chunks follow one another without gaps, so the next attempt goes on behind the longest chain. The
summary is created once, over chunks that are all there. Nothing depends on a lock. Answers that are finished are never deleted: who
asks the same gets them, and who asks anything else is refused.

Where all of it is kept is `storage.py`'s: a directory of a volume (`directory.py`), or a folder in a bucket (`bucket.py`).
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.manifest import (
    ATTEMPTS,
    CHUNK_NAME,
    SUMMARY,
    TEMPORARY_NAME,
    Chunk,
    Header,
    Summary,
    encode_summary,
    manifest_names,
    read_header,
    read_manifests,
    read_summary,
)
from inference_worker.batch.storage import OutputStorage
from inference_worker.batch.takeover import Start, Whole, require_turn, start_of
from inference_worker.errors import WorkerError


class Output:
    """An output that is open for one attempt.

    Raises WorkerError OUTPUT_CONFLICT, INPUT_CHANGED, OUTPUT_CLAIMED once a later attempt has it, or what its storage is short of.
    """

    def __init__(self, storage: OutputStorage, header: Header, *, suffix: str) -> None:
        self._storage = storage
        self._header = header
        self._suffix = suffix
        self._author = header
        self._claimed = False
        self._seen: set[str] = set()
        self.chunks: list[Chunk] = []
        try:
            self._guarded(self._open)
        except BaseException:
            storage.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._storage.close()

    @property
    def end(self) -> int:
        """The first item without a committed answer."""
        return self.chunks[-1].end if self.chunks else 0

    @property
    def commit_seconds(self) -> float:
        """How long answers are gathered before they are committed."""
        return self._storage.commit_seconds

    def commit(self, start: int, end: int, data: bytes) -> None:
        """Commit the answers to items start..end, which follow the last chunk."""
        if start != self.end:
            raise AssertionError(f"chunk {start}..{end} does not follow {self.end}")
        name = f"chunk-{start:010d}-{self._header.claim}{self._suffix}"
        chunk = Chunk(name, start, end, hashlib.sha256(data).hexdigest(), self._header.attempt)
        self._guarded(lambda: self._commit(chunk, data))
        self.chunks.append(chunk)

    def finish(self) -> None:
        """Write the summary that tells readers that all chunks are there. It names the job that has made them."""
        self._guarded(self._finish)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what may fail for want of space, rights or a network; to be outranked explains such a failure better."""
        try:
            work()
        except OSError as error:
            if self._claimed:
                with contextlib.suppress(OSError):
                    self._require_claim()
            raise self._storage.fault(error) from error

    def _open(self) -> None:
        # Read once for both looks; all are read again at the end.
        whole = functools.cache(self._is_whole)
        start = self._start(whole)
        if start.chunks and start.chunks[-1].end == start.author.total and self._storage.exists(SUMMARY):
            self._author, self.chunks = start.author, list(start.chunks)
            return
        if not self._storage.claim(f"{ATTEMPTS}/{self._name}", _lines(self._header)):
            label = self._storage.label
            raise WorkerError(WorkerReason.OUTPUT_CLAIMED, f"another worker has claimed {label!r} for this attempt")
        self._claimed = True
        try:
            # Whoever claimed before this line is seen now, and whoever claims after it sees us.
            start = self._start(whole)
        except WorkerError:
            self._storage.remove(f"{ATTEMPTS}/{self._name}")
            raise
        self._author, self.chunks = start.author, list(start.chunks)
        if start.chunks:
            self._storage.append(_lines(*start.chunks))
        # With its temporary file, an earlier attempt loses the means to give a summary its name.
        self._clean()

    @property
    def _name(self) -> str:
        return f"{self._header.claim}.jsonl"

    def _start(self, whole: Whole) -> Start:
        # First the summary: whoever has written it has claimed before, and is among the manifests that are read now.
        finished_by = None
        if self._storage.exists(SUMMARY):
            summary = read_summary(self._storage)
            finished_by = summary.uid if summary is not None else ""
        others = read_manifests(self._storage)
        if self._claimed:
            others = [other for other in others if other.header.claim != self._header.claim]
        label = self._storage.label
        require_turn(self._header, (other.header for other in others), label, claimed=self._claimed)
        return start_of(self._header, others, finished_by, whole, label)

    def _require_claim(self) -> None:
        """Raise WorkerError OUTPUT_CLAIMED once somebody outranks this attempt. A claim that is new is looked at once."""
        for name in manifest_names(self._storage):
            if name == self._name or name in self._seen:
                continue
            # Without a header yet, it reads what we have committed only later.
            if (header := read_header(self._storage, name)) is not None:
                require_turn(self._header, [header], self._storage.label, claimed=True)
                self._seen.add(name)

    def _commit(self, chunk: Chunk, data: bytes) -> None:
        self._storage.write(chunk.file, data)
        self._require_claim()
        self._storage.append(_lines(chunk))

    def _finish(self) -> None:
        if not self._claimed:
            return
        self._require_claim()
        if self._is_settled():
            return
        if damaged := next((chunk.file for chunk in self.chunks if not self._is_whole(chunk)), None):
            raise WorkerError(
                WorkerReason.OUTPUT_UNWRITABLE,
                f"{damaged} in {self._storage.label!r} has changed since it was written; the next attempt writes it again",
            )
        header = self._author
        summary = Summary(header.job, header.uid, header.model_digest, header.total, tuple(self.chunks))
        if self._storage.publish(SUMMARY, encode_summary(summary)):
            self._clean()

    def _is_settled(self) -> bool:
        """Whether the summary is there already: an attempt that this one has outranked may have been first. Any other goes."""
        summary = read_summary(self._storage)
        if summary is None:
            return False
        end = summary.chunks[-1].end if summary.chunks else 0
        if summary.uid == self._author.uid and end == self._author.total and all(map(self._is_whole, summary.chunks)):
            self.chunks = list(summary.chunks)
            return True
        self._storage.remove(SUMMARY)
        return False

    def _clean(self) -> None:
        """Remove what nobody will read: chunks which are not among ours and temporary files, of all attempts but later ones."""
        kept = {chunk.file for chunk in self.chunks}
        headers = (read_header(self._storage, name) for name in manifest_names(self._storage))
        over = {header.claim for header in headers if header is not None and not header.outranks(self._header)}
        for name in self._storage.names():
            found = CHUNK_NAME.fullmatch(name) or TEMPORARY_NAME.fullmatch(name)
            if found is not None and found["claim"] in over and name not in kept:
                self._storage.remove(name)

    def _is_whole(self, chunk: Chunk) -> bool:
        return CHUNK_NAME.fullmatch(chunk.file) is not None and self._storage.digest(chunk.file) == chunk.sha256


def _lines(*records: Header | Chunk) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)

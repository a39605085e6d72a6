"""What an attempt may take over from those before it: pure decisions over what they have written.

An attempt claims a directory by creating its manifest, which must not exist. Nobody else writes to that file, or to chunks with its
name, so two attempts that run at once can't harm each other's answers. The later one outranks the earlier, which stops at its next
commit. It has read the manifest of the earlier one once, and counts nothing behind that.

Source: fencing by a token that grows (M. Kleppmann, "How to do distributed locking", 2016), here without a lock to get it from.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from inference_protocol.messages import Rival
from inference_protocol.reasons import WorkerReason
from inference_worker.batch.manifest import Chunk, Header, Manifest
from inference_worker.errors import WorkerError

Whole = Callable[[Chunk], bool]
"""Whether a chunk's file is there as it was written."""


class Start(NamedTuple):
    """Where an attempt begins: behind these chunks, which `author` has made or will have."""

    author: Header
    chunks: tuple[Chunk, ...] = ()


def require_turn(mine: Header, others: Iterable[Header], directory: str, *, claimed: bool = False) -> None:
    """Raise WorkerError: OUTPUT_CONFLICT where a directory is another job's, OUTPUT_CLAIMED where a later attempt has it.

    Of two jobs that have `claimed` it at the same moment, the one that was created first keeps it.
    """
    for other in others:
        if other.job != mine.job:
            if claimed and (mine.created, mine.uid) < (other.created, other.uid):
                continue
            raise conflict(f"{directory!r} holds the answers of job {other.job}")
        if other.outranks(mine) or other.claim == mine.claim:
            raise WorkerError(
                WorkerReason.OUTPUT_CLAIMED,
                f"attempt {other.attempt} of job {other.job} (uid {other.uid}) has claimed {directory!r}",
                # As it stands in a file that anybody may have written.
                rival=Rival(other.uid[:128], other.created[:64]),
            )


def start_of(mine: Header, others: Sequence[Manifest], finished_by: str | None, whole: Whole, directory: str) -> Start:
    """Decide where to begin: answers to the same question go on, finished ones are never lost, and others give way.

    `finished_by` is the uid in the summary, empty for one that can't be read, None where there is none. Raises WorkerError
    OUTPUT_CONFLICT or INPUT_CHANGED.
    """
    authors = [other for other in others if other.header.uid == finished_by] if finished_by is not None else list(others)
    if not authors:
        if finished_by is not None:
            raise conflict(f"{directory!r} holds finished answers, of which no attempt there tells")
        return Start(mine)
    previous = max(authors, key=lambda other: (other.header.created, other.header.attempt)).header
    chunks = _longest([other for other in authors if other.header.uid == previous.uid and _is_same(other.header, previous)], whole)
    complete = bool(chunks) and chunks[-1].end == previous.total
    same = _is_same(mine, previous)
    if same and (previous.uid == mine.uid or complete):
        return Start(mine if previous.uid == mine.uid else previous, chunks)
    if complete or finished_by is not None:
        why = "but a chunk of them is missing or damaged" if same else "and this one has another input, model or options"
        raise conflict(f"{directory!r} holds the finished answers of job {previous.job} (uid {previous.uid}), {why}")
    if chunks and previous.uid == mine.uid and previous.asks_the_same(mine):
        raise _input_changed(directory, len(chunks))
    return Start(mine)


def conflict(what: str) -> WorkerError:
    """The fault of an output that is somebody else's."""
    return WorkerError(WorkerReason.OUTPUT_CONFLICT, f"{what}; choose another output, or empty it")


def _is_same(one: Header, other: Header) -> bool:
    return one.asks_the_same(other) and one.has_the_same_input(other)


def _longest(manifests: Iterable[Manifest], whole: Whole) -> tuple[Chunk, ...]:
    """The longest chain of chunks that are really there: one attempt may have died before it took over what another had."""
    best: tuple[Chunk, ...] = ()
    for manifest in sorted(manifests, key=lambda manifest: manifest.end, reverse=True):
        if best and manifest.end <= best[-1].end:
            break
        damaged = next((at for at, chunk in enumerate(manifest.chunks) if not whole(chunk)), len(manifest.chunks))
        found = manifest.chunks[:damaged]
        if found and (not best or found[-1].end > best[-1].end):
            best = found
    return best


def _input_changed(directory: str, chunks: int) -> WorkerError:
    return WorkerError(
        WorkerReason.INPUT_CHANGED,
        f"the input has changed since an earlier attempt committed {chunks} chunks in {directory!r}, which stay; restore the "
        "input, or set another output.uri; deleting the job and creating it anew answers the new input from its first item",
    )

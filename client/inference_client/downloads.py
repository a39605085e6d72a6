"""Fetch a batch's output to a folder of this machine, chunk by chunk, each checked by its digest; steps that both clients take.

What is there already and right is not fetched again, so whoever was interrupted asks once more. Names and lists come from a volume
or a bucket that others can write to: `output.py` refuses what no worker writes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inference_client import output, volume_pod
from inference_client.api import InferenceJob
from inference_client.bucket import bucket
from inference_client.calls import JOBS
from inference_client.errors import ClientError, JobFailedError, UnavailableError
from inference_client.folder import Folder, Sink
from inference_client.job_state import Goal, cause, failed, is_batch, reached
from inference_client.output import Listing
from inference_client.steps import AnySteps, Clock, read, worked
from inference_client.volume_pod import Bounded, Volume

INLINE = "output.jsonl"
"""Small answers, which the job's status holds, as a file."""
# Attempts' lists that are read of an output that isn't whole: the newest have come furthest.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a download has come: items whose answers are there, of all that there are to fetch; and bytes that came."""

    items: int
    total: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Download:
    """What is in the folder now. `whole`: the output is finished, and all of it is there; `kept` chunks were there before."""

    directory: Path
    files: tuple[Path, ...]
    items: int
    total: int
    whole: bool
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: `partial` also takes an output that isn't finished, `force` replaces another one in the folder."""

    directory: Path
    partial: bool = False
    force: bool = False
    image: str = volume_pod.DEFAULT_IMAGE
    timeout: float = 600.0
    on_progress: Callable[[Progress], None] = lambda _: None


class Source(Protocol):
    """Where an output is kept."""

    def read(self, name: str, sink: Sink) -> AnySteps[None]:
        """Give a file's bytes to `sink`."""

    def names(self, folder: str) -> AnySteps[tuple[str, ...]]:
        """The names in a folder of it."""


def download(namespace: str, name: str, wish: Wish, clock: Clock) -> AnySteps[Download]:
    """Fetch what a batch has answered. Raises ClientError, JobFailedError for one that has failed or has not come so far."""
    give_up = clock() + wish.timeout
    job = yield from read(JOBS, namespace, name, InferenceJob)
    if not is_batch(job):
        raise ClientError(f"inferencejob/{name} is a service: it has no output")
    whole = reached(job, Goal.SUCCEEDED)
    if not whole and not wish.partial:
        raise _not_whole(job)
    if job.status.output is not None and job.status.output.data is not None:
        return (yield from worked(lambda: _inline(job, wish)))
    told = job.status.output.uri if job.status.output is not None else None
    uri = told or (job.spec.output.uri if job.spec.output is not None else None)
    if uri is None:
        raise ClientError(f"inferencejob/{name} has no output yet")

    def fetched(source: Source) -> AnySteps[Download]:
        return _fetched(source, job, wish, whole=whole, over=lambda: clock() >= give_up)

    if not uri.startswith("pvc://"):
        source = yield from worked(lambda: bucket(uri))
        return (yield from fetched(source))
    claim, folder = volume_pod.place(uri)
    yield from volume_pod.claimed(namespace, claim)
    life = math.ceil(wish.timeout) + 60
    pod = volume_pod.manifest(
        volume_pod.new_name("download"), claim, wish.image, component="download", life_seconds=life, read_only=True
    )
    return (
        yield from volume_pod.with_pod(
            namespace, pod, give_up, clock, lambda made: fetched(Volume(namespace, made, folder, max(1.0, give_up - clock())))
        )
    )


def _not_whole(job: InferenceJob) -> ClientError:
    why = cause(job)
    how = f"{why.reason}: {why.message}" if why is not None else job.status.phase or "no status yet"
    text = f"inferencejob/{job.metadata.name} has not succeeded: {how}; what it has committed so far is a partial output"
    return ClientError(text) if failed(job) is None else JobFailedError(job, text)


def _fetched(source: Source, job: InferenceJob, wish: Wish, *, whole: bool, over: Callable[[], bool]) -> AnySteps[Download]:
    listing = yield from (_summary(source, job) if whole else _so_far(source, job))
    folder, kept, size = Folder(wish.directory), 0, 0
    yield from worked(lambda: folder.begin(listing, force=wish.force))
    for chunk in listing.chunks:
        if over():
            raise UnavailableError(
                f"{chunk.start} of {listing.end} items were fetched in {wish.timeout:g} s; the next try goes on there"
            )
        if (yield from worked(lambda: folder.has(chunk))):  # noqa: B023 -- called before the next turn
            kept += 1
        else:
            with folder.writing(chunk, output.CHUNK_BYTES) as sink:

                def counted(data: bytes) -> None:
                    nonlocal size
                    size += len(data)
                    sink(data)

                yield from source.read(chunk.file, counted)
        wish.on_progress(Progress(chunk.end, listing.end, size))
    yield from worked(lambda: folder.finish(listing))
    files = tuple(wish.directory / chunk.file for chunk in listing.chunks)
    return Download(wish.directory, files, listing.end, listing.total, listing.whole, kept)


def _summary(source: Source, job: InferenceJob) -> AnySteps[Listing]:
    raw = yield from _bounded(source, output.SUMMARY)
    return output.summary(raw, _full_name(job))


def _so_far(source: Source, job: InferenceJob) -> AnySteps[Listing]:
    names = output.attempt_names((yield from source.names(output.ATTEMPTS)), job.metadata.uid)
    found: list[Listing] = []
    for name in names[:_ATTEMPTS]:
        raw = yield from _bounded(source, f"{output.ATTEMPTS}/{name}")
        one = output.attempt(raw, _full_name(job), job.metadata.uid)
        found += [one] if one is not None else []
    listing = output.longest(found)
    if listing is None or not listing.chunks:
        raise ClientError(f"inferencejob/{job.metadata.name} has committed nothing yet")
    return listing


def _bounded(source: Source, name: str) -> AnySteps[bytes]:
    found = Bounded(output.MANIFEST_BYTES, name)
    yield from source.read(name, found)
    return found.bytes


def _full_name(job: InferenceJob) -> str:
    return f"{job.metadata.namespace}/{job.metadata.name}"


def _inline(job: InferenceJob, wish: Wish) -> Download:
    """Small answers as a file: they are JSON lines."""
    data = ((job.status.output.data if job.status.output else None) or "").encode()
    data += b"" if not data or data.endswith(b"\n") else b"\n"
    path = Folder(wish.directory).put(INLINE, data, force=wish.force)
    done = job.status.progress
    items = done.completed if done is not None else data.count(b"\n")
    return Download(wish.directory, (path,), items, done.total if done is not None and done.total else items, whole=True)

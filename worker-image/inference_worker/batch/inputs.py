"""What a task is run over: data of the order itself, a file on a volume, or a download; verified before it is read."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from inference_protocol.messages import BatchTask
from inference_protocol.reasons import WorkerReason
from inference_worker import fetch, volumes
from inference_worker.batch.formats.opening import open_items, open_text
from inference_worker.batch.items import Items, invalid
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError

_DOWNLOAD_LIMIT_BYTES = 1 << 30


@contextlib.contextmanager
def opened(
    task: BatchTask, specs: Sequence[TensorSpec], root: Path, stop: Callable[[], bool], hosts: Sequence[str]
) -> Iterator[Items]:
    """As open_input. What was fetched is removed at the end, however that comes."""
    with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as scratch:
        yield open_input(task, specs, root, Path(scratch), stop, hosts)


def open_input(
    task: BatchTask, specs: Sequence[TensorSpec], root: Path, scratch: Path, stop: Callable[[], bool], hosts: Sequence[str]
) -> Items:
    """The items of a task for a model with inputs `specs`. What is fetched for it, from `hosts`, lies in the directory `scratch`.

    Raises WorkerError, and StoppedError once `stop` says so.
    """
    if not specs:
        raise invalid("the model has no inputs, so there is nothing to run it over; serve it instead")
    form, missing = task.input_format, task.allow_non_finite
    if task.input_data is not None:
        return open_text(task.input_data, form, specs, missing=missing)
    uri = task.input_uri
    if uri is None:
        raise invalid("the task names no input")
    if uri.startswith("http"):
        return open_items(_download(uri, task, root, scratch, stop, hosts), form, specs, missing=missing)
    path = volumes.open_local(uri, root=root)
    if task.input_digest is not None:
        _verify(path, task.input_digest)
    return open_items(path, form, specs, missing=missing)


def _written_path(task: BatchTask) -> Path:
    """The input's path as it is written, without what a URL may have behind it."""
    return Path(urlsplit(task.input_uri or "").path)


def _download(uri: str, task: BatchTask, root: Path, scratch: Path, stop: Callable[[], bool], hosts: Sequence[str]) -> Path:
    try:
        data, _ = fetch.read_verified(
            uri,
            digest=task.input_digest,
            limit=_DOWNLOAD_LIMIT_BYTES,
            missing=WorkerReason.INPUT_NOT_FOUND,
            hosts=hosts,
            mismatch=WorkerReason.INPUT_INVALID,
            root=root,
            stop=stop,
        )
    except WorkerError as error:
        if error.reason in (WorkerReason.MODEL_UNREACHABLE, WorkerReason.MODEL_CHANGED):
            raise WorkerError(WorkerReason.INPUT_UNREACHABLE, error.message) from error
        raise
    path = scratch / (_written_path(task).name or "input")
    path.write_bytes(data)
    return path


def _verify(path: Path, digest: str) -> None:
    if not path.is_file():
        raise invalid(f"{path.name!r} is no single file, so it has no digest; leave input.digest out")
    with path.open("rb") as file:
        actual = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if actual != digest:
        raise invalid(f"{path.name!r} has {actual}, but {digest} was asked for; restore the file, or update input.digest")

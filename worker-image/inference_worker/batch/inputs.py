"""What a task is run over: data of the order itself, a file on a volume, or what is fetched first; verified before it is read."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from inference_protocol.messages import BatchTask
from inference_protocol.uris import FileUri, PvcUri
from inference_worker import volumes
from inference_worker.batch.formats.opening import open_items, open_text
from inference_worker.batch.items import Items, invalid
from inference_worker.engines.engine import TensorSpec


@contextlib.contextmanager
def opened(
    task: BatchTask, specs: Sequence[TensorSpec], root: Path, stop: Callable[[], bool], hosts: Sequence[str]
) -> Iterator[tuple[Items, Path | None]]:
    """As open_input. What was fetched is removed at the end, however that comes."""
    with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as scratch:
        yield open_input(task, specs, root, Path(scratch), stop, hosts)


def open_input(
    task: BatchTask, specs: Sequence[TensorSpec], root: Path, scratch: Path, stop: Callable[[], bool], hosts: Sequence[str]
) -> tuple[Items, Path | None]:
    """The items of a task for a model with inputs `specs`, and where their bytes lie; None where the order holds them.

    What is fetched, from `hosts`, lies in the directory `scratch`. Raises WorkerError, and StoppedError once `stop` says so.
    """
    if not specs:
        raise invalid("the model has no inputs, so there is nothing to run it over; serve it instead")
    form, missing = task.input_format, task.allow_non_finite
    if task.input_data is not None:
        return open_text(task.input_data, form, specs, missing=missing), None
    if task.input_uri is None:
        raise invalid("the task names no input")
    uri = volumes.parse(task.input_uri)
    if isinstance(uri, PvcUri | FileUri):
        path = volumes.local_path(uri, root=root)
        if task.input_digest is not None:
            _verify(path, task.input_digest)
    else:
        # Only who has an input elsewhere pays for the import.
        from inference_worker.batch.fetching import fetched

        path = fetched(uri, task, scratch, stop, hosts)
    return open_items(path, form, specs, missing=missing), path


def _verify(path: Path, digest: str) -> None:
    if not path.is_file():
        raise invalid(f"{path.name!r} is no single file, so it has no digest; leave input.digest out")
    with path.open("rb") as file:
        actual = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if actual != digest:
        raise invalid(f"{path.name!r} has {actual}, but {digest} was asked for; restore the file, or update input.digest")

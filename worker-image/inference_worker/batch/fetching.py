"""Inputs that are elsewhere: fetched onto the worker's own disk, so that one version is read from the first item to the last."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from inference_protocol.messages import BatchTask, Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import BucketUri, GsUri, HubUri, OciUri, RemoteUri, S3Uri
from inference_worker import fetch
from inference_worker.batch.formats.opening import WRITTEN_BY_ANOTHER
from inference_worker.batch.items import invalid
from inference_worker.batch.manifest import ATTEMPTS
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds
from inference_worker.stores.bucket import Bucket
from inference_worker.stores.calls import Found

# Of the 2 GiB that a worker has in /tmp.
_LIMIT_BYTES = 3 << 29
_AT_ONCE = 8
_LONGEST_NAME_BYTES = 255
_REASONS = {
    WorkerReason.MODEL_UNREACHABLE: WorkerReason.INPUT_UNREACHABLE,
    WorkerReason.MODEL_TOO_LARGE: WorkerReason.INPUT_NOT_FOUND,
    WorkerReason.MODEL_CHANGED: WorkerReason.INPUT_UNREACHABLE,
    WorkerReason.MODEL_ACCESS_DENIED: WorkerReason.INPUT_ACCESS_DENIED,
}


def fetched(uri: RemoteUri, task: BatchTask, scratch: Path, stop: Callable[[], bool], hosts: Sequence[str]) -> Path:
    """Where the input of a task lies once it is fetched: a file, or a directory for a folder in a bucket.

    Raises StoppedError, and WorkerError INPUT_NOT_FOUND, INPUT_UNREACHABLE, INPUT_ACCESS_DENIED, INPUT_INVALID or URI_FORBIDDEN.
    """
    bounds = Bounds(hosts, _LIMIT_BYTES, WorkerReason.INPUT_NOT_FOUND, WorkerReason.MODEL_TOO_LARGE, stop)
    storage = task.input_storage or Storage()
    try:
        match uri:
            case S3Uri() | GsUri():
                return _Objects(uri, storage, bounds, task).fetched(scratch)
            case OciUri():
                words = f"inputs aren't read from {task.input_uri!r}; use pvc://, s3://, gs://, hf:// or https://"
                raise WorkerError(WorkerReason.URI_FORBIDDEN, words)  # noqa: TRY301 -- as the others, it passes the table below
            case _:
                return _file(uri, task, scratch, bounds, storage)
    except WorkerError as error:
        raise WorkerError(_REASONS.get(error.reason, error.reason), error.message) from error
    except OSError as error:
        raise invalid(f"{task.input_uri} can't be kept on the worker's disk: {error.strerror}; split the input") from error


def _file(uri: RemoteUri, task: BatchTask, scratch: Path, bounds: Bounds, storage: Storage) -> Path:
    text = task.input_uri or ""
    name = uri.path if isinstance(uri, HubUri) else urlsplit(text).path
    path = scratch / (PurePosixPath(name).name or "input")
    with path.open("wb") as file:
        digest = fetch.fetch_into(file, text, bounds, storage)
    _require(text, digest, task.input_digest)
    return path


def _require(text: str, digest: str, wanted: str | None) -> None:
    if wanted is not None and digest != wanted:
        raise invalid(f"{text} has another digest, but {wanted} was asked for; restore the file, or update input.digest")


class _Objects:
    """An object in a bucket, or all of a folder."""

    def __init__(self, uri: BucketUri, storage: Storage, bounds: Bounds, task: BatchTask) -> None:
        self._bucket = Bucket(uri, storage, bounds)
        self._key = uri.key
        self._text = task.input_uri or ""
        self._digest = task.input_digest
        self._files = task.input_format == "files"

    def fetched(self, scratch: Path) -> Path:
        path = scratch / PurePosixPath(self._key).name
        if not self._files:
            try:
                digest = self._bucket.save(self._key, path)
            except WorkerError as error:
                if error.reason is not WorkerReason.INPUT_NOT_FOUND:
                    raise
                path.unlink(missing_ok=True)
            else:
                _require(self._text, digest, self._digest)
                return path
        if self._digest is not None:
            raise invalid(f"{self._text} is no single object, so it has no digest; leave input.digest out")
        self._save_all(path)
        return path

    def _listed(self, folder: str = "") -> list[Found]:
        return self._bucket.names(f"{self._key}/{folder}")

    def _save_all(self, path: Path) -> None:
        # Those of the attempts tell whose answers these are, and that they aren't finished.
        found = self._listed()
        attempts = [] if self._files else self._listed(f"{ATTEMPTS}/")
        if not found and not attempts:
            words = f"{self._text}: there is neither an object nor a folder of this name. {WRITTEN_BY_ANOTHER}"
            raise WorkerError(WorkerReason.INPUT_NOT_FOUND, words)
        found += [entry._replace(key=f"{ATTEMPTS}/{entry.key}") for entry in attempts]
        if (size := sum(entry.size for entry in found)) > _LIMIT_BYTES:
            raise WorkerError(
                WorkerReason.INPUT_NOT_FOUND,
                f"{self._text} has {size} bytes, more than the limit of {_LIMIT_BYTES}; split the input",
            )
        (path / ATTEMPTS if attempts else path).mkdir(parents=True)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetching") as pool:
            # Each as it was listed: a folder that is written to meanwhile is no input.
            for _ in pool.map(lambda entry: self._saved(path, entry), found):
                pass

    def _place(self, path: Path, entry: Found) -> Path:
        name = PurePosixPath(entry.key).name
        if name in ("", ".", "..") or len(name.encode()) > _LONGEST_NAME_BYTES:
            raise invalid(f"{self._text} holds {entry.key!r}, which no file can be called; rename the object")
        return path / entry.key

    def _saved(self, path: Path, entry: Found) -> None:
        self._bucket.save(f"{self._key}/{entry.key}", self._place(path, entry), mark=entry.mark)

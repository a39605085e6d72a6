"""Where a task keeps its answers, and whether it may."""

from pathlib import Path, PurePosixPath

from inference_protocol.messages import BatchTask, Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import BucketUri, GsUri, PvcUri, S3Uri
from inference_worker import volumes
from inference_worker.batch.directory import Directory
from inference_worker.batch.manifest import CHUNK_NAME
from inference_worker.batch.storage import OutputStorage
from inference_worker.errors import WorkerError


def storage_of(task: BatchTask, root: Path, hosts: tuple[str, ...]) -> OutputStorage:
    """What the answers of a task with an output are kept in. Raises WorkerError URI_FORBIDDEN or OUTPUT_CONFLICT."""
    text = task.output_uri
    assert text is not None
    uri, given = volumes.parse(text), volumes.parse(task.input_uri) if task.input_uri is not None else None
    match uri:
        case PvcUri():
            path = volumes.local_path(uri, root=root)
            if isinstance(given, PvcUri):
                _require_apart(PurePosixPath(volumes.local_path(given, root=root)), PurePosixPath(path))
            return Directory(path)
        case S3Uri() | GsUri():
            # Only who writes to a store pays for the import.
            from inference_worker.batch.bucket import BucketFolder

            if type(given) is type(uri):
                _require_apart(_as_path(given), _as_path(uri))
            return BucketFolder(uri, task.output_storage or Storage(), hosts)
        case _:
            words = f"answers can't be kept at {text!r}; use pvc://CLAIM/PATH, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
            raise WorkerError(WorkerReason.URI_FORBIDDEN, words)


def _require_apart(source: PurePosixPath, output: PurePosixPath) -> None:
    """A job that starts anew removes the chunks in its output, and with them an input that is one of them."""
    if source == output or (source.parent == output and CHUNK_NAME.fullmatch(source.name)):
        raise WorkerError(WorkerReason.OUTPUT_CONFLICT, "the input lies in the output's directory; choose another output")


def _as_path(uri: BucketUri) -> PurePosixPath:
    return PurePosixPath("/", uri.bucket, uri.key)

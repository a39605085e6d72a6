"""Read a file from wherever its location points, whole and verified, or say why not.

The bytes that were hashed are the bytes that are used: nothing can be swapped in between.
"""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from inference_protocol.messages import VOLUME_ROOT, Storage
from inference_protocol.node_cache import model_digest
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import FileUri, HttpUri, PvcUri, Uri
from inference_worker import volumes
from inference_worker.download import Place, Sink, download_into
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds, never


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's own file, those beside it by name, and one digest over them all."""

    data: bytes
    beside: Mapping[str, bytes]
    digest: str


def file_name(text: str) -> str:
    """The last part of a location's path, as a file is called."""
    path = urlsplit(text).path if text.startswith(("http://", "https://")) else text.rpartition("#")[2]
    return unquote(path.rpartition("/")[2])


def read_model(
    text: str,
    *,
    digest: str | None,
    limit: int,
    hosts: Sequence[str],
    root: Path = Path(VOLUME_ROOT),
    storage: Storage | None = None,
    vouch: Callable[[str, str], None] | None = None,
) -> ModelFiles:
    """A model with the files that its weights are in, `limit` bytes at most in all; raises WorkerError as read_verified does.

    The digest of one file is its own. That of several is the digest of what `sha256sum` prints for them, ordered by name. `vouch`
    raises WorkerError for a file whose digest nobody vouches for under its name; it is asked before anything looks into the bytes.
    """

    def read(place: str, left: int, missing: WorkerReason) -> tuple[bytes, str]:
        return _read_any(place, Bounds(hosts, left, missing, WorkerReason.MODEL_TOO_LARGE), root, storage)

    data, own = read(text, limit, WorkerReason.MODEL_NOT_FOUND)
    if vouch is not None:
        vouch(file_name(text), own)
    # Who only hands bytes on, as a node's cache does, pays for no import of numbers.
    from inference_worker.engines import external_data

    names = external_data.files_of(data)
    if not names:
        _require(text, own, digest, WorkerReason.MODEL_DIGEST_MISMATCH)
        return ModelFiles(data, {}, own)
    beside: dict[str, bytes] = {}
    digests = {file_name(text): own}
    left = limit - len(data)
    for each in names:
        beside[each], digests[each] = read(volumes.beside(text, each), left, WorkerReason.MODEL_DATA_MISSING)
        if vouch is not None:
            vouch(each, digests[each])
        left -= len(beside[each])
    whole = model_digest(digests)
    hint = f" (over {', '.join(sorted(digests))}: sha256sum {' '.join(sorted(digests))} | sha256sum)"
    _require(text, whole, digest, WorkerReason.MODEL_DIGEST_MISMATCH, hint)
    return ModelFiles(data, beside, whole)


def read_verified(
    text: str,
    *,
    digest: str | None,
    limit: int,
    missing: WorkerReason,
    hosts: Sequence[str],
    large: WorkerReason | None = None,
    mismatch: WorkerReason = WorkerReason.MODEL_DIGEST_MISMATCH,
    root: Path = Path(VOLUME_ROOT),
    stop: Callable[[], bool] | None = None,
    storage: Storage | None = None,
) -> tuple[bytes, str]:
    """The file's bytes and its `sha256:HEX`, from `hosts` where it is remote. Raises StoppedError once `stop` says so.

    Raises WorkerError: `missing` when there is nothing, `large` (or else `missing`) when there is too much, URI_FORBIDDEN,
    MODEL_UNREACHABLE when the network fails, MODEL_ACCESS_DENIED, MODEL_CHANGED, and `mismatch` when the digest is another.
    """
    data, actual = _read_any(text, Bounds(hosts, limit, missing, large or missing, stop or never), root, storage)
    _require(text, actual, digest, mismatch)
    return data, actual


def fetch_into(file: Sink, text: str, bounds: Bounds, storage: Storage) -> str:
    """Write what is at a remote location into a file, and return its `sha256:HEX`. Raises as read_verified does, and OSError."""
    uri = volumes.parse(text)
    if isinstance(uri, HttpUri):
        return download_into(file, Place(uri.url, text), bounds)
    if isinstance(uri, PvcUri | FileUri):
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{text!r} is no location that is fetched")
    # Only who has a model in a store pays for the import.
    from inference_worker import stores

    return stores.fetch_into(file, uri, text, storage, bounds)


def _read_any(text: str, bounds: Bounds, root: Path, storage: Storage | None) -> tuple[bytes, str]:
    uri = volumes.parse(text)
    if isinstance(uri, PvcUri | FileUri):
        data = _read(volumes.local_path(uri, root=root), text, limit=bounds.limit, missing=bounds.missing, large=bounds.large)
        return data, f"sha256:{hashlib.sha256(data).hexdigest()}"
    buffer = io.BytesIO()
    digest = fetch_into(buffer, text, bounds, storage or Storage())
    # The buffer is given away, not copied.
    return buffer.getvalue(), digest


def _is_local(uri: Uri) -> bool:
    return isinstance(uri, PvcUri | FileUri)


def _require(text: str, actual: str, digest: str | None, mismatch: WorkerReason, hint: str = "") -> None:
    if digest is None or actual == digest:
        return
    # What a server gave may be none of the author's business: its digest would tell whether it is a file that they have elsewhere.
    has = f"has {actual}{hint}" if _is_local(volumes.parse(text)) else "has another digest"
    cure = "restore the file, or update the digest if the change is meant"
    raise WorkerError(mismatch, f"{text} {has}, but {digest} was asked for; {cure}")


def _read(path: Path, text: str, *, limit: int, missing: WorkerReason, large: WorkerReason) -> bytes:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise WorkerError(missing, f"{text} is no regular file")
        if size > limit:
            raise WorkerError(large, f"{text} has {size} bytes, more than the limit of {limit}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise WorkerError(missing, f"{text} does not exist; check the claim and the path in it") from error
    except OSError as error:
        raise WorkerError(missing, f"{text} can't be read: {error.strerror}; the worker runs as a non-root user") from error

"""Writes files to a bucket by fsspec, and replaces nothing that nobody has asked to replace.

`exists` of fsspec takes whatever goes wrong for "not there": a store that refuses to tell would have its object replaced. So the
object itself is asked for, and a refusal is told. In between somebody else may write the name: stores that know conditions decide.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from inference_client.bucket import package
from inference_client.errors import ClientError, ForbiddenError, InvalidError

_CHUNK = 1 << 20
Sent = Callable[[int], None]


def push(sources: list[Path], target: str, *, force: bool, sent: Sent) -> list[str]:
    """Write files to a folder, or one to an object; returns their URIs. Raises ClientError."""
    fsspec = package()
    folder = target.endswith("/") or len(sources) > 1
    uris = [f"{target.rstrip('/')}/{one.name}" if folder else target for one in sources]
    for source, uri in zip(sources, uris, strict=True):
        try:
            store, path = fsspec.core.url_to_fs(uri)
            if not force:
                _require_free(store, path, uri)
            with source.open("rb") as file:
                _write(store, path, uri, file, force=force, sent=sent)
        except ClientError:
            raise
        except PermissionError as error:
            raise ForbiddenError(f"the store refuses to write {uri}: {error}") from error
        # Each store has errors of its own beside these, for example of a region, a bucket or credentials that can't be had.
        except Exception as error:
            raise ClientError(f"{uri}: {type(error).__name__}: {error}") from error
    return uris


def _require_free(store: Any, path: str, uri: str) -> None:
    """Raise InvalidError for a name that is taken, ForbiddenError where the store doesn't tell."""
    try:
        # What another listing remembers of the bucket may be old.
        store.invalidate_cache()
        store.info(path)
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise ForbiddenError(
            f"the store doesn't tell whether {uri} is there: {error}. Let whoever asks read the object and list the bucket (of S3: "
            "s3:GetObject and s3:ListBucket), or replace what may be there by --force"
        ) from error
    raise _taken(uri)


def _taken(uri: str) -> InvalidError:
    return InvalidError(f"{uri} is there already: give a new version a name of its own, or replace it by --force")


def _write(store: Any, path: str, uri: str, file: BinaryIO, *, force: bool, sent: Sent) -> None:
    out = _opened(store, path, uri, force=force)
    try:
        while data := file.read(_CHUNK):
            out.write(data)
            sent(len(data))
    except BaseException:
        _abandon(out)
        raise
    try:
        # Here the store gives the object its name, or refuses to.
        out.close()
    except FileExistsError as error:
        _abandon(out)
        raise _taken(uri) from error
    except BaseException:
        _abandon(out)
        raise


def _opened(store: Any, path: str, uri: str, *, force: bool) -> Any:
    """An object to write; unless another is to be replaced, one whose name must be free at its end, where the store knows that."""
    if not force:
        try:
            return store.open(path, "xb")
        except FileExistsError as error:
            raise _taken(uri) from error
        # A store that knows no such mode.
        except (NotImplementedError, ValueError):
            pass
    return store.open(path, "wb")


def _abandon(out: Any) -> None:
    """Have no object of what was not written whole: `close` would give it the name, also when the object is collected."""
    with suppress(Exception):
        out.discard()
    with suppress(Exception):
        out.closed = True

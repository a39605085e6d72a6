"""A folder in a bucket, read by fsspec with the credentials of whoever asks: the store's own package has its settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inference_client.calls import Raw, Work
from inference_client.errors import ClientError, ForbiddenError, NotFoundError, UnavailableError
from inference_client.steps import AnySteps, T, worked

_READ_BYTES = 1 << 20
_SCHEMES = ("s3://", "gs://")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A folder by its URI. Each read is a step of its own, so that an event loop can have it done elsewhere."""

    uri: str
    store: Any
    path: str

    def read(self, name: str, sink: Callable[[bytes], None]) -> AnySteps[None]:
        """Give an object's bytes to `sink`. Raises NotFoundError, ForbiddenError, UnavailableError."""

        def copy() -> None:
            with self.store.open(f"{self.path}/{name}", "rb") as file:
                while data := file.read(_READ_BYTES):
                    sink(data)

        yield Work(lambda: _told(f"{self.uri}/{name}", copy))

    def names(self, folder: str) -> AnySteps[tuple[str, ...]]:
        """The names of a folder's objects."""

        def list_() -> tuple[str, ...]:
            found: list[Raw | str] = self.store.ls(f"{self.path}/{folder}", detail=False)
            return tuple(str(one).rpartition("/")[2] for one in found)

        return (yield from worked(lambda: _told(f"{self.uri}/{folder}", list_)))


def bucket(uri: str) -> Bucket:
    """The folder at a URI. Raises ClientError for one of a store that jobs don't write to, or without its package."""
    # fsspec reads `A::B` as one store within another, also on this machine.
    if not uri.startswith(_SCHEMES) or "::" in uri:
        raise ClientError(f"{uri!r} is no output that can be fetched: jobs write to pvc://, s3:// and gs://")
    fsspec, whole = package(), uri.rstrip("/")
    store, path = _told(whole, lambda: fsspec.core.url_to_fs(whole))
    return Bucket(whole, store, path)


def package() -> Any:
    """The package by which buckets are read and written. Raises ClientError where it isn't installed."""
    try:
        import fsspec
    except ImportError as error:
        raise ClientError(
            "a bucket needs fsspec: pip install 'inference-client[bucket]', and beside it for s3:// s3fs, for gs:// gcsfs"
        ) from error
    return fsspec


def _told(where: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except ClientError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(f"{where} is not there: {error}") from error
    except PermissionError as error:
        raise ForbiddenError(f"the store refuses {where} to whoever asks: {error}") from error
    except ImportError as error:
        raise ClientError(f"{where}: {error}") from error
    # Each store has errors of its own beside these.
    except Exception as error:
        raise UnavailableError(f"{where} can't be read: {type(error).__name__}: {error}") from error

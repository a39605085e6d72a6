"""A bucket that is read, listed and written to. A write never replaces what it doesn't know: each has a condition.

Requests are signed anew each time. A store that is busy, or away, is asked again for a while. A write whose answer was lost is
known by its bytes.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, TypeVar

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import BucketUri, GsUri
from inference_worker.download import download_into
from inference_worker.errors import StoppedError, WorkerError
from inference_worker.exchange import Bounds, answered, small_body, status_words
from inference_worker.stores import gcs, s3
from inference_worker.stores.calls import Dialect, Found, Request
from inference_worker.stores.keys import Keys

T = TypeVar("T")

# Long enough for a store that asks to slow down, and for one that is restarted.
_PATIENCE_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_LOOK_SECONDS = 0.1
# 409 is S3's answer to two conditional writes at the same moment.
_BUSY = frozenset({408, 409, 429, 500, 502, 503, 504})
# S3 answers 400 to a token that has expired.
_CREDENTIALS_MAY_BE_OLD = frozenset({400, 401, 403})
# A role's credentials last an hour, and a Secret may be renewed.
_ACCESS_SECONDS = 600.0
_FRESH_SECONDS = 10.0
_LISTED_AT_MOST = 100_000
# S3 has a thousand objects on a page, and may have fewer.
_PAGES_AT_MOST = 1_000


class _Answer(NamedTuple):
    status: int
    mark: str
    data: bytes


class Bucket:
    """A bucket as one job may use it.

    Raises WorkerError: MODEL_UNREACHABLE once patience has ended, MODEL_ACCESS_DENIED, URI_FORBIDDEN, what `bounds` calls a bucket
    that is not there and what is too large; and StoppedError.
    """

    def __init__(self, uri: BucketUri, storage: Storage, bounds: Bounds) -> None:
        self._uri = uri
        self._storage = storage
        self._bounds = bounds
        self._access: tuple[float, Dialect] | None = None
        self._scheme = "gs" if isinstance(uri, GsUri) else "s3"

    def told(self, key: str) -> str:
        """What messages call an object."""
        return f"{self._scheme}://{self._uri.bucket}/{key}"

    @property
    def strange_mark(self) -> str:
        """A mark that no object has."""
        return self._now().strange_mark

    def read(self, key: str, limit: int) -> bytes | None:
        """The first `limit` bytes of an object; None where there is none."""
        answer = self._asked(lambda store: store.read(key, self.told(key), limit))
        # Where an object is empty, there is no first byte.
        empty = answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        return None if answer.status == HTTPStatus.NOT_FOUND else b"" if empty else answer.data

    def save(self, key: str, path: Path, *, mark: str = "") -> str:
        """Write an object into a file, and return its `sha256:HEX`. With a `mark`, MODEL_CHANGED where it has another by now."""

        def once() -> str:
            with path.open("wb") as file:
                return download_into(file, self._now().place(key, self.told(key), mark), self._bounds)

        return self._patiently(once)

    def digest(self, key: str) -> str:
        """The `sha256:HEX` of an object."""
        return self._patiently(lambda: download_into(_Nowhere(), self._now().place(key, self.told(key)), self._bounds))

    def write(self, key: str, data: bytes, *, mark: str = "") -> str | None:
        """Write an object that has this mark, or that isn't there where `mark` is empty.

        Returns its new mark; None where another has been quicker.
        """
        answer = self._asked(lambda store: store.write(key, self.told(key), data, mark))
        if answer.status == HTTPStatus.OK:
            return answer.mark
        # The answer to a write that was carried out may have been lost, and the write repeated.
        there = self._asked(lambda store: store.read(key, self.told(key), len(data) + 1))
        return there.mark if there.status != HTTPStatus.NOT_FOUND and there.data == data else None

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        self._asked(lambda store: store.removal(key, self.told(key)))

    def names(self, prefix: str) -> list[Found]:
        """What a folder holds, without what is in folders below it. `prefix` ends with a slash."""
        found: list[Found] = []
        token = ""
        for _ in range(_PAGES_AT_MOST):
            answer = self._asked(partial(_listing, prefix=prefix, told=self.told(""), token=token))
            if answer.status == HTTPStatus.NOT_FOUND:
                raise self._no_bucket()
            page = self._now().page(answer.data)
            found.extend(self._within(prefix, entry) for entry in page.found)
            if len(found) > _LISTED_AT_MOST:
                break
            token = page.token
            if not token:
                return [entry for entry in found if entry.key]
        raise WorkerError(self._bounds.large, f"{self.told(prefix)} has more than {_LISTED_AT_MOST} objects; split it")

    def _within(self, prefix: str, entry: Found) -> Found:
        """An object by its name in a folder. Raises WorkerError for one elsewhere: a file is called as it is."""
        name = entry.key.removeprefix(prefix)
        if not entry.key.startswith(prefix) or "/" in name or "\0" in name:
            words = f"{self.told(prefix)} lists {entry.key!r}, which is not in it; the store doesn't list what it was asked for"
            raise WorkerError(WorkerReason.MODEL_UNREACHABLE, words)
        return Found(name, entry.mark, entry.size)

    def _asked(self, write: Callable[[Dialect], Request]) -> _Answer:
        """The answer to a request, whose status is one of those that its caller knows."""
        answer = self._patiently(lambda: self._ask(write(self._now())))
        if answer.status in _CREDENTIALS_MAY_BE_OLD and self._forget_old_credentials():
            answer = self._patiently(lambda: self._ask(write(self._now())))
        store = self._now()
        request = write(store)
        if answer.status in request.expected:
            return answer
        if answer.status == HTTPStatus.NOT_FOUND:
            raise self._no_bucket()
        denied = answer.status in (401, 403)
        reason = WorkerReason.MODEL_ACCESS_DENIED if denied else WorkerReason.MODEL_UNREACHABLE
        raise WorkerError(reason, f"{request.told} answered HTTP {status_words(answer.status)} to {request.method}; {store.cure}")

    def _ask(self, request: Request) -> _Answer:
        store, told = self._now(), request.told
        asked = answered(
            request.url,
            {**request.headers, **store.proof(request)},
            told=told,
            authorities=store.authorities,
            bounds=self._bounds,
            method=request.method,
            sent=request.body,
        )
        with asked as (response, pace):
            if response.status in _BUSY:
                raise WorkerError(
                    WorkerReason.MODEL_UNREACHABLE, f"{told} answered HTTP {status_words(response.status)} to {request.method}"
                )
            limit = request.limit if response.status in (200, 206) else request.limit_of_errors
            data = small_body(response, pace, told, limit=limit)
            return _Answer(response.status, store.mark(response.headers, data), data)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Ask again while the store is busy or away, with pauses that grow and differ between workers."""
        until = time.monotonic() + _PATIENCE_SECONDS
        for pause in _pauses():
            try:
                return work()
            except WorkerError as error:
                if error.reason is not WorkerReason.MODEL_UNREACHABLE or time.monotonic() + pause > until:
                    raise
            self._wait(pause)
        raise AssertionError("the pauses don't end")

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._bounds.stop():
                raise StoppedError(self.told(self._uri.key))
            time.sleep(min(left, _LOOK_SECONDS))

    def _now(self) -> Dialect:
        if self._access is None or time.monotonic() - self._access[0] > _ACCESS_SECONDS:
            keys = Keys.of(self._uri, self._storage)
            self._access = time.monotonic(), _access(self._uri, self._storage, keys, self._bounds)
        return self._access[1]

    def _forget_old_credentials(self) -> bool:
        """Whether those that were used may be worth less than what the Secret, or the token service, has by now."""
        if self._access is None or time.monotonic() - self._access[0] < _FRESH_SECONDS:
            return False
        self._access = None
        return True

    def _no_bucket(self) -> WorkerError:
        text = f"there is no bucket {self._uri.bucket!r}; create it, or correct the URI and {self._now().endpoint_key}"
        return WorkerError(self._bounds.missing, text)


class _Nowhere:
    """Takes what is only to be hashed."""

    def write(self, block: bytes, /) -> int:
        """See download.Sink."""
        return len(block)


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 -- so that workers don't come back together
        pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)


def _access(uri: BucketUri, storage: Storage, keys: Keys, bounds: Bounds) -> Dialect:
    return gcs.access(uri, keys) if isinstance(uri, GsUri) else s3.access(uri.bucket, storage, keys, bounds)


def _listing(store: Dialect, *, prefix: str, told: str, token: str) -> Request:
    return store.listing(prefix, told, token)

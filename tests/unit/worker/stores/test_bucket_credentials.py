"""Credentials that have become old while a bucket was used are read anew, once for each request that is refused."""

from types import SimpleNamespace

import pytest

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import S3Uri
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds
from inference_worker.stores import bucket
from inference_worker.stores.calls import Request


class Clock:
    """An hour is a word."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(bucket, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 1), (20.0, 2)])
def test_who_is_refused_asks_again_with_credentials_that_are_newer(
    monkeypatch: pytest.MonkeyPatch, status: int, seconds: float, asked: int
) -> None:
    clock, seen = Clock(monkeypatch), list[object]()
    store = bucket.Bucket(
        S3Uri("models", "in"), Storage(), Bounds((), 1 << 20, WorkerReason.INPUT_NOT_FOUND, WorkerReason.INPUT_INVALID)
    )
    store.strange_mark  # noqa: B018 -- it reads the credentials
    clock.now += seconds

    def ask(self: bucket.Bucket, request: Request) -> object:
        del request
        seen.append(self._now())
        return SimpleNamespace(status=status if len(seen) < 3 else 200)

    monkeypatch.setattr(bucket.Bucket, "_ask", ask)
    with pytest.raises(WorkerError) as caught:
        store.read("in", 1)

    assert len(seen) == asked and len(set(map(id, seen))) == asked
    denied = caught.value.reason is WorkerReason.MODEL_ACCESS_DENIED
    assert denied is (status != 400) and f"HTTP {status}" in caught.value.message

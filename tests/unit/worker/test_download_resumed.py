"""Downloads that break off: what is missing is asked for, of the same file, of whoever may be asked."""

from __future__ import annotations

import hashlib

import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker import download, fetch
from inference_worker.errors import StoppedError, WorkerError
from tests.unit.worker.conftest import answering, saying

BODY = bytes(range(256)) * 40
DIGEST = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
SIZE, HALF = len(BODY), len(BODY) // 2
BROKEN = saying(f'HTTP/1.1 200 OK\nETag: "a"\nContent-Length: {SIZE}', BODY[:HALF])

pytestmark = pytest.mark.usefixtures("loopback_allowed", "no_pauses")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSES", (0.0, 0.0))


def rest(etag: str = '"a"', begin: int = HALF, end: int = SIZE - 1, total: int = SIZE, body: bytes = BODY[HALF:]) -> str:
    return f"HTTP/1.1 206 Partial\nETag: {etag}\nContent-Range: bytes {begin}-{end}/{total}\nContent-Length: {len(body)}"


def fetched(port: int, stop: object = None) -> bytes:
    url = f"http://files.test:{port}/m.onnx"
    missing = WorkerReason.MODEL_NOT_FOUND
    return fetch.read_verified(url, digest=DIGEST, limit=1 << 20, missing=missing, hosts=(), stop=stop)[0]  # type: ignore[arg-type]


def test_the_rest_is_asked_for_by_its_range_and_its_mark() -> None:
    with answering(BROKEN, saying(rest(), BODY[HALF:])) as (port, seen):
        assert fetched(port) == BODY

    assert f"Range: bytes={HALF}-\r\n".encode() in seen[1] and b'If-Match: "a"\r\n' in seen[1]
    assert b"Range" not in seen[0] and b"If-Match" not in seen[0]


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        ("HTTP/1.1 412 Changed\nContent-Length: 0", WorkerReason.MODEL_CHANGED),
        ("HTTP/1.1 416 Shorter\nContent-Length: 0", WorkerReason.MODEL_CHANGED),
        (rest(etag='"b"'), WorkerReason.MODEL_CHANGED),
        (rest(total=SIZE + 1), WorkerReason.MODEL_CHANGED),
        (rest(begin=0), WorkerReason.MODEL_UNREACHABLE),
        (rest(end=SIZE - 2), WorkerReason.MODEL_UNREACHABLE),
        (f'HTTP/1.1 200 OK\nETag: "a"\nContent-Length: {SIZE}', WorkerReason.MODEL_UNREACHABLE),
        ("HTTP/1.1 404 Gone\nContent-Length: 0", WorkerReason.MODEL_NOT_FOUND),
    ],
)
def test_another_file_or_another_range_is_never_joined_to_the_beginning(again: str, reason: WorkerReason) -> None:
    """Two halves of two files can each be whole answers; a version without a digest would have run them."""
    with answering(BROKEN, saying(again, BODY[HALF:]), saying(rest(), BODY[HALF:])) as (port, seen):
        with pytest.raises(WorkerError) as caught:
            fetched(port)
        assert caught.value.reason is reason, caught.value.message
        # Nobody is asked a third time for what can't be had.
        assert len(seen) == 2


@pytest.mark.parametrize("etag", ["", 'ETag: W/"a"\n'])
def test_without_a_strong_mark_nothing_is_resumed(etag: str) -> None:
    with answering(saying(f"HTTP/1.1 200 OK\n{etag}Content-Length: {SIZE}", BODY[:HALF]), BROKEN) as (port, seen):
        with pytest.raises(WorkerError) as caught:
            fetched(port)
        assert caught.value.reason is WorkerReason.MODEL_UNREACHABLE and len(seen) == 1


def test_a_line_that_breaks_each_time_is_given_up() -> None:
    with answering(BROKEN, *[saying(rest(), b"")] * 9) as (port, seen):
        with pytest.raises(WorkerError) as caught:
            fetched(port)
        assert caught.value.reason is WorkerReason.MODEL_UNREACHABLE and len(seen) == 3


def test_a_mark_is_told_to_nobody_but_the_server_that_gave_it() -> None:
    with answering(BROKEN, saying(rest(), BODY[HALF:])) as (there, behind):
        moved = saying(f"HTTP/1.1 302 Found\nLocation: http://files.test:{there}/x\nContent-Length: 0")
        with answering(moved, moved) as (port, first):
            assert fetched(port) == BODY

    assert b"If-Match" not in first[1] and b"Range: bytes=" in first[1]
    assert b'If-Match: "a"' in behind[1]


def test_a_pause_between_two_attempts_obeys_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSES", (600.0,))
    with answering(BROKEN) as (port, seen), pytest.raises(StoppedError):
        fetched(port, lambda: bool(seen))

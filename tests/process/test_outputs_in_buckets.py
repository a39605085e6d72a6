"""The commit protocol on real servers of S3 and of Cloud Storage's API: the same as on a volume, whoever writes beside, and whatever the network loses."""

from __future__ import annotations

import hashlib
import json
import random
import re
import socket
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from inference_protocol.hosts import NO_PROXY_VARIABLE, PROXY_VARIABLE
from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import OUTPUT_STORAGE_FOLDER
from inference_protocol.uris import BucketUri, S3Uri
from inference_worker import outbound, pace
from inference_worker.batch.bucket import BucketFolder
from inference_worker.batch.directory import Directory
from inference_worker.batch.manifest import ATTEMPTS, SUMMARY, Header, read_summary
from inference_worker.batch.output import Output
from inference_worker.errors import WorkerError
from inference_worker.stores import bucket
from inference_worker.stores.calls import Request
from tests.authority import Authority
from tests.process.stores import KEY, SECRET, GcsServer, Line, S3Server, answering, gcs_server, line, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from inference_worker.batch.storage import OutputStorage

R = WorkerReason
Store = S3Server | GcsServer
STORAGE = Storage(secret="answers", folder=OUTPUT_STORAGE_FOLDER)
TOTAL, STEP = 30, 13
HEADER = Header(job="team/job", uid="uid-1", model_digest="sha256:aa", input="s3://in/x.npy", total=TOTAL)
CLAIM = f"{ATTEMPTS}/{HEADER.claim}.jsonl"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), written_to=True) as server:
        yield server


@pytest.fixture(scope="module", params=["s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Each of the two kinds."""
    if request.param == "s3":
        yield request.getfixturevalue("s3")
    else:
        with gcs_server(tmp_path_factory.mktemp("gcs")) as server:
            yield server


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write the Secret of the output, for a port."""
    monkeypatch.setenv("INFERENCE_IDENTITY_ROOT", str(tmp_path / "identity"))
    monkeypatch.setattr(outbound, "forbidden_address", lambda _: None)
    monkeypatch.setattr(bucket, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(bucket, "_PATIENCE_SECONDS", 5.0)
    monkeypatch.setattr(pace, "_SLOW_SECONDS", 5.0)

    def write(port: int, **changes: str) -> None:
        folder = tmp_path / "identity" / OUTPUT_STORAGE_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        url = f"http://localhost:{port}"
        given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": url, "GCS_ENDPOINT_URL": url}
        for key, text in {**given, **changes}.items():
            (folder / key).write_text(text)

    return write


@pytest.fixture
def folder(store: Store, keys: Callable[..., None], request: pytest.FixtureRequest) -> BucketUri:
    """A folder of this test's own."""
    keys(store.port)
    return store.uri(f"{abs(hash(request.node.name)):x}/out")


def stored(uri: BucketUri) -> BucketFolder:
    return BucketFolder(uri, STORAGE, ())


def opened(uri: BucketUri, *, attempt: int = 1, writer: str = "", **changes: object) -> Output:
    return Output(stored(uri), msgspec.structs.replace(HEADER, attempt=attempt, writer=writer, **changes), suffix=".jsonl")


def answers(start: int, end: int) -> bytes:
    return "".join(f"answer {i}\n" for i in range(start, end)).encode()


def go_on(uri: BucketUri, *, attempt: int = 1, upto: int = TOTAL) -> int:
    """Commit from where the output ends, and finish when all is there. Returns where it began."""
    with opened(uri, attempt=attempt) as output:
        begun = output.end
        finished(output, upto=upto)
    return begun


def finished(output: Output, *, upto: int = TOTAL) -> None:
    while output.end < upto:
        end = min(output.end + STEP, upto)
        output.commit(output.end, end, answers(output.end, end))
    if output.end == TOTAL:
        output.finish()


def read(store: Store, uri: BucketUri) -> bytes:
    """What a reader gets who doesn't ask as workers do."""
    chunks = json.loads(store.get(uri.bucket, f"{uri.key}/{SUMMARY}"))["chunks"]
    return b"".join(store.get(uri.bucket, f"{uri.key}/{chunk['file']}") for chunk in chunks)


@pytest.fixture(params=["a directory", "a bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, folder: BucketUri) -> OutputStorage:
    return Directory(tmp_path / "out") if request.param == "a directory" else stored(folder)


def test_both_kinds_of_storage_keep_what_the_protocol_asks_of_them(storage: OutputStorage) -> None:
    assert storage.names() == storage.names(ATTEMPTS) == [] and storage.read("x", 9) is None and not storage.exists("x")
    assert storage.claim(CLAIM, b"header\n")
    storage.append(b"one\n")
    storage.append(b"two\n")
    storage.write("chunk", b"answers")
    assert storage.publish(SUMMARY, b"{}")

    assert storage.read(CLAIM, 99) == b"header\none\ntwo\n" and storage.read(CLAIM, 6) == b"header"
    assert storage.names(ATTEMPTS) == [CLAIM.removeprefix("attempts/")]
    assert {*storage.names()} - {ATTEMPTS} == {"chunk", SUMMARY}
    assert storage.digest("chunk") == hashlib.sha256(b"answers").hexdigest()
    assert storage.digest("other") is None and storage.exists("chunk")
    with pytest.raises((OSError, WorkerError)):
        storage.publish(SUMMARY, b"another")
    assert storage.read(SUMMARY, 9) == b"{}"
    storage.remove("chunk")
    storage.remove("chunk")
    assert not storage.exists("chunk")
    storage.close()


def test_a_name_is_claimed_once(folder: BucketUri) -> None:
    assert stored(folder).claim(CLAIM, b"one\n")

    assert not stored(folder).claim(CLAIM, b"two\n")


def test_two_workers_that_believe_to_be_the_same_attempt_are_told_apart(folder: BucketUri) -> None:
    with opened(folder, writer="one"), pytest.raises(WorkerError) as caught:
        opened(folder, writer="two")

    assert caught.value.reason is R.OUTPUT_CLAIMED


def test_a_batch_goes_on_where_it_was(store: Store, folder: BucketUri) -> None:
    assert go_on(folder, upto=STEP) == 0
    assert go_on(folder, attempt=2) == STEP
    assert read(store, folder) == answers(0, TOTAL)
    assert go_on(folder, attempt=3) == TOTAL
    summary = read_summary(stored(folder))
    assert summary is not None
    assert store.names(folder.bucket, folder.key) == {SUMMARY, ATTEMPTS, *(chunk.file for chunk in summary.chunks)}


def without_conditions(block: bytes) -> bytes:
    return re.sub(rb"If-(None-)?Match: [^\r]*\r\n|ifGenerationMatch=\d+&", b"", block)


@pytest.mark.parametrize("kind", [partial(s3_server, written_to=True, open_to_all=True), gcs_server])
def test_a_store_that_ignores_conditions_is_refused(
    tmp_path: Path, keys: Callable[..., None], kind: Callable[[Path], AbstractContextManager[Store]]
) -> None:
    """A proxy takes them off, and the server checks no signature that would tell."""
    with kind(tmp_path) as server, line(server.port, change=without_conditions) as wire:
        keys(wire.port)
        with pytest.raises(WorkerError) as caught:
            opened(server.uri("out"))

    assert caught.value.reason is R.OUTPUT_STORE_UNSAFE and caught.value.permanent and "conditional writes" in caught.value.message
    assert not list((tmp_path / "buckets").rglob("*.jsonl")), "nothing is claimed"


def test_a_store_that_asks_to_slow_down_is_asked_again(store: Store, folder: BucketUri, keys: Callable[..., None]) -> None:
    with line(store.port, busy=3) as wire:
        keys(wire.port)
        go_on(folder)

    assert read(store, folder) == answers(0, TOTAL)


def test_patience_with_a_store_ends(
    store: Store, folder: BucketUri, keys: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_PATIENCE_SECONDS", 0.2)
    go_on(folder, upto=STEP)
    with line(store.port) as wire:
        keys(wire.port)
        with opened(folder, attempt=2) as output:
            wire.busy = 1000
            with pytest.raises(WorkerError) as caught:
                output.commit(STEP, TOTAL, answers(STEP, TOTAL))

    assert caught.value.reason is R.OUTPUT_UNREACHABLE and not caught.value.permanent
    assert "503 Service Unavailable" in caught.value.message
    keys(store.port)
    assert go_on(folder, attempt=3) == STEP


@pytest.mark.parametrize("number", range(1, 9))
def test_a_write_whose_answer_is_lost_is_no_other_workers(
    store: Store, folder: BucketUri, keys: Callable[..., None], number: int
) -> None:
    """The store carried it out, and refuses it when it is repeated."""
    with line(store.port) as wire:
        keys(wire.port)
        asked = 0
        real = bucket.Bucket._ask

        def counted(self: bucket.Bucket, request: Request) -> bucket._Answer:
            nonlocal asked
            if request.method in ("PUT", "POST"):
                asked += 1
                wire.lost = 1 if asked == number else 0
            return real(self, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bucket.Bucket, "_ask", counted)
            patch.setattr(BucketFolder, "_require_conditions", lambda *_: None)
            with opened(folder, writer="one") as output:
                finished(output)

    assert asked >= 6 and read(store, folder) == answers(0, TOTAL)


def test_an_upload_that_is_cut_off_leaves_no_half_and_is_repeated(
    store: Store, folder: BucketUri, keys: Callable[..., None]
) -> None:
    data = random.Random(1).randbytes(4 << 20)
    with line(store.port, cut_sent_after=2 << 20) as wire:
        keys(wire.port)
        stored(folder).write("chunk", data)
        assert wire.cut_sent_after is None and wire.connections > 1
    keys(store.port)

    assert stored(folder).digest("chunk") == hashlib.sha256(data).hexdigest()


def test_somebody_who_replaces_a_manifest_is_told_from_its_worker(folder: BucketUri) -> None:
    with opened(folder) as output:
        stored(folder).remove(f"{ATTEMPTS}/{msgspec.structs.replace(HEADER, attempt=1).claim}.jsonl")
        with pytest.raises(WorkerError) as caught:
            output.commit(0, STEP, answers(0, STEP))

    assert caught.value.reason is R.OUTPUT_CLAIMED


WRONG: dict[str, tuple[str, dict[str, str], WorkerReason, str]] = {
    "no bucket": ("none-such", {}, R.OUTPUT_UNWRITABLE, "no bucket 'none-such'"),
    "another secret": ("models", {"AWS_SECRET_ACCESS_KEY": "x"}, R.OUTPUT_ACCESS_DENIED, "s3:PutObject"),
    "half a pair": ("models", {"AWS_SECRET_ACCESS_KEY": ""}, R.OUTPUT_ACCESS_DENIED, "AWS_SECRET_ACCESS_KEY"),
    "no server": ("models", {"AWS_ENDPOINT_URL": "http://localhost:9"}, R.OUTPUT_UNREACHABLE, "is the server up"),
    "no URL": ("models", {"AWS_ENDPOINT_URL": "file:///etc"}, R.URI_FORBIDDEN, "no URL of a server"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_bucket_is_said(
    s3: S3Server, keys: Callable[..., None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_PATIENCE_SECONDS", 0.1)
    name, changes, reason, words = WRONG[what]
    keys(s3.port, **changes)

    with pytest.raises(WorkerError) as caught:
        opened(S3Uri(name, "out"))

    assert caught.value.reason is reason and words in caught.value.message, caught.value.message
    assert SECRET not in caught.value.message


class Interruption:
    """Does something else before one of the requests by which an attempt asks the store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, work: Callable[[], None]) -> None:
        self._left = at
        self.done = False
        real = bucket.Bucket._ask

        def interrupted(asked: bucket.Bucket, request: Request) -> bucket._Answer:
            self._left -= 1
            if self._left == 0:
                self.done = True
                work()
            return real(asked, request)

        monkeypatch.setattr(bucket.Bucket, "_ask", interrupted)


REQUESTS = 32
"""More requests than a whole attempt makes whose store was tried before."""


@pytest.mark.parametrize("at", range(1, REQUESTS))
@pytest.mark.parametrize("commits", [STEP, TOTAL])
def test_a_later_attempt_may_come_at_any_request_and_outlive_the_first(
    store: Store, folder: BucketUri, at: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BucketFolder, "_require_conditions", lambda *_: None)
    second: list[Output] = []

    def come() -> None:
        second.append(opened(folder, attempt=2))
        finished(second[0], upto=commits)

    with monkeypatch.context() as patch:
        interruption = Interruption(patch, at, come)
        try:
            with opened(folder) as first:
                finished(first)
            done = True
        except WorkerError as error:
            assert error.reason is R.OUTPUT_CLAIMED, error  # noqa: PT017
            done = False
    if done:
        assert read(store, folder) == answers(0, TOTAL)
    if interruption.done:
        finished(second[0])
    assert read(store, folder) == answers(0, TOTAL)


def a_proxy(asked: list[bytes]) -> AbstractContextManager[int]:
    """One that connects to wherever it is asked to; `asked` is what it heard."""

    def serve(caller: socket.socket) -> None:
        head = caller.recv(4096)
        asked.append(head)
        target = int(head.split(b" ")[1].rpartition(b":")[2])
        caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        Line(target).carry(caller)

    return answering(serve)


@pytest.mark.parametrize("itself", [False, True])
def test_a_store_behind_a_proxy_is_asked_through_it_unless_it_is_an_exception(
    tmp_path: Path, keys: Callable[..., None], monkeypatch: pytest.MonkeyPatch, *, itself: bool
) -> None:
    authority, asked = Authority(), list[bytes]()
    with s3_server(tmp_path, authority, written_to=True) as server, a_proxy(asked) as port:
        keys(server.port, AWS_ENDPOINT_URL=f"https://localhost:{server.port}", AWS_CA_BUNDLE=authority.pem)
        monkeypatch.setenv(PROXY_VARIABLE, f"http://localhost:{port}")
        monkeypatch.setenv(NO_PROXY_VARIABLE, "other.example,localhost" if itself else "other.example")
        go_on(S3Uri("models", "out"))

    assert bool(asked) is not itself
    assert all(head.startswith(f"CONNECT localhost:{server.port} ".encode()) for head in asked)


def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch, keys: Callable[..., None]) -> None:
    monkeypatch.setattr(bucket, "_PATIENCE_SECONDS", 0.0)
    keys(1, AWS_ENDPOINT_URL="https://store.example")

    def refuse(caller: socket.socket) -> None:
        caller.recv(4096)
        caller.sendall(b"HTTP/1.1 403 No\r\n\r\n")

    with answering(refuse) as port:
        monkeypatch.setenv(PROXY_VARIABLE, f"http://localhost:{port}")
        with pytest.raises(WorkerError) as caught:
            opened(S3Uri("models", "out"))

    assert caught.value.reason is R.OUTPUT_UNREACHABLE and "refused to connect (HTTP 403)" in caught.value.message


def test_credentials_that_are_renewed_meanwhile_are_read_anew(
    s3: S3Server, keys: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_FRESH_SECONDS", 0.0)
    storage = stored(S3Uri("models", "renewed"))
    keys(s3.port, AWS_SECRET_ACCESS_KEY="of yesterday")
    with pytest.raises(OSError, match="403"):
        storage.write("one", b"1")

    keys(s3.port)
    storage.write("one", b"1")

"""The commit protocol on a real S3 server: the same as on a volume, whoever writes beside, and whatever the network loses."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import OUTPUT_STORAGE_FOLDER
from inference_protocol.uris import S3Uri
from inference_worker import outbound, pace
from inference_worker.batch.bucket import BucketFolder
from inference_worker.batch.directory import Directory
from inference_worker.batch.manifest import ATTEMPTS, SUMMARY, Header, read_summary
from inference_worker.batch.output import Output
from inference_worker.errors import WorkerError
from inference_worker.stores import bucket
from tests.process.stores import KEY, SECRET, S3Server, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from inference_worker.batch.storage import OutputStorage

R = WorkerReason
STORAGE = Storage(secret="answers", folder=OUTPUT_STORAGE_FOLDER)
TOTAL, STEP = 30, 13
HEADER = Header(job="team/job", uid="uid-1", model_digest="sha256:aa", input="s3://in/x.npy", total=TOTAL)
CLAIM = f"{ATTEMPTS}/{HEADER.claim}.jsonl"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), written_to=True) as server:
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
        given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": f"http://localhost:{port}"}
        for key, text in {**given, **changes}.items():
            (folder / key).write_text(text)

    return write


@pytest.fixture
def folder(s3: S3Server, keys: Callable[..., None], request: pytest.FixtureRequest) -> S3Uri:
    """A folder of this test's own."""
    keys(s3.port)
    return S3Uri("models", f"{abs(hash(request.node.name)):x}/out")


def stored(uri: S3Uri) -> BucketFolder:
    return BucketFolder(uri, STORAGE, ())


def opened(uri: S3Uri, *, attempt: int = 1, writer: str = "", **changes: object) -> Output:
    return Output(stored(uri), msgspec.structs.replace(HEADER, attempt=attempt, writer=writer, **changes), suffix=".jsonl")


def answers(start: int, end: int) -> bytes:
    return "".join(f"answer {i}\n" for i in range(start, end)).encode()


def go_on(uri: S3Uri, *, attempt: int = 1, upto: int = TOTAL) -> int:
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


def read(s3: S3Server, uri: S3Uri) -> bytes:
    """What a reader gets, from the server's own disk."""
    place = s3.folder / uri.bucket / uri.key
    return b"".join((place / chunk["file"]).read_bytes() for chunk in json.loads((place / SUMMARY).read_bytes())["chunks"])


@pytest.fixture(params=["a directory", "a bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, folder: S3Uri) -> OutputStorage:
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


def test_a_name_is_claimed_once(folder: S3Uri) -> None:
    assert stored(folder).claim(CLAIM, b"one\n")

    assert not stored(folder).claim(CLAIM, b"two\n")


def test_two_workers_that_believe_to_be_the_same_attempt_are_told_apart(folder: S3Uri) -> None:
    with opened(folder, writer="one"), pytest.raises(WorkerError) as caught:
        opened(folder, writer="two")

    assert caught.value.reason is R.OUTPUT_CLAIMED


def test_a_batch_goes_on_where_it_was(s3: S3Server, folder: S3Uri) -> None:
    assert go_on(folder, upto=STEP) == 0
    assert go_on(folder, attempt=2) == STEP
    assert read(s3, folder) == answers(0, TOTAL)
    assert go_on(folder, attempt=3) == TOTAL
    summary = read_summary(stored(folder))
    assert summary is not None
    kept = {path.name for path in (s3.folder / "models" / folder.key).iterdir()}
    assert kept == {SUMMARY, ATTEMPTS, *(chunk.file for chunk in summary.chunks)}

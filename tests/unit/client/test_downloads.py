"""What is fetched of an output, and what is refused: the real steps and files, on a volume that is a folder of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from inference_client import output, volume_pod
from inference_client.calls import Exec
from inference_client.downloads import Progress
from inference_client.errors import (
    ClientError,
    ForbiddenError,
    InvalidError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
)
from inference_client.pod_exec import Heard
from kubectl_inference import visible
from tests.unit.client.objects import a_job, a_service, condition, ended_badly, succeeded
from tests.unit.client.outputs import CLAIM, JOB, UID, Server, begun, chunk, fetch, written

if TYPE_CHECKING:
    from pathlib import Path

    from inference_client.downloads import Download

DONE = a_job(*succeeded())
RUNNING = a_job(condition("Ready", "False", "Running"), condition("Succeeded", "Unknown", "Running"))
FAILED = a_job(*ended_badly("OutOfMemory", "the worker was killed"))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(DONE, tmp_path / "volume")


Fetch = Callable[..., "Download"]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def fetched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    """A download by each of the two clients."""
    return partial(fetch, monkeypatch=monkeypatch, waits=request.param)


def test_an_output_is_fetched_from_a_claim_whole(server: Server, tmp_path: Path, fetched: Fetch) -> None:
    chunks = written(server.volume / "out", b"the first\n", b"the second\n")
    seen: list[Progress] = []

    found = fetched(server, tmp_path / "a" / "b", on_progress=seen.append)

    there = {one.name: one.read_bytes() for one in (tmp_path / "a" / "b").iterdir()}
    assert there == {one.name: one.read_bytes() for one in (server.volume / "out").iterdir()}
    assert (found.items, found.total, found.whole, found.kept) == (20, 20, True, 0)
    assert [one.name for one in found.files] == [one["file"] for one in chunks]
    assert seen == [Progress(10, 20, 10), Progress(20, 20, 21)]


def test_the_pod_reads_alone_runs_no_shell_and_goes(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(server.volume / "out", b"x")

    fetch(server, tmp_path / "out", monkeypatch=monkeypatch, timeout=30)

    (pod,) = server.made
    (container,) = pod["spec"]["containers"]
    assert container["volumeMounts"][0]["readOnly"] and container["command"][0] == "sleep"
    assert pod["spec"]["activeDeadlineSeconds"] == 90 and not pod["spec"]["automountServiceAccountToken"]
    assert {program[0] for program in server.programs} == {"cat"} and server.pods == {}


@pytest.mark.parametrize("fault", [UnavailableError("the connection broke"), KeyboardInterrupt()], ids=["broken", "interrupted"])
def test_a_download_that_was_cut_off_goes_on_and_leaves_no_pod(
    server: Server, tmp_path: Path, fault: BaseException, fetched: Fetch
) -> None:
    first, second = written(server.volume / "out", b"the first", b"the second")
    server.faults = {second["file"]: fault}

    with pytest.raises(type(fault)):
        fetched(server, tmp_path / "out")
    assert server.pods == {} and [one.name for one in (tmp_path / "out").iterdir()] == [first["file"]]

    server.faults, server.programs = {}, []
    assert fetched(server, tmp_path / "out").kept == 1
    assert not any(first["file"] in program[-1] for program in server.programs)
    assert (tmp_path / "out" / second["file"]).read_bytes() == b"the second"


def test_a_file_that_has_changed_is_told_and_not_kept(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = written(server.volume / "out", b"an answer")
    (server.volume / "out" / one["file"]).write_bytes(b"another")

    with pytest.raises(ClientError, match=f"{one['file']} has the digest .* has changed since it was written"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_without_an_end_is_cut_off(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(server.volume / "out", b"x" * 100)
    monkeypatch.setattr(output, "CHUNK_BYTES", 50)

    with pytest.raises(ClientError, match="has more than 50 bytes"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)
    assert list((tmp_path / "out").iterdir()) == []
    monkeypatch.setattr(output, "MANIFEST_BYTES", 50)
    with pytest.raises(ClientError, match=r"manifest\.json has more than 50 bytes"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)


GOOD = chunk(0, 10, b"x")


@pytest.mark.parametrize(
    "name",
    [
        "../chunk-0000000000-7c1f03aa-1.npz",
        "/etc/passwd",
        "a/chunk-0000000000-7c1f03aa-1.npz",
        "chunk-0000000000-7c1f03aa-1.npz\x1b[2J",
        "chunk-0000000000-7c1f03aa-1.npz\n",
        "chunk-٠٠٠٠٠٠٠٠٠٠-7c1f03aa-1.npz",  # noqa: RUF001 -- digits to \d
        ".bashrc",
        "manifest.json",
        "",
    ],
)
def test_a_name_that_no_worker_writes_is_refused(
    server: Server, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(server.volume / "out", b"x", chunks=[{**GOOD, "file": name}])

    with pytest.raises(ClientError, match="is the name of no chunk: it is not fetched") as refused:
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)
    assert not (tmp_path / "out").exists() and visible.is_plain(str(refused.value))


@pytest.mark.parametrize(
    ("chunks", "total", "words"),
    [
        ([chunk(10, 20, b"x")], 20, "for items 10 to 20, where 0 is due"),
        ([GOOD, chunk(5, 20, b"x")], 20, "for items 5 to 20, where 10 is due"),
        ([GOOD, {**GOOD, "start": 10, "end": 20}], 20, "for items 10 to 20"),
        ([GOOD], 20, r"answers to 10 of 20 items"),
        ([GOOD], 5, "for items 0 to 10"),
        ([{**GOOD, "end": 0}], 0, "for items 0 to 0"),
        ([{**GOOD, "sha256": "../x"}], 10, "is no digest"),
        ([{**GOOD, "start": "0"}], 10, "is none that a worker writes"),
    ],
)
def test_a_list_that_no_worker_writes_is_refused(
    server: Server, tmp_path: Path, chunks: list[Any], total: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(server.volume / "out", b"x", chunks=chunks, total=total)

    with pytest.raises(ClientError, match=words):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("raw", [b"", b"[", b"\xff{}", b"[" * 100_000, b'{"job": 1}'])
def test_what_is_no_manifest_is_told(server: Server, tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    written(server.volume / "out")
    (server.volume / "out" / "manifest.json").write_bytes(raw)

    with pytest.raises(ClientError, match=r"manifest\.json is none that a worker writes"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)


def test_the_output_of_another_job_is_not_this_ones(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(server.volume / "out", b"x", job="other/job")

    with pytest.raises(ClientError, match="the output is that of job other/job, and not of demo/job"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)


def test_what_is_committed_so_far_is_fetched_only_when_asked(server: Server, tmp_path: Path, fetched: Fetch) -> None:
    out = tmp_path / "out"
    begun(server.volume / "out", 1, b"one")
    begun(server.volume / "out", 2, b"one", b"two", torn=b'{"file": "chunk-')
    begun(server.volume / "out", 3)
    begun(server.volume / "out", 7, b"one", b"two", b"three", uid="of a job before")
    for job, kind in ((RUNNING, ClientError), (FAILED, JobFailedError)):
        server.job = job
        with pytest.raises(kind, match="has not succeeded"):
            fetched(server, out)
        found = fetched(server, out, partial=True)

    assert (found.items, found.total, found.whole, found.kept) == (20, 100, False, 2)
    assert not (out / "manifest.json").exists()
    assert json.loads((out / "manifest.partial.json").read_text())["chunks"] == [
        chunk(0, 10, b"one", 2),
        chunk(10, 20, b"two", 2),
    ]

    written(server.volume / "out", b"one", b"two")
    server.job = DONE
    assert fetched(server, out, partial=True).whole
    assert (out / "manifest.json").exists() and not (out / "manifest.partial.json").exists()


def test_nothing_committed_is_told(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.job = RUNNING
    begun(server.volume / "out", 1)
    (server.volume / "out" / "attempts" / f"{CLAIM}-2.jsonl").write_bytes(b"\xff")

    with pytest.raises(ClientError, match="has committed nothing yet"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch, partial=True)


def test_another_output_in_the_folder_is_replaced_only_when_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(server.volume / "out", b"new")
    written(tmp_path / "out", b"old")

    with pytest.raises(InvalidError, match="holds another output"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)
    assert fetch(server, tmp_path / "out", monkeypatch=monkeypatch, force=True).kept == 0
    assert fetch(server, tmp_path / "out", monkeypatch=monkeypatch).kept == 1


def test_a_link_in_the_folder_leads_nowhere(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = written(server.volume / "out", b"an answer")
    (tmp_path / "out").mkdir()
    (tmp_path / "mine").write_text("mine")
    for name in (one["file"], f".{one['file']}.part", ".manifest.json.part"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "mine")

    fetch(server, tmp_path / "out", monkeypatch=monkeypatch)

    assert (tmp_path / "mine").read_text() == "mine" and (tmp_path / "out" / one["file"]).read_bytes() == b"an answer"
    assert not (tmp_path / "out" / one["file"]).is_symlink()


def test_small_answers_become_a_file(server: Server, tmp_path: Path, fetched: Fetch) -> None:
    server.job = a_job(*succeeded(), output={"data": '{"y": 1}\n{"y": 2}'})

    found = fetched(server, tmp_path / "out")

    assert found.files == (tmp_path / "out" / "output.jsonl",) and found.items == 2 and server.made == []
    assert found.files[0].read_text() == '{"y": 1}\n{"y": 2}\n'
    found.files[0].write_text("mine")
    with pytest.raises(InvalidError, match="is there already, and holds something else"):
        fetched(server, tmp_path / "out")


def test_what_has_no_output_is_told(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for job, words in (
        (a_service(), "is a service: it has no output"),
        (a_job(*succeeded(), spec={"output": {"uri": "file:///etc"}}), "jobs write to pvc://, s3:// and gs://"),
        (a_job(*succeeded(), spec={"output": {"uri": "s3://a::file:///etc"}}), "jobs write to pvc://, s3:// and gs://"),
        (a_job(*succeeded(), spec={"output": {"uri": "pvc://data/../x"}}), "is no folder on a claim"),
        (a_job(*succeeded(), spec={"output": {"uri": "pvc://other/x"}}), "has no PersistentVolumeClaim other"),
    ):
        server.job = job
        with pytest.raises(ClientError, match=words):
            fetch(server, tmp_path / "out", monkeypatch=monkeypatch)
    assert not (tmp_path / "out").exists() and server.made == []


def test_a_time_has_an_end(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(server.volume / "out", b"x")

    with pytest.raises(UnavailableError, match="0 of 10 items were fetched in 0 s; the next try goes on there"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch, timeout=0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirFileSystem:
    """A bucket whose objects are files of this machine."""
    made = DirFileSystem(str(tmp_path / "buckets"), LocalFileSystem(), skip_instance_cache=True)
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri: (made, uri.partition("://")[2]))
    return made


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_an_output_is_fetched_from_a_bucket_without_a_pod(
    server: Server, store: DirFileSystem, tmp_path: Path, fetched: Fetch, scheme: str
) -> None:
    bucket = tmp_path / "buckets" / "answers" / "out"
    server.job = a_job(*succeeded(), spec={"output": {"uri": f"{scheme}://answers/out/"}})
    (one,) = written(bucket, b"an answer")

    assert fetched(server, tmp_path / "out").whole
    assert (tmp_path / "out" / one["file"]).read_bytes() == b"an answer" and server.made == []

    server.job = a_job(condition("Ready", "False", "Running"), spec={"output": {"uri": "s3://answers/so-far"}})
    begun(bucket.with_name("so-far"), 1, b"one")
    assert fetched(server, tmp_path / "so-far", partial=True).items == 10


@pytest.mark.parametrize(
    ("fault", "kind"), [(PermissionError, ForbiddenError), (FileNotFoundError, NotFoundError), (RuntimeError, UnavailableError)]
)
def test_what_a_bucket_refuses_is_told(
    server: Server,
    store: DirFileSystem,
    tmp_path: Path,
    fault: type[Exception],
    kind: type[ClientError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.job = a_job(*succeeded(), spec={"output": {"uri": "s3://answers/out"}})

    def refuse(*_: object, **__: object) -> None:
        raise fault("the store's words")

    monkeypatch.setattr(store, "open", refuse)
    with pytest.raises(kind, match=r"s3://answers/out/manifest\.json.*the store's words"):
        fetch(server, tmp_path / "out", monkeypatch=monkeypatch)


def test_a_programs_words_are_its_channels() -> None:
    heard: list[bytes] = []
    program = Exec("demo", "p", ("cat", "/data/x"), heard.append)

    good = Heard(program)
    for message in (b"", b"\x01", b"\x01a\x00b", b"\x02careful", b"\x01c", b"\x03" + b'{"status": "Success"}', b"\xff\x01"):
        good(message)
    good.check()
    assert heard == [b"a\x00b", b"c"]
    for verdict in (b"", b"[", b"[1]", b'{"status": "Failure"}'):
        bad = Heard(program)
        bad(b"\x02no such file")
        bad(b"\x03" + verdict)
        with pytest.raises(ClientError, match="cat in pod p failed: no such file"):
            bad.check()


def a_pod(*waiting: str, phase: str = "Pending") -> dict[str, Any]:
    states = [{"state": {"waiting": {"reason": one, "message": "the kubelet's words"}}} for one in waiting]
    return {"status": {"phase": phase, "containerStatuses": states}}


def ended(pod: dict[str, Any]) -> ClientError:
    steps = volume_pod.started("demo", "p", 0, iter(range(10)).__next__)
    next(steps)
    try:
        # After what may pass there is a pause, and another look.
        while True:
            steps.send(pod)
            next(steps)
    except ClientError as error:
        return error


@pytest.mark.parametrize("word", ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"])
def test_a_helper_pod_that_never_starts_is_not_waited_for(word: str) -> None:
    error = ended(a_pod(word))

    assert type(error) is ClientError and f"{word}: the kubelet's words; name an image" in str(error)


def test_a_helper_pod_that_may_still_start_is_waited_for() -> None:
    assert isinstance(ended(a_pod("ErrImagePull")), UnavailableError)
    assert isinstance(ended(a_pod(phase="Failed")), UnavailableError)


def test_names_are_as_workers_write_them() -> None:
    assert output.attempt_names((f"{CLAIM}-2.jsonl", f"{CLAIM}-10.jsonl", "x", f"{CLAIM}-3.tmp", "00000000-9.jsonl"), UID) == (
        f"{CLAIM}-10.jsonl",
        f"{CLAIM}-2.jsonl",
    )
    assert f"{DONE.metadata.namespace}/{DONE.metadata.name}" == JOB

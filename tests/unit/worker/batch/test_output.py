"""The output directory: whatever a crash leaves behind, no answer is lost and none is there twice."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.directory import Directory
from inference_worker.batch.manifest import ATTEMPTS, SUMMARY, Header
from inference_worker.batch.output import Output
from inference_worker.errors import WorkerError
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from pathlib import Path

TOTAL = 30
HEADER = Header(job="team/job", uid="uid-1", model_digest="sha256:aa", input="pvc://data/in.npy", total=TOTAL)
TRUTH = "".join(f"answer {i}\n" for i in range(TOTAL)).encode()


def answers(start: int, end: int) -> bytes:
    return "".join(f"answer {i}\n" for i in range(start, end)).encode()


def opened(directory: Path, header: Header = HEADER, *, attempt: int = 1, suffix: str = ".jsonl") -> Output:
    return Output(Directory(directory), msgspec.structs.replace(header, attempt=attempt), suffix=suffix)


def manifest(directory: Path, *, attempt: int = 1, uid: str = "uid-1") -> Path:
    """That of one attempt."""
    return directory / ATTEMPTS / f"{msgspec.structs.replace(HEADER, uid=uid, attempt=attempt).claim}.jsonl"


def chunk(directory: Path, start: int, *, attempt: int = 1) -> Path:
    """The file of one attempt that begins with an item."""
    return directory / f"chunk-{start:010d}-{manifest(directory, attempt=attempt).stem}.jsonl"


def content(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def go_on(directory: Path, *, attempt: int = 1, step: int = 7, commits: int = TOTAL, header: Header = HEADER) -> int:
    """What a task does: commit from where the output ends, and finish when all is there. Returns where it began."""
    with opened(directory, header, attempt=attempt) as output:
        begun = output.end
        for _ in range(commits):
            if output.end == TOTAL:
                break
            end = min(output.end + step, TOTAL)
            output.commit(output.end, end, answers(output.end, end))
        if output.end == TOTAL:
            output.finish()
    return begun


def read(directory: Path) -> bytes:
    """What a reader gets: the chunks that the summary names."""
    chunks = json.loads((directory / SUMMARY).read_text())["chunks"]
    return b"".join((directory / chunk["file"]).read_bytes() for chunk in chunks)


def conflict(directory: Path, header: Header = HEADER, *, attempt: int = 1) -> str:
    with pytest.raises(WorkerError) as caught:
        opened(directory, header, attempt=attempt)
    assert caught.value.reason is WorkerReason.OUTPUT_CONFLICT and caught.value.permanent
    return caught.value.message


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of outputs in a row: none of them meets a power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_a_task_without_problem_leaves_all_answers_and_a_summary(tmp_path: Path) -> None:
    go_on(tmp_path / "deep" / "out")

    summary = json.loads((tmp_path / "deep" / "out" / SUMMARY).read_text())
    assert read(tmp_path / "deep" / "out") == TRUTH
    assert (summary["job"], summary["uid"], summary["total"], summary["modelDigest"]) == ("team/job", "uid-1", TOTAL, "sha256:aa")
    assert [(p["start"], p["end"]) for p in summary["chunks"]] == [(0, 7), (7, 14), (14, 21), (21, 28), (28, 30)]


def test_the_summary_comes_only_at_the_end(tmp_path: Path) -> None:
    go_on(tmp_path, commits=4)
    assert not (tmp_path / SUMMARY).exists()

    go_on(tmp_path, attempt=2)
    assert read(tmp_path) == TRUTH


@pytest.mark.usefixtures("no_sync")
def test_a_manifest_cut_at_any_byte_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    go_on(tmp_path / "whole", commits=2)
    written = manifest(tmp_path / "whole").read_bytes()
    chunks = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("chunk-*")}

    for cut in range(len(written) + 1):
        directory = tmp_path / str(cut)
        (directory / ATTEMPTS).mkdir(parents=True)
        for name, data in chunks.items():
            (directory / name).write_bytes(data)
        manifest(directory).write_bytes(written[:cut])

        begun = go_on(directory, attempt=2, step=9)

        whole_lines = max(0, written[:cut].count(b"\n") - 1)
        assert begun == whole_lines * 7
        assert read(directory) == TRUTH, f"cut at {cut}"


@pytest.mark.usefixtures("no_sync")
@given(plan=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(0, 200)), max_size=6))
@settings(STEADY, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_crashes_ends_in_the_truth(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("out")
    for attempt, (commits, step, torn) in enumerate(plan, start=1):
        go_on(directory, attempt=attempt, step=step, commits=commits)
        newest = manifest(directory, attempt=attempt)
        newest.write_bytes(newest.read_bytes()[: -torn or None])
        (directory / SUMMARY).unlink(missing_ok=True)

    go_on(directory, attempt=len(plan) + 1)

    assert read(directory) == TRUTH


def test_a_chunk_without_a_line_is_written_again(tmp_path: Path) -> None:
    go_on(tmp_path, commits=2)
    chunk(tmp_path, 14).write_bytes(b"half an ans")

    assert go_on(tmp_path, attempt=2) == 14
    assert read(tmp_path) == TRUTH
    assert not chunk(tmp_path, 14).exists()


def test_a_crash_between_the_chunk_and_its_line_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, opened(tmp_path) as output:
        output.commit(0, 7, answers(0, 7))
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            output.commit(7, 14, answers(7, 14))

    assert go_on(tmp_path, attempt=2) == 7
    assert read(tmp_path) == TRUTH


def test_a_committed_chunk_whose_file_is_gone_is_done_again(tmp_path: Path) -> None:
    go_on(tmp_path, commits=3)
    chunk(tmp_path, 7).unlink()

    go_on(tmp_path, attempt=2)

    assert read(tmp_path) == TRUTH


def test_a_committed_chunk_that_is_not_whole_is_done_again(tmp_path: Path) -> None:
    go_on(tmp_path, commits=3)
    chunk(tmp_path, 7).write_bytes(b"")

    go_on(tmp_path, attempt=2)

    assert read(tmp_path) == TRUTH


def test_a_garbled_line_counts_as_uncommitted(tmp_path: Path) -> None:
    go_on(tmp_path, commits=3)
    lines = manifest(tmp_path).read_bytes().split(b"\n")
    lines[2] = lines[2][:10] + b"\0\0\0"
    manifest(tmp_path).write_bytes(b"\n".join(lines))

    go_on(tmp_path, attempt=2)

    assert read(tmp_path) == TRUTH


def test_a_line_that_was_written_in_part_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as patch, opened(tmp_path) as output:
        output.commit(0, 7, answers(0, 7))
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        try:
            output.commit(7, 14, answers(7, 14))
        except WorkerError as error:
            assert error.reason is WorkerReason.OUTPUT_UNWRITABLE  # noqa: PT017
        else:
            patch.setattr(os, "write", write)
            output.commit(14, 21, answers(14, 21))

    go_on(tmp_path, attempt=2)

    assert read(tmp_path) == TRUTH


def test_what_a_disk_takes_back_after_it_failed_to_sync_is_missed_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux shows what it could not write until it needs the memory, and reports the failure once."""
    sync = os.fsync

    def fail(file: int) -> None:
        if os.fstat(file).st_ino == manifest(tmp_path).stat().st_ino:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(file)

    with monkeypatch.context() as patch, opened(tmp_path) as output:
        output.commit(0, 7, answers(0, 7))
        synced = manifest(tmp_path).read_bytes()
        patch.setattr(os, "fsync", fail)
        with pytest.raises(WorkerError) as caught:
            output.commit(7, 14, answers(7, 14))
    assert caught.value.reason is WorkerReason.OUTPUT_UNWRITABLE and not caught.value.permanent
    assert go_on(tmp_path, attempt=2, commits=1) == 14

    manifest(tmp_path).write_bytes(synced)

    assert go_on(tmp_path, attempt=3) == 21
    assert read(tmp_path) == TRUTH


def test_a_gap_in_the_lines_is_filled(tmp_path: Path) -> None:
    go_on(tmp_path, commits=4)
    lines = manifest(tmp_path).read_bytes().splitlines(keepends=True)
    manifest(tmp_path).write_bytes(b"".join([*lines[:2], *lines[3:]]))

    assert go_on(tmp_path, attempt=2) == 7
    assert read(tmp_path) == TRUTH


def test_a_chunk_that_does_not_follow_is_a_bug_of_ours(tmp_path: Path) -> None:
    with opened(tmp_path) as output, pytest.raises(AssertionError):
        output.commit(5, 9, answers(5, 9))


def test_the_same_job_goes_on_where_it_was(tmp_path: Path) -> None:
    go_on(tmp_path, commits=2)

    assert go_on(tmp_path, attempt=2, commits=1) == 14
    assert go_on(tmp_path, attempt=3) == 21


def test_a_finished_task_that_runs_again_changes_nothing(tmp_path: Path) -> None:
    go_on(tmp_path)
    before = content(tmp_path)

    assert go_on(tmp_path, attempt=2) == TOTAL
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "uid-2"},
        {"uid": "uid-2", "content": "sha256:other"},
        {"model_digest": "sha256:bb"},
        {"input": "pvc://data/other.npy"},
        {"options": "csv"},
    ],
)
def test_unfinished_answers_give_way_to_a_job_that_was_created_again_or_edited(tmp_path: Path, change: dict[str, object]) -> None:
    go_on(tmp_path, commits=3)

    with opened(tmp_path, msgspec.structs.replace(HEADER, **change), attempt=2) as output:
        assert output.end == 0
        assert not list(tmp_path.glob("chunk-*"))


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
@pytest.mark.parametrize(
    "change", [{"model_digest": "sha256:bb"}, {"input": "pvc://data/other.npy"}, {"content": "sha256:other"}, {"total": 31}]
)
@pytest.mark.parametrize("lost", [(), (SUMMARY,)])
def test_finished_answers_are_never_deleted(tmp_path: Path, uid: str, change: dict[str, object], lost: tuple[str, ...]) -> None:
    known = msgspec.structs.replace(HEADER, content="sha256:content")
    go_on(tmp_path, header=known)
    for name in lost:
        (tmp_path / name).unlink()
    before = content(tmp_path)

    message = conflict(tmp_path, msgspec.structs.replace(known, uid=uid, **change), attempt=2)

    assert "finished answers of job team/job (uid uid-1)" in message and "choose another output" in message
    assert content(tmp_path) == before


def test_a_re_created_job_that_asks_the_same_gets_the_finished_answers(tmp_path: Path) -> None:
    go_on(tmp_path, attempt=3)
    before = content(tmp_path)

    assert go_on(tmp_path, header=msgspec.structs.replace(HEADER, uid="uid-2")) == TOTAL
    assert content(tmp_path) == before


def test_a_summary_is_written_for_the_job_that_made_the_answers(tmp_path: Path) -> None:
    go_on(tmp_path)
    (tmp_path / SUMMARY).unlink()

    go_on(tmp_path, header=msgspec.structs.replace(HEADER, uid="uid-2"))

    assert json.loads((tmp_path / SUMMARY).read_text())["uid"] == "uid-1"


def test_finished_answers_that_lost_a_chunk_are_not_deleted_by_another_job(tmp_path: Path) -> None:
    go_on(tmp_path)
    chunk(tmp_path, 7).unlink()
    before = content(tmp_path)

    assert "missing or damaged" in conflict(tmp_path, msgspec.structs.replace(HEADER, uid="uid-2"))
    assert content(tmp_path) == before


def test_finished_answers_without_their_lines_are_not_deleted(tmp_path: Path) -> None:
    go_on(tmp_path)
    manifest(tmp_path).unlink()

    assert "finished answers" in conflict(tmp_path, msgspec.structs.replace(HEADER, job="team/other"))
    assert read(tmp_path) == TRUTH


@pytest.mark.parametrize("change", [{"content": "sha256:other"}, {"total": 31, "content": "sha256:other"}])
def test_an_input_that_was_rewritten_between_attempts_is_not_resumed(tmp_path: Path, change: dict[str, object]) -> None:
    known = msgspec.structs.replace(HEADER, content="sha256:content")
    go_on(tmp_path, commits=2, header=known)
    before = content(tmp_path)

    with pytest.raises(WorkerError) as caught:
        opened(tmp_path, msgspec.structs.replace(known, **change), attempt=2)

    assert caught.value.reason is WorkerReason.INPUT_CHANGED and caught.value.permanent
    assert "restore the input" in caught.value.message and "2 chunks" in caught.value.message
    assert content(tmp_path) == before
    assert go_on(tmp_path, attempt=3, header=known) == 14


def test_an_input_that_was_rewritten_before_the_first_answer_is_taken(tmp_path: Path) -> None:
    go_on(tmp_path, commits=0, header=msgspec.structs.replace(HEADER, content="sha256:content"))
    other = msgspec.structs.replace(HEADER, content="sha256:other")

    go_on(tmp_path, attempt=2, header=other)

    assert read(tmp_path) == TRUTH


def test_a_manifest_from_before_inputs_had_a_content_is_resumed(tmp_path: Path) -> None:
    go_on(tmp_path, commits=2)

    assert go_on(tmp_path, attempt=2, header=msgspec.structs.replace(HEADER, content="sha256:content")) == 14


def test_another_jobs_answers_are_left_alone(tmp_path: Path) -> None:
    go_on(tmp_path)

    message = conflict(tmp_path, msgspec.structs.replace(HEADER, job="team/other"))

    assert "team/job" in message and "choose another output" in message
    assert read(tmp_path) == TRUTH


def claimed(directory: Path, *, attempt: int) -> str:
    with pytest.raises(WorkerError) as caught:
        opened(directory, attempt=attempt)
    assert caught.value.reason is WorkerReason.OUTPUT_CLAIMED and not caught.value.permanent
    return caught.value.message


@pytest.mark.parametrize("attempt", [2, 3])
def test_an_earlier_attempt_is_fenced_out_by_a_later_one_and_each_by_itself(tmp_path: Path, attempt: int) -> None:
    go_on(tmp_path, attempt=3, commits=2)
    before = content(tmp_path)

    assert "attempt 3 of job team/job" in claimed(tmp_path, attempt=attempt)
    assert content(tmp_path) == before
    assert go_on(tmp_path, attempt=4) == 14


@pytest.mark.parametrize("content", [b"name,value\n1,2\n", b"{}\n", b"[]\n", b"\xff\xfe\n", b'{"files": ["of", "another"]}'])
def test_what_is_not_ours_among_the_attempts_is_left_alone(tmp_path: Path, content: bytes) -> None:
    other = manifest(tmp_path, attempt=7)
    other.parent.mkdir()
    other.write_bytes(content)
    (tmp_path / "manifest.jsonl").write_bytes(content)

    go_on(tmp_path)

    assert read(tmp_path) == TRUTH
    assert other.read_bytes() == (tmp_path / "manifest.jsonl").read_bytes() == content


@pytest.mark.parametrize("name", ["part-00000-c000.snappy.parquet", "part-1.csv", "chunk-notes.txt"])
def test_files_of_other_programs_are_never_deleted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"somebody's only copy")

    try:
        go_on(tmp_path)
    except WorkerError as error:
        assert error.reason is WorkerReason.OUTPUT_CONFLICT  # noqa: PT017

    assert (tmp_path / name).read_bytes() == b"somebody's only copy"

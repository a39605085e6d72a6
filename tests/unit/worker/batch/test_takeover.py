"""Two attempts at one output at the same time: whatever order they come in, each answer is there once, and right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from inference_protocol.messages import Rival
from inference_protocol.reasons import WorkerReason
from inference_worker.batch.directory import Directory
from inference_worker.batch.manifest import SUMMARY, read_summary
from inference_worker.batch.output import Output
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_output import HEADER, TOTAL, TRUTH, answers, content, go_on, opened, read

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = 13
CALLS = 75
"""More calls than a whole attempt makes that could be told from outside."""


class Interruption:
    """Does something else at one of the calls by which an attempt touches the disk: once, before or after that call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, work: Callable[[], None]) -> None:
        self._left = at
        self._work = work
        self.done = False
        for owner, name in (
            (os, "open"),
            (os, "write"),
            (os, "fsync"),
            (os, "link"),
            (os, "listdir"),
            (Path, "replace"),
            (Path, "unlink"),
            (Directory, "exists"),
        ):
            monkeypatch.setattr(owner, name, self._interrupted(getattr(owner, name)))

    def _interrupted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*given: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.done = True
                self._work()
            return call(*given, **more)

        return interrupted


def finished(output: Output, *, upto: int = TOTAL) -> bool:
    """Commit from where an output stands; whether it came to its end, and not to that of its claim."""
    try:
        while output.end < upto:
            end = min(output.end + STEP, upto)
            output.commit(output.end, end, answers(output.end, end))
        if output.end == TOTAL:
            output.finish()
    except WorkerError as error:
        assert error.reason is WorkerReason.OUTPUT_CLAIMED, error  # noqa: PT017
        return False
    return True


def require_the_truth(directory: Path) -> None:
    assert read(directory) == TRUTH
    summary = read_summary(Directory(directory))
    assert summary is not None
    named = {chunk.file for chunk in summary.chunks}
    assert {path.name for path in directory.glob("chunk-*")} >= named


@pytest.mark.parametrize("at", range(1, CALLS))
def test_a_later_attempt_may_come_and_finish_at_any_moment(tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        Interruption(patch, at, lambda: (go_on(tmp_path, attempt=2), None)[1])
        try:
            with opened(tmp_path) as first:
                finished(first)
        except WorkerError as error:
            assert error.reason is WorkerReason.OUTPUT_CLAIMED, error  # noqa: PT017

    go_on(tmp_path, attempt=3)
    require_the_truth(tmp_path)


@pytest.mark.parametrize("commits", [0, STEP])
@pytest.mark.parametrize("at", range(1, CALLS))
def test_a_later_attempt_may_come_at_any_moment_and_outlive_the_first(
    tmp_path: Path, at: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    second: list[Output] = []

    def come() -> None:
        second.append(opened(tmp_path, attempt=2))
        finished(second[0], upto=commits)

    with monkeypatch.context() as patch:
        interruption = Interruption(patch, at, come)
        try:
            with opened(tmp_path) as first:
                done = finished(first)
        except WorkerError as error:
            assert error.reason is WorkerReason.OUTPUT_CLAIMED, error  # noqa: PT017
            done = False
    if done:
        require_the_truth(tmp_path)
    if interruption.done:
        assert finished(second[0]), "nobody outranks it"
        require_the_truth(tmp_path)


FIRST = msgspec.structs.replace(HEADER, created="2026-04-01T00:00:00Z")
AGAIN = msgspec.structs.replace(HEADER, uid="uid-2", created="2026-04-02T00:00:00Z")
"""The job that was created once the first was deleted."""

RESTORED = msgspec.structs.replace(FIRST, created="2026-04-03T00:00:00Z")
"""The first, which a backup has brought back: it claims as of then."""


def test_a_job_that_a_backup_has_brought_back_is_told_whose_the_output_is(tmp_path: Path) -> None:
    go_on(tmp_path, commits=1, header=AGAIN)

    with pytest.raises(WorkerError) as caught:
        opened(tmp_path, FIRST)

    assert caught.value.reason is WorkerReason.OUTPUT_CLAIMED
    assert caught.value.rival == Rival("uid-2", AGAIN.created)


@pytest.mark.parametrize("at", range(1, CALLS))
def test_a_job_that_claims_anew_may_come_at_any_moment_of_the_one_that_is_gone(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[Output] = []

    def come() -> None:
        restored.append(opened(tmp_path, RESTORED, attempt=2))
        finished(restored[0], upto=STEP)

    with monkeypatch.context() as patch:
        interruption = Interruption(patch, at, come)
        try:
            with opened(tmp_path, AGAIN) as again:
                finished(again)
        except WorkerError as error:
            assert error.reason is WorkerReason.OUTPUT_CLAIMED, error  # noqa: PT017
    if interruption.done:
        assert finished(restored[0]), "nobody outranks it"
        require_the_truth(tmp_path)
        summary = read_summary(Directory(tmp_path))
        assert summary is not None and summary.uid in (FIRST.uid, AGAIN.uid)


def test_an_attempt_that_is_outranked_stops_at_its_next_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        first.commit(0, STEP, answers(0, STEP))
        with opened(tmp_path, attempt=2) as second:
            assert second.end == STEP
            before = content(tmp_path)

            with pytest.raises(WorkerError, match="attempt 2 of job team/job") as caught:
                first.commit(STEP, TOTAL, answers(STEP, TOTAL))

            assert caught.value.reason is WorkerReason.OUTPUT_CLAIMED and not caught.value.permanent
            assert content(tmp_path).items() >= before.items(), "what the second one relies on"
            assert finished(second)
    require_the_truth(tmp_path)


def test_what_is_committed_until_the_claim_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Directory.claim
    with opened(tmp_path) as first:

        def late(directory: Directory, name: str, data: bytes) -> bool:
            first.commit(0, STEP, answers(0, STEP))
            return claim(directory, name, data)

        monkeypatch.setattr(Directory, "claim", late)
        with opened(tmp_path, attempt=2) as second:
            assert second.end == STEP


def test_an_outranked_attempt_makes_no_summary_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def outranked(*given: Any, **more: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        second.append(opened(tmp_path, attempt=2))
        link(*given, **more)

    second: list[Output] = []
    monkeypatch.setattr(os, "link", outranked)
    with opened(tmp_path) as first:
        assert not finished(first)

    assert not (tmp_path / SUMMARY).exists()
    assert finished(second[0])
    require_the_truth(tmp_path)


def test_a_summary_that_lost_a_chunk_is_made_good_by_the_next_attempt(tmp_path: Path) -> None:
    go_on(tmp_path)
    next(tmp_path.glob("chunk-0000000007-*")).unlink()

    assert go_on(tmp_path, attempt=2) == 7
    require_the_truth(tmp_path)


def test_what_an_outranked_attempt_had_and_nobody_took_over_is_removed_at_the_end(tmp_path: Path) -> None:
    with opened(tmp_path) as first, opened(tmp_path, attempt=2) as second:
        first_chunk = tmp_path / f"chunk-{0:010d}-of-another-program.jsonl"
        first_chunk.write_bytes(b"kept")
        assert not finished(first)
        assert finished(second)
    names = {path.name for path in tmp_path.glob("chunk-*")}
    summary = read_summary(Directory(tmp_path))
    assert summary is not None
    assert names == {chunk.file for chunk in summary.chunks} | {first_chunk.name}


def test_a_chunk_that_has_changed_since_keeps_the_summary_away(tmp_path: Path) -> None:
    with opened(tmp_path) as output:
        output.commit(0, TOTAL, answers(0, TOTAL))
        (tmp_path / output.chunks[0].file).write_bytes(b"something else")

        with pytest.raises(WorkerError, match="has changed since it was written"):
            output.finish()
    assert not (tmp_path / SUMMARY).exists()
    assert go_on(tmp_path, attempt=2) == 0
    require_the_truth(tmp_path)


def test_a_volume_without_second_names_gets_its_summary_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    go_on(tmp_path)

    require_the_truth(tmp_path)
    assert not list(tmp_path.glob(".*"))

"""Output directories that can't be used: held by another process, not writable, full, or a trap."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.manifest import ATTEMPTS, SUMMARY
from inference_worker.errors import WorkerError
from tests.unit.worker.batch.test_output import HEADER, TRUTH, answers, chunk, content, go_on, manifest, opened, read

if TYPE_CHECKING:
    from collections.abc import Iterator


def unwritable(directory: Path) -> str:
    with pytest.raises(WorkerError) as caught:
        opened(directory)
    assert caught.value.reason is WorkerReason.OUTPUT_UNWRITABLE and not caught.value.permanent
    return caught.value.message


@pytest.mark.parametrize("fault", ["conflict", "unwritable"])
def test_a_refused_output_claims_nothing(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on(tmp_path, attempt=5, commits=1)
    before = content(tmp_path)
    if fault == "unwritable":
        monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))

    with pytest.raises(WorkerError):
        opened(tmp_path, attempt=1)
    monkeypatch.undo()

    assert content(tmp_path) == before
    assert go_on(tmp_path, attempt=6) == 7


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_without_permission_names_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)

    assert "65532" in unwritable(tmp_path / "out")


def test_a_file_where_the_directory_should_be_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")

    unwritable(tmp_path / "out")
    unwritable(tmp_path / "out" / "deeper")


def test_a_file_in_the_place_of_the_attempts_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / ATTEMPTS).write_bytes(b"")

    unwritable(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_keeps_what_is_committed_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    out = small_disk / "out"
    go_on(out, commits=2)
    filler = small_disk / "filler"
    fill(filler)

    with pytest.raises(WorkerError) as caught, opened(out, attempt=2) as output:
        output.commit(14, 30, b"x" * 10_000)
    assert caught.value.reason is WorkerReason.OUTPUT_UNWRITABLE and not caught.value.permanent
    assert "space" in caught.value.message

    filler.unlink()
    assert go_on(out, attempt=3) == 14
    assert read(out) == TRUTH


def test_a_full_disk_is_not_blamed_on_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))

    assert "65532" not in unwritable(tmp_path)


CLAIM = msgspec.structs.replace(HEADER, attempt=1).claim


@pytest.mark.parametrize(
    "trap",
    [
        f"{ATTEMPTS}/{CLAIM}.jsonl",
        f"chunk-0000000000-{CLAIM}.jsonl",
        SUMMARY,
        f".{CLAIM}.tmp",
    ],
)
def test_a_link_in_the_output_is_not_written_through(tmp_path: Path, trap: str) -> None:
    victim = tmp_path / "other-volume-file"
    victim.write_bytes(b"")
    (tmp_path / "out" / ATTEMPTS).mkdir(parents=True)
    (tmp_path / "out" / trap).symlink_to(victim)

    with contextlib.suppress(WorkerError):
        go_on(tmp_path / "out")

    assert victim.read_bytes() == b"" and victim.is_file()


def test_a_pipe_in_the_place_of_a_chunk_is_done_again(tmp_path: Path) -> None:
    """Whoever opened it waited for ever, and a warm worker with all that others had ordered there."""
    go_on(tmp_path, commits=2)
    chunk(tmp_path, 7).unlink()
    os.mkfifo(chunk(tmp_path, 7))

    assert go_on(tmp_path, attempt=2) == 7
    assert read(tmp_path) == TRUTH


@pytest.mark.parametrize("name", [f"chunk-0000000000-{CLAIM}.jsonl", f".{CLAIM}.tmp"])
def test_a_folder_in_the_place_of_a_file_is_told_by_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)

    told = unwritable(tmp_path / "out")

    assert repr(name) in told and "65532" not in told


def test_attempts_behind_a_link_are_neither_read_nor_written(tmp_path: Path) -> None:
    go_on(tmp_path / "elsewhere", commits=2)
    before = content(tmp_path / "elsewhere")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ATTEMPTS).symlink_to(tmp_path / "elsewhere" / ATTEMPTS)

    unwritable(tmp_path / "out")

    assert content(tmp_path / "elsewhere") == before


def test_a_chunk_is_durable_before_its_line_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)

    with opened(tmp_path) as output:
        synced.clear()
        output.commit(0, 7, answers(0, 7))

    assert str(tmp_path) in synced[:-1]
    assert synced[-1] == str(manifest(tmp_path))

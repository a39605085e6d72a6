"""Output directories that can't be used: held by another process, not writable, full, or a trap."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.batch import output as module
from inference_worker.batch.manifest import MANIFEST
from inference_worker.batch.output import Output
from inference_worker.errors import WorkerError
from tests.process import models
from tests.unit.worker.batch.test_output import HEADER, TRUTH, answers, go_on, opened, read
from tests.unit.worker.test_tasks import a_task

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def unwritable(directory: Path) -> str:
    with pytest.raises(WorkerError) as caught:
        opened(directory)
    assert caught.value.reason is WorkerReason.OUTPUT_UNWRITABLE and not caught.value.permanent
    return caught.value.message


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the manifest's lock until its input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / MANIFEST)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_an_output_that_another_process_writes_is_left_to_it(
    tmp_path: Path, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_SECONDS", 0.2)

    assert "another worker" in unwritable(tmp_path)
    assert (tmp_path / MANIFEST).read_bytes() == b""


def test_a_lock_that_is_let_go_while_we_wait_is_taken(
    tmp_path: Path, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert holder.stdin is not None
    # The first wait is the moment when it is known that the lock was found held.
    monkeypatch.setattr(time, "sleep", lambda _: holder.kill())

    go_on(tmp_path)

    assert read(tmp_path) == TRUTH


def test_two_outputs_on_one_directory_never_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_SECONDS", 0.1)
    with opened(tmp_path) as first:
        first.commit(0, 7, answers(0, 7))
        unwritable(tmp_path)

    assert go_on(tmp_path, attempt=2) == 7


def test_a_task_that_is_told_to_stop_does_not_wait_for_the_lock(root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task(root, models.identity(), input_data="[1, 2]", output_uri="pvc://data/out")
    monkeypatch.setattr(module, "_LOCK_WAIT_SECONDS", 0.3)
    monkeypatch.setattr(time, "sleep", lambda _: task.stop())

    with opened(volume / "out"):
        task.run()

    assert not task.finished


@pytest.mark.parametrize("fault", ["conflict", "unwritable"])
def test_a_refused_output_lets_go_of_its_lock(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on(tmp_path, attempt=5, commits=1)
    if fault == "unwritable":
        monkeypatch.setattr(os, "pread", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))

    with pytest.raises(WorkerError):
        opened(tmp_path, attempt=1)
    monkeypatch.undo()

    assert go_on(tmp_path, attempt=5) == 7


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_without_permission_names_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)

    assert "65532" in unwritable(tmp_path / "out")


def test_a_file_where_the_directory_should_be_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")

    unwritable(tmp_path / "out")
    unwritable(tmp_path / "out" / "deeper")


def test_a_directory_in_the_manifests_place_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).mkdir()

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

    with pytest.raises(WorkerError) as caught, Output(out, HEADER, attempt=2, suffix=".jsonl") as output:
        output.commit(14, 30, b"x" * 10_000)
    assert caught.value.reason is WorkerReason.OUTPUT_UNWRITABLE and not caught.value.permanent
    assert "space" in caught.value.message

    filler.unlink()
    assert go_on(out, attempt=3) == 14
    assert read(out) == TRUTH


def test_a_full_disk_is_not_blamed_on_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))

    assert "65532" not in unwritable(tmp_path)


@pytest.mark.parametrize("trap", [MANIFEST, ".chunk-0000000000.jsonl.tmp", ".manifest.json.tmp"])
def test_a_link_in_the_output_is_not_written_through(tmp_path: Path, trap: str) -> None:
    victim = tmp_path / "other-volume-file"
    victim.write_bytes(b"")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / trap).symlink_to(victim)

    try:
        go_on(tmp_path / "out")
    except WorkerError as error:
        assert error.reason in (WorkerReason.OUTPUT_UNWRITABLE, WorkerReason.URI_FORBIDDEN)  # noqa: PT017

    assert victim.read_bytes() == b"" and victim.is_file()


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
    assert synced[-1] == str(tmp_path / MANIFEST)

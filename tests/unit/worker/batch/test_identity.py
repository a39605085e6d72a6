"""What names an input's content: it changes with the bytes, and not with what doesn't matter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from inference_protocol.messages import BatchTask, Quantization
from inference_worker.batch import identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TASK = BatchTask(input_uri="pvc://data/in")


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


def content(claim: Path, task: BatchTask = TASK) -> str:
    local = task.input_uri is not None and task.input_uri.startswith(("pvc:", "file:"))
    return identity.content_of(task, claim / "in" if local else None)


def rewrite_keeping_time(path: Path, data: bytes) -> None:
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replaced(path: Path) -> None:
    """Another file of the same size and time takes the name."""
    stat = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"B" * stat.st_size)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)


def touched(path: Path) -> None:
    path.write_bytes(b"B" * path.stat().st_size)
    os.utime(path, ns=(1, 1))


def test_a_file_of_the_same_size_and_time_has_another_content(claim: Path) -> None:
    path = claim / "in"
    path.write_bytes(b"one")
    before = content(claim)

    rewrite_keeping_time(path, b"two")

    assert content(claim) != before


def test_a_copy_of_a_file_has_the_same_content(claim: Path) -> None:
    path = claim / "in"
    path.write_bytes(b"one")
    before = content(claim)

    path.unlink()
    path.write_bytes(b"one")
    os.utime(path, ns=(1, 1))

    assert content(claim) == before


@pytest.mark.parametrize("change", [replaced, touched, lambda path: path.write_bytes(b"longer than before")])
def test_a_large_file_is_known_by_size_time_and_inode(
    claim: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(identity, "_HASHED_BYTES", 2)
    path = claim / "in"
    path.write_bytes(b"AAA")
    before = content(claim)
    assert content(claim) == before

    change(path)

    assert content(claim) != before


@pytest.mark.parametrize("limit", [1, 1 << 20])
def test_a_directory_is_known_by_all_its_files(claim: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(identity, "_HASHED_BYTES", limit)
    folder = claim / "in"
    folder.mkdir()
    for name in ("a.raw", "b.raw"):
        (folder / name).write_bytes(b"1234")
    (folder / "link").symlink_to("/etc/passwd")
    found = [content(claim)]

    for change in (
        lambda: (folder / "b.raw").write_bytes(b"12345678"),
        lambda: (folder / "c.raw").write_bytes(b"1234"),
        lambda: (folder / "a.raw").rename(folder / "d.raw"),
        (folder / "c.raw").unlink,
    ):
        change()
        found.append(content(claim))

    assert len(set(found)) == len(found)


def test_a_file_in_the_image_is_known_by_its_bytes_however_large(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another node the same file has another inode."""
    monkeypatch.setattr(identity, "_HASHED_BYTES", 1)
    path = claim / "in"
    path.write_bytes(b"one")
    task = BatchTask(input_uri=f"file://{path}")
    before = content(claim, task)

    replaced(path)
    path.write_bytes(b"one")

    assert content(claim, task) == before


def test_a_digest_that_was_asked_for_names_the_content(claim: Path) -> None:
    assert content(claim, BatchTask(input_uri="pvc://data/in", input_digest="sha256:aa")) == "sha256:aa"
    assert content(claim, BatchTask(input_uri="https://host/in.npy", input_digest="sha256:aa")) == "sha256:aa"


def test_a_quantized_variant_is_another_question() -> None:
    variant = Quantization(method="dynamic", evaluation_uri="pvc://data/rows.npz")

    assert identity.options_of(TASK, None) != identity.options_of(TASK, variant)

"""The check for what is fetched: it finds a lock without hashes, an install that asks for none, and a base image by tag alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from dev.lint import pins
from dev.lint.pins import careless, faults, unpinned, without_hash
from dev.lock import LOCKS, Lock, write

HASH = "--hash=sha256:" + "a" * 64
IMAGE = "python:3.13-slim@sha256:" + "b" * 64


def test_the_checkout_is_pinned() -> None:
    assert list(faults(pins.ROOT)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"a==1 \\\n    {HASH}\n    # via b\n", 0),
        (f"# a comment\na==1 ; python_version < '3.12' \\\n    {HASH} \\\n    {HASH}\n", 0),
        ("a==1\n", 1),
        ("a==1 # --hash=sha256:later\n", 1),
        (f"a==1 \\\n    {HASH}\nb==2\n", 1),
        (f"a==1 \\\n    {HASH[:-1]}\n", 1),
        (f"a>=1 {HASH}\n", 1),
        ("a @ https://files.example/a.whl\n", 1),
        ("--extra-index-url https://files.example\n", 1),
    ],
)
def test_a_requirement_without_a_hash_is_found(text: str, found: int) -> None:
    assert len(list(without_hash("r.txt", text))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"ARG BASE_IMAGE={IMAGE}\nFROM ${{BASE_IMAGE}} AS deps\nFROM deps\n", 0),
        ("ARG BASE_IMAGE=python:3.13-slim\nFROM ${BASE_IMAGE}\n", 1),
        ("ARG BASE_IMAGE=python@sha256:abc\nFROM ${BASE_IMAGE}\n", 1),
        ("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n", 1),
        ("FROM debian:13\n", 1),
        (f"FROM {IMAGE}\nCOPY --from=alpine:3 /bin/sh /sh\n", 1),
        (f"FROM {IMAGE}\nRUN pip install -r requirements.txt\n", 1),
        (f"FROM {IMAGE}\nARG HASHES=--require-hashes\nRUN pip install ${{HASHES}} -r requirements.txt\n", 0),
        (f"FROM {IMAGE}\nARG HASHES=\nRUN pip install ${{HASHES}} -r requirements.txt\n", 1),
    ],
)
def test_a_base_image_by_tag_and_an_install_without_hashes_are_found(text: str, found: int) -> None:
    assert len(list(unpinned("Containerfile", text))) == found


def test_an_install_by_an_argument_list_is_found() -> None:
    assert list(careless("a.py", 'run("uv", "pip", "install", "x")\n')) == ["a.py:1: installs without --require-hashes"]
    assert list(careless("a.py", 'run("uv", "pip", "install", "--require-hashes", "-r", "x.txt")\n')) == []


def test_a_requirements_file_that_no_one_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "LOCKS", LOCKS[1:])

    assert [line.split(":")[0] for line in faults(pins.ROOT)] == [LOCKS[0].path]


def test_an_install_refuses_other_bytes_than_the_lock_says(tmp_path: Path) -> None:
    """A mirror that is not what it claims to be, or a package that was published anew under its version."""
    wheel = tmp_path / "wheels" / "a-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"PK\x05\x06" + bytes(18))
    (tmp_path / "requirements.txt").write_text(f"a==1 {HASH}\n")
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(wheel.parent), "--require-hashes"]

    done = subprocess.run(
        [*command, "--target", str(tmp_path / "out"), "-r", str(tmp_path / "requirements.txt")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr


def test_locking_keeps_the_comment_at_the_top_and_takes_pins_without_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"# why it is here\n# and what for\na==1 \\\n    {HASH}\nb==2 ; python_version < '3.12' \\\n    {HASH}\n")
    asked = []

    def compiled(*command: object, **given: object) -> subprocess.CompletedProcess[str]:
        asked.append(given["input"])
        return subprocess.CompletedProcess([], 0, f"a==1 \\\n    {HASH}\n", "")

    monkeypatch.setattr(subprocess, "run", compiled)

    write(tmp_path, Lock("list.txt"))

    assert asked == ["a==1\nb==2 ; python_version < '3.12'\n"]
    assert path.read_text() == f"# why it is here\n# and what for\na==1 \\\n    {HASH}\n"

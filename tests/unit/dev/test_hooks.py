"""The git hooks, in a repository of their own."""

import subprocess
from pathlib import Path

import pytest
import yaml

from dev.console import DevError
from dev.lint import hooks
from dev.lint.hooks import CONFIG, STAGES, install, run

CONFIGURATION = """
repos:
  - repo: local
    hooks:
      - {id: python, name: python, entry: "./record python", language: system, types: [python]}
      - {id: whole, name: whole, entry: "./record whole", language: system, pass_filenames: false}
      - {id: subject, name: subject, entry: "./record subject", language: system, stages: [commit-msg]}
"""


@pytest.fixture(autouse=True)
def _without_pre_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    # A hook that runs these tests has git's variables, which point to another repository.
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setattr("shutil.which", lambda _: None)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / CONFIG).write_text(CONFIGURATION)
    record = tmp_path / "record"
    record.write_text('#!/bin/sh\necho "$@" >> recorded\n[ ! -e fail ]\n')
    record.chmod(0o755)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def recorded(repository: Path) -> list[str]:
    file = repository / "recorded"
    return file.read_text().splitlines() if file.exists() else []


def test_what_is_staged_is_given_to_the_hooks_that_take_files(repository: Path) -> None:
    for name in ("a.py", "b.md", "c.py"):
        (repository / name).touch()
    git(repository, "add", "a.py", "b.md")

    assert run(repository, "pre-commit", []) == 0
    assert recorded(repository) == ["python a.py", "whole"]


def test_hooks_for_python_are_left_out_when_no_python_is_staged(repository: Path) -> None:
    (repository / "b.md").touch()
    git(repository, "add", "b.md")

    assert run(repository, "pre-commit", []) == 0
    assert recorded(repository) == ["whole"]


def test_the_message_is_given_to_the_hook_for_it(repository: Path) -> None:
    assert run(repository, "commit-msg", ["MESSAGE"]) == 0
    assert recorded(repository) == ["subject MESSAGE"]


def test_one_hook_that_fails_ends_the_commit_and_the_others_run_all_the_same(repository: Path) -> None:
    (repository / "fail").touch()
    (repository / "a.py").touch()
    git(repository, "add", "a.py")

    assert run(repository, "pre-commit", []) == 1
    assert recorded(repository) == ["python a.py", "whole"]


def test_hooks_are_written_for_both_stages_and_written_again(repository: Path) -> None:
    for _ in range(2):
        install(repository)

    for stage in STAGES:
        hook = repository / ".git" / "hooks" / stage
        assert f"hooks run {stage}" in hook.read_text()
        assert hook.stat().st_mode & 0o111


@pytest.mark.parametrize("stage", STAGES)
def test_a_hook_of_somebody_else_is_left_alone(repository: Path, stage: str) -> None:
    folder = repository / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    (folder / stage).write_text("#!/bin/sh\ntheirs\n")

    with pytest.raises(DevError, match="is not ours"):
        install(repository)

    assert [(folder / one).exists() and "theirs" in (folder / one).read_text() for one in STAGES] == [
        one == stage for one in STAGES
    ]


def test_hooks_that_git_is_told_to_find_elsewhere_are_left_alone(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", "/elsewhere")

    with pytest.raises(DevError, match="hooksPath"):
        install(repository)


def test_a_hook_that_would_be_downloaded_is_refused(repository: Path) -> None:
    (repository / CONFIG).write_text("repos: [{repo: https://example.invalid/x, rev: v1, hooks: [{id: x}]}]\n")

    with pytest.raises(DevError, match="x is not a local hook"):
        run(repository, "commit-msg", [])


def test_this_checkout_has_hooks_for_all_that_lint_checks() -> None:
    entries = [hook["entry"] for stage in STAGES for hook in hooks.hooks(hooks.ROOT, stage)]

    for tool in (
        "ruff check",
        "ruff format --check",
        "mypy",
        "lint-imports",
        "dev.lint.words",
        "dev.lint.pins",
        "dev.lint.subject",
    ):
        assert any(tool in entry for entry in entries), tool
    assert yaml.safe_load((hooks.ROOT / CONFIG).read_text())["default_install_hook_types"] == list(STAGES)

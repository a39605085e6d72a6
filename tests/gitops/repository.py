"""A Git repository on this machine: a bare one that others read by file://, and commits to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.client import Raw

# Nothing of the machine's own Git: neither hooks nor signatures.
_ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass(frozen=True)
class Repository:
    """The work tree, beside which the bare repository is."""

    tree: Path

    @property
    def url(self) -> str:
        """Where others read it."""
        return f"file://{self._bare}"

    @property
    def _bare(self) -> Path:
        return self.tree.with_suffix(".git")

    def create(self) -> Repository:
        """Make both."""
        _git(self.tree.parent, "init", "--quiet", "--bare", "--initial-branch=main", str(self._bare))
        _git(self.tree.parent, "clone", "--quiet", str(self._bare), str(self.tree))
        _git(self.tree, "config", "user.name", "somebody")
        _git(self.tree, "config", "user.email", "somebody@example.com")
        return self

    def write(self, path: str, *objects: Raw) -> None:
        """A file of manifests; without objects it goes."""
        target = self.tree / path
        if not objects:
            target.unlink()
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(yaml.safe_dump_all(objects))

    def copy(self, source: Path, path: str) -> Path:
        """A folder of the checkout, in the place of what was there."""
        target = self.tree / path
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        return target

    def commit(self, subject: str, files: Mapping[str, tuple[Raw, ...]] | None = None) -> str:
        """Commit and push all there is, these files first; return the revision."""
        for path, objects in (files or {}).items():
            self.write(path, *objects)
        _git(self.tree, "add", "--all")
        _git(self.tree, "commit", "--quiet", "--allow-empty", "--message", subject)
        _git(self.tree, "push", "--quiet", "origin", "HEAD:main")
        return _git(self.tree, "rev-parse", "HEAD").strip()


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, env=_ENVIRONMENT, capture_output=True, text=True, check=True).stdout

"""kubectl inference as the real Krew installs it: the archive and the manifest of `make plugin`, and kubectl that finds the plug-in."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from dev import plugin, tools
from dev.lint.version import source_version

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    os.environ.get("INFERENCE_KREW") != "all", reason="INFERENCE_KREW=all freezes the plug-in and builds Krew"
)
VERSION = source_version(plugin.ROOT)
URL = f"https://example.com/v{VERSION}"


@dataclass(frozen=True, slots=True)
class Release:
    """What a release puts at its address: an archive, and the manifest that names it."""

    archive: Path
    manifest: Path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release(*plugin.build(tmp_path_factory.mktemp("plugin"), URL))


@dataclass(frozen=True, slots=True)
class Machine:
    """Somebody's machine: a Krew with an empty index, and a kubectl beside it that finds what Krew has installed."""

    root: Path

    def run(self, *command: str, code: int = 0) -> str:
        """The output of a command, errors too."""
        # What the plug-in brings along must do: neither this environment nor its Python are there.
        home = {"HOME": str(self.root), "KREW_ROOT": str(self.root / "krew"), "KUBECONFIG": str(self.root / "none")}
        path = {"PATH": f"{self.root}/bin:{self.root}/krew/bin:/usr/bin:/bin"}
        done = subprocess.run(
            command, env={**home, **path}, cwd=self.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        assert done.returncode == code, done.stdout
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(tools.kubectl())
    (tmp_path / "bin" / "kubectl-krew").symlink_to(tools.ensure("krew") / "krew")
    made = Machine(tmp_path)
    # Krew asks for an index, also of who installs without one.
    index = tmp_path / "index"
    (index / "plugins").mkdir(parents=True)
    (index / "plugins" / "none").touch()
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false")
    for words in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "-m", "Begin")):
        made.run("git", "-C", str(index), *words)
    made.run("kubectl", "krew", "index", "add", "default", f"file://{index}")
    return made


def test_krew_finds_no_fault_with_the_manifest(release: Release, machine: Machine) -> None:
    checker = str(tools.ensure("krew") / "validate-krew-manifest")

    assert "structural validation OK" in machine.run(checker, "-skip-install", "-manifest", str(release.manifest))


def test_the_plugin_is_installed_found_and_removed(release: Release, machine: Machine) -> None:
    machine.run("kubectl", "krew", "install", f"--manifest={release.manifest}", f"--archive={release.archive}")

    assert machine.run("kubectl", "krew", "list") == "detached/inference\n", "of no index"
    told = machine.run("kubectl", "inference", "version")
    assert f"client: {VERSION}" in told and "No configuration found" in told
    assert "Usage: kubectl inference" in machine.run("kubectl", "inference", "--help")
    job = yaml.safe_load(machine.run("kubectl", "inference", "submit", "j", "--model", "m", "--dry-run", "client"))
    assert job["spec"] == {"model": "m"}
    assert "kubectl-inference" in machine.run("kubectl", "plugin", "list")
    machine.run("kubectl", "krew", "uninstall", "inference")
    assert "unknown command" in machine.run("kubectl", "inference", "version", code=1)


def test_an_archive_that_is_another_is_refused(release: Release, machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / release.archive.name
    other.write_bytes(release.archive.read_bytes()[:-1] + b"\0")

    assert "checksum does not match" in machine.run(
        "kubectl", "krew", "install", f"--manifest={release.manifest}", f"--archive={other}", code=1
    )
    assert "unknown command" in machine.run("kubectl", "inference", "version", code=1)

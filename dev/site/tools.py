"""mkdocs and mike, installed when missing."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.cache import cache_root, digest, locked
from dev.console import DevError, heartbeat, say
from dev.venv import install

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "dev" / "requirements-site.txt"
# Whatever mkdocs warns of ends the build: a link that leads nowhere, a page that is not in the navigation.
BUILD = ("build", "--strict", "--clean")


def ensure() -> Path:
    """The folder of mkdocs, its theme and mike."""
    folder = cache_root() / "mkdocs" / digest([REQUIREMENTS.read_bytes(), sys.version.encode()])
    with locked("mkdocs"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say("fetching mkdocs")
            with heartbeat("fetching mkdocs"):
                install(REQUIREMENTS, folder)
            (folder / "complete").touch()
    return folder


def run(program: str, *arguments: str, folder: Path) -> None:
    """Run one of them in a folder with a mkdocs.yml. Raises DevError."""
    installed = ensure()
    with tempfile.TemporaryDirectory() as here:
        # mike starts mkdocs by its name; the installed one names the Python of whichever checkout was first.
        mkdocs = Path(here) / "mkdocs"
        mkdocs.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mkdocs "$@"\n')
        mkdocs.chmod(0o755)
        # What mkdocs says of its successor stands in requirements-site.txt.
        environment = {**os.environ, "PYTHONPATH": str(installed), "NO_MKDOCS_2_WARNING": "1"}
        environment["PATH"] = f"{here}{os.pathsep}{os.environ['PATH']}"
        command = [sys.executable, str(installed / "bin" / program), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, check=False)
    if done.returncode != 0:
        raise DevError("the site was not built: mend what stands above")

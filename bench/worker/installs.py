"""What only this benchmark needs, each in a folder of its own in the cache: peers' environments, the reference client, programs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dev.cache import cache_root, digest, locked
from dev.console import DevError, heartbeat, say
from dev.packages import ensure_packages
from dev.pip_config import uv_environment

HERE = Path(__file__).resolve().parent
VEGETA = "github.com/tsenart/vegeta/v12@v12.13.0"
_PROGRAMS = {"wrk": "wrk", "h2load": "nghttp2-client", "taskset": "util-linux"}


def environment(requirements: Path) -> Path:
    """The virtual environment with exactly these packages; built when missing. Raises DevError."""
    name = requirements.stem
    folder = _folder(name, requirements)
    with locked(f"bench-{name}"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say(f"building the environment of {name}")
            with heartbeat(f"the environment of {name}"):
                _run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", os.path.realpath(sys.executable), str(folder))
                python = str(folder / "bin" / "python")
                # Every file lists all that is needed, so that nothing is left to a resolver's mood.
                _run(*_UV_INSTALL, "--python", python, "--requirement", str(requirements))
            (folder / "complete").touch()
    return folder


def packages(requirements: Path) -> Path:
    """A folder with just these packages' files, without an interpreter. Raises DevError."""
    folder = _folder(requirements.stem, requirements)
    with locked(f"bench-{requirements.stem}"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say(f"fetching {requirements.stem}")
            _run(*_UV_INSTALL, "--target", str(folder), "--requirement", str(requirements))
            (folder / "complete").touch()
    return folder


_UV_INSTALL = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes")


def _folder(name: str, requirements: Path) -> Path:
    return cache_root() / "bench" / f"{name}-{digest([requirements.read_bytes(), sys.version.encode()])}"


def vegeta() -> Path:
    """The reference client, built from its Go module. Raises DevError."""
    folder = cache_root() / "bench" / f"vegeta-{digest([VEGETA.encode()])}"
    program = folder / "vegeta"
    go = shutil.which("go")
    with locked("bench-vegeta"):
        if not program.exists():
            if go is None:
                raise DevError("the Go toolchain is needed to build vegeta")
            folder.mkdir(parents=True, exist_ok=True)
            say("building vegeta")
            with heartbeat("the build of vegeta"):
                _run("nice", go, "install", VEGETA, GOBIN=str(folder), CGO_ENABLED="0", GOWORK="off")
    return program


def programs() -> None:
    """Make sure that the load generators written in C are there."""
    ensure_packages(tuple(package for program, package in _PROGRAMS.items() if shutil.which(program) is None))


def _run(*command: str, **variables: str) -> None:
    everything = {**os.environ, **uv_environment(), **variables}
    result = subprocess.run(command, env=everything, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevError(f"{' '.join(command[:6])} ... failed:\n{result.stderr[-2000:]}")

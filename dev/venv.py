"""`python3 -m dev.venv`: the environment locked in dev/requirements.txt, linked as .venv. `make lock` writes the locks.

With INFERENCE_ENGINES=all it has PyTorch too (dev/requirements-torchscript.txt, 5 GB).

Its name in the cache is made of the lock and the Python version, so that switching between
two states of the checkout switches between two environments instead of rebuilding one.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from dev.cache import cache_root, digest, locked
from dev.console import DevError, heartbeat, run_main, say
from dev.packages import ensure_packages
from dev.pip_config import uv_environment

_HERE = Path(__file__).resolve().parent
_UV = _HERE / "requirements-uv.txt"
# Wheels alone: building from source would run what no hash covers.
_STRICT = ("--require-hashes", "--only-binary", ":all:")
_LINK = _HERE.parent / ".venv"


def ensure_venv() -> Path:
    """Return the environment, built when missing; .venv points to it afterwards."""
    locks = (_HERE / "requirements.txt", *((_HERE / "requirements-torchscript.txt",) if all_engines() else ()))
    folder = cache_root() / "venv" / digest([*(lock.read_bytes() for lock in (_UV, *locks)), sys.version.encode()])
    # Scripts contain their environment's path: it is built in place, and a mark says it is whole.
    mark = folder / "complete"
    with locked("venv"):
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _build(folder, locks)
            mark.touch()
        _link(folder)
    return folder


def all_engines() -> bool:
    """Whether PyTorch and tritonserver are asked for, which take gigabytes and minutes to fetch."""
    return os.environ.get("INFERENCE_ENGINES") == "all"


def _build(folder: Path, locks: tuple[Path, ...]) -> None:
    say(f"building the development environment {folder}")
    if importlib.util.find_spec("ensurepip") is None:
        ensure_packages(("python3-venv",))
    python = str(folder / "bin" / "python")
    with heartbeat("the development environment"):
        _run(sys.executable, "-m", "venv", str(folder))
        _run(python, "-m", "pip", "install", "--quiet", *_STRICT, "-r", str(_UV))
        for lock in locks:
            _run(python, "-m", "uv", "pip", "install", "--quiet", "--no-deps", *_STRICT, "--python", python, "-r", str(lock))


def _link(folder: Path) -> None:
    if _LINK.is_symlink() and _LINK.readlink() == folder:
        return
    if _LINK.exists() and not _LINK.is_symlink():
        raise DevError(f"{_LINK} is not a link of ours; remove it")
    scratch = _LINK.with_name(f".venv-{os.getpid()}")
    scratch.symlink_to(folder)
    scratch.rename(_LINK)


def run_uv(*arguments: str) -> None:
    """Run uv with the machine's own package sources. Raises DevError."""
    _run(sys.executable, "-m", "uv", *arguments)


def install(requirements: Path, folder: Path) -> None:
    """Install locked wheels, and nothing that they depend on, into a folder of their own. Raises DevError."""
    run_uv("pip", "install", "--quiet", "--no-deps", *_STRICT, "--target", str(folder), "--requirement", str(requirements))


def _run(*command: str) -> None:
    environment = {**os.environ, **uv_environment()}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevError(f"{' '.join(command)} failed:\n{result.stderr[-3000:]}")


def main() -> int:
    """Build and print the environment's path."""
    print(ensure_venv())
    return 0


if __name__ == "__main__":
    run_main(main)

"""`python -m dev.lock [--upgrade] [PACKAGE ...]`: write the locked requirements, with the hashes of every platform's files.

Versions stay, but those of the packages that are named, or of all with --upgrade. A file that is a list of its own keeps its
versions: edit them there. Hashes come from the package index, and never from a folder of wheels of this machine.
"""

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dev.console import DevError, run_main, say
from dev.pip_config import uv_environment

ROOT = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z,]+\])?==[^ \\]+( *;[^\\]*)?", re.MULTILINE)
_OPERATOR, _WORKER = "operator/requirements.txt", "worker-image/requirements.txt"


@dataclass(frozen=True, slots=True)
class Lock:
    """A file of requirements; `arguments` make it from `source`. Without any it is a list of its own."""

    path: str
    arguments: tuple[str, ...] = ()
    source: str = "pyproject.toml"
    # Of an index that may be out of reach; the file stays as it is then.
    index: str = ""


LOCKS = (
    Lock(_OPERATOR, ("--extra", "operator")),
    Lock(_WORKER, ("--extra", "worker")),
    Lock("worker-image/requirements-quantize.txt", ("--extra", "worker", "--extra", "quantize", "-c", _WORKER)),
    Lock(
        "worker-image/requirements-gpu.txt",
        ("--extra", "worker", "--extra", "gpu", "--no-emit-package", "onnxruntime", "-c", _WORKER),
    ),
    Lock("dev/requirements.txt", ("--extra", "operator", "--extra", "worker", "--extra", "dev", "-c", _OPERATOR, "-c", _WORKER)),
    # What the plug-in is released with is what its tests have run with.
    Lock("client/requirements.txt", ("-c", "dev/requirements.txt"), source="client/pyproject.toml"),
    Lock("dev/requirements-plugin.txt"),
    Lock("dev/requirements-uv.txt"),
    Lock("dev/requirements-envoy.txt"),
    Lock("dev/requirements-s3fs.txt"),
    Lock("dev/requirements-site.txt"),
    Lock("dev/requirements-torchscript.txt"),
    Lock("worker-image/requirements-triton.txt"),
    Lock("worker-image/requirements-torchscript.txt", index="https://download.pytorch.org/whl/cpu"),
    Lock("tests/fuzz/requirements.txt"),
    Lock("bench/tensors/flight.txt"),
    *(Lock(f"bench/worker/{name}.txt") for name in ("client", "models")),
    *(Lock(f"bench/worker/peers/{name}.txt") for name in ("kserve", "litserve", "mlserver", "mosec", "triton")),
)


def write(root: Path, lock: Lock, upgrades: tuple[str, ...] = ()) -> None:
    """Write one file anew. Raises DevError."""
    path = root / lock.path
    before = path.read_text()
    if lock.arguments:
        # What is there stays: uv prefers the versions that it finds in its output.
        _uv(root, lock.source, *lock.arguments, *upgrades, "--output-file", lock.path)
        made = path.read_text()
    else:
        pins = "".join(f"{match[0].strip()}\n" for match in _PIN.finditer(before))
        index = ("--extra-index-url", lock.index, "--index-strategy", "unsafe-best-match") if lock.index else ()
        made = _uv(root, "-", "--no-deps", "--no-annotate", *index, given=pins)
        if lock.index:
            made = f"--extra-index-url {lock.index}\n{made}"
    path.write_text(_head(before) + made.removeprefix(_head(made)))


def _head(text: str) -> str:
    """The comment at the top."""
    return text[: len(text) - len(re.sub(r"\A(#.*\n)+", "", text))]


def _uv(root: Path, *arguments: str, given: str = "") -> str:
    command = (
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--no-header",
        "--generate-hashes",
        *arguments,
    )
    environment = {**os.environ, **uv_environment()}
    environment.pop("UV_FIND_LINKS", None)
    done = subprocess.run(command, cwd=root, env=environment, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DevError(f"uv pip compile {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def main() -> int:
    """Write all files; 1 when one could not be written."""
    parser = argparse.ArgumentParser(prog="python -m dev.lock", description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions of all packages")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="take the newest version of these alone")
    given = parser.parse_args()
    upgrades = ("--upgrade",) if given.upgrade else tuple(f"--upgrade-package={name}" for name in given.packages)
    failed = 0
    for lock in LOCKS:
        try:
            write(ROOT, lock, upgrades)
        except DevError as error:
            failed = 1
            say(f"{lock.path} stays as it is: {error}")
    return failed


if __name__ == "__main__":
    run_main(main)

"""The local stand-in for `python:3.13-slim`: Debian trixie with its own Python."""

import subprocess
from pathlib import Path

from dev.cache import cache_root, digest, locked, published
from dev.console import DevError, heartbeat, say
from dev.images.buildah import Buildah
from dev.venv import all_engines

# Wheels with C++ code expect libstdc++ from the system; Debian itself has it because of apt.
# Python as a library is Triton's: its models run in an interpreter that is embedded.
_PACKAGES = "python3-minimal,python3-venv,ca-certificates,libstdc++6" + (",libpython3.13" if all_engines() else "")
_SUITE = "trixie"
_EXCLUDED = ("doc", "info", "locale", "man", "lintian")
_CONTAINERFILE = "FROM scratch\nADD base.tar /\n"


def ensure_base(buildah: Buildah) -> str:
    """Return the name of the base image, built and loaded when missing."""
    command = _command()
    tag = digest([word.encode() for word in command])
    name = f"localhost/inference-base:{tag}"
    with locked("image-base"):
        if not buildah.has(name):
            folder = cache_root() / "images" / f"base-{tag}"
            if not folder.is_dir():
                _bootstrap(command, folder)
            buildah.build(name, context=folder, containerfile=folder / "Containerfile")
    return name


def _command() -> list[str]:
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _EXCLUDED]
    return ["mmdebstrap", "--variant=essential", f"--include={_PACKAGES}", *excluded, _SUITE]


def _bootstrap(command: list[str], folder: Path) -> None:
    say(f"building the base image from Debian {_SUITE}")
    with published(folder) as scratch, heartbeat("mmdebstrap"):
        (scratch / "Containerfile").write_text(_CONTAINERFILE)
        target = str(scratch / "base.tar")
        result = subprocess.run([*command, target], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise DevError(f"mmdebstrap failed:\n{result.stderr[-2000:]}")

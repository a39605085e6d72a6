"""The local stand-ins for `python:3.13-slim` and older ones: Debian with its own Python."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.cache import cache_root, digest, locked, published
from dev.console import DevError, heartbeat, say
from dev.images.buildah import Buildah

# Wheels with C++ code expect libstdc++ from the system; Debian itself has it because of apt.
_PACKAGES = ("python3-minimal", "python3-venv", "ca-certificates", "libstdc++6", "locales")
_EXCLUDED = ("doc", "info", "locale", "man", "lintian")
# What the Containerfiles make of the package locales, for which they have no apt here; its sources are three times the rest.
_LOCALES = (
    'for name in en_US en_US.UTF-8; do chroot "$1" localedef -i en_US -f UTF-8 "$name"; done',
    'rm -rf "$1/usr/share/i18n"',
)
_CONTAINERFILE = "FROM scratch\nADD base.tar /\n"


@dataclass(frozen=True, slots=True)
class Base:
    """A release of Debian, which decides the version of Python, and packages beside the usual ones."""

    suite: str = "trixie"
    packages: tuple[str, ...] = ()


def ensure_base(buildah: Buildah, base: Base) -> str:
    """Return the name of the base image, built and loaded when missing."""
    command = _command(base)
    tag = digest([word.encode() for word in command])
    name = f"localhost/inference-base:{tag}"
    with locked("image-base"):
        if not buildah.has(name):
            folder = cache_root() / "images" / f"base-{tag}"
            if not folder.is_dir():
                _bootstrap(command, folder, base.suite)
            buildah.build(name, context=folder, containerfile=folder / "Containerfile")
    return name


def _command(base: Base) -> list[str]:
    packages = ",".join((*_PACKAGES, *base.packages))
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _EXCLUDED]
    locales = [f"--customize-hook={line}" for line in _LOCALES]
    return ["mmdebstrap", "--variant=essential", f"--include={packages}", *excluded, *locales, base.suite]


def _bootstrap(command: list[str], folder: Path, suite: str) -> None:
    say(f"building the base image from Debian {suite}")
    with published(folder) as scratch, heartbeat("mmdebstrap"):
        (scratch / "Containerfile").write_text(_CONTAINERFILE)
        target = str(scratch / "base.tar")
        result = subprocess.run([*command, target], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise DevError(f"mmdebstrap failed:\n{result.stderr[-2000:]}")

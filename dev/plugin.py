"""`python -m dev.plugin --url URL`: kubectl inference as Krew installs it, in build/plugin: an archive, and its manifest.

PyInstaller freezes the plug-in with its Python, for the platform that this runs on: Krew knows no Python packages. The versions are
those of client/requirements.txt, which `make lock` writes.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

from dev.console import DevError, heartbeat, run_main, say
from dev.lint.version import source_version
from dev.pip_config import uv_environment

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "client"
TEMPLATE = CLIENT / "krew" / "inference.yaml"
NAME = "kubectl-inference"
LOCKS = ("client/requirements.txt", "dev/requirements-plugin.txt")
_STRICT = ("--require-hashes", "--only-binary", ":all:")
_PLATFORM = "linux-amd64"


def manifest(template: str, *, version: str, url: str, archive: str, digest: str) -> str:
    """The plug-in's manifest for Krew."""
    place = _PLATFORM.upper().replace("-", "_")
    values = {
        f"URI_{place}": f"{url.rstrip('/')}/{archive}",
        f"SHA256_{place}": digest,
        "VERSION": version,
        "homepage: URL": f"homepage: {url}",
    }
    for name, value in values.items():
        template = template.replace(name, value)
    return "".join(line for line in template.splitlines(keepends=True) if not line.startswith("#"))


def freeze(folder: Path) -> Path:
    """The plug-in with all that it needs, as a folder. Raises DevError."""
    environment = folder / "venv"
    venv.create(environment, clear=True)
    python = str(environment / "bin" / "python")
    for lock in LOCKS:
        _run(
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            *_STRICT,
            "--python",
            python,
            "-r",
            str(ROOT / lock),
        )
    # What an entry point does: PyInstaller begins with a script.
    script = folder / "launch.py"
    script.write_text("from kubectl_inference.__main__ import main\n\nmain()\n")
    options = ("--noconfirm", "--log-level", "ERROR", "--onedir", "--name", NAME, "--paths", str(CLIENT))
    # Modules that are only named while it runs.
    hidden = ("--collect-data", "inference_client", "--collect-submodules", "kubernetes.client")
    places = ("--distpath", str(folder / "dist"), "--workpath", str(folder / "work"), "--specpath", str(folder))
    with heartbeat("the frozen plug-in"):
        _run(python, "-m", "PyInstaller", *options, *hidden, *places, str(script))
    return folder / "dist" / NAME


def pack(frozen: Path, archive: Path) -> str:
    """Write the archive; returns its digest in hex."""
    # Krew unpacks no links, of which a frozen folder has some between its libraries.
    with tarfile.open(archive, "w:gz", dereference=True) as target:
        target.add(frozen, NAME)
        target.add(ROOT / "LICENSE", "LICENSE")
    with archive.open("rb") as made:
        return hashlib.file_digest(made, "sha256").hexdigest()


def build(folder: Path, url: str) -> tuple[Path, Path]:
    """Write the archive and the manifest for a release at a URL; returns both. Raises DevError."""
    version = source_version(ROOT)
    archive, made = folder / f"{NAME}-{version}-{_PLATFORM}.tar.gz", folder / TEMPLATE.name
    digest = pack(freeze(folder), archive)
    made.write_text(manifest(TEMPLATE.read_text(), version=version, url=url, archive=archive.name, digest=digest))
    say(f"sha256 {digest}")
    return archive, made


def _run(*command: str) -> None:
    done = subprocess.run(command, env={**os.environ, **uv_environment()}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevError(f"{' '.join(command[:4])} failed:\n{done.stderr[-3000:]}")


def main() -> int:
    """Build both, and print where they are."""
    parser = argparse.ArgumentParser(prog="python -m dev.plugin", description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="where the archive of this release will be, for example https://HOST/vVERSION")
    url = parser.parse_args().url
    folder = ROOT / "build" / "plugin"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(*build(folder, url), sep="\n")
    return 0


if __name__ == "__main__":
    run_main(main)

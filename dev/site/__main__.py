"""`python -m dev.site [ARGUMENT ...]`: build the site into build/site; arguments are those of mkdocs, such as `serve`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dev.cache import cache_root, digest, locked
from dev.console import DevError, heartbeat, run_main, say
from dev.venv import install

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "dev" / "requirements-site.txt"
# Whatever mkdocs warns of ends the build: a link that leads nowhere, a page that is not in the navigation.
BUILD = ("build", "--strict", "--clean")


def ensure_mkdocs() -> Path:
    """The folder of mkdocs and its theme, installed when missing."""
    folder = cache_root() / "mkdocs" / digest([REQUIREMENTS.read_bytes(), sys.version.encode()])
    with locked("mkdocs"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say("fetching mkdocs")
            with heartbeat("fetching mkdocs"):
                install(REQUIREMENTS, folder)
            (folder / "complete").touch()
    return folder


def main() -> int:
    """Run mkdocs; 1 when it fails."""
    # What it says of its successor stands in requirements-site.txt.
    environment = {**os.environ, "PYTHONPATH": str(ensure_mkdocs()), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, "-m", "mkdocs", *(sys.argv[1:] or BUILD)], cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        raise DevError("the site was not built: mend what stands above")
    return 0


if __name__ == "__main__":
    run_main(main)

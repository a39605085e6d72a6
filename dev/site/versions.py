"""The site of all releases, kept by mike on a branch: a folder a version, and the list of them for the theme's selector."""

import re
from pathlib import Path

from dev.console import DevError
from dev.site.tools import BUILD, run

BRANCH = "gh-pages"
LATEST = "latest"
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")


def add(version: str, folder: Path) -> None:
    """Commit the site of a checkout as a version to the branch; nothing is pushed. Raises DevError."""
    if _VERSION.fullmatch(version) is None:
        raise DevError(f"{version!r} is no version: write for example 0.2.0 or 0.2.0-rc.1")
    # mike doesn't ask mkdocs to be strict.
    run("mkdocs", *BUILD, folder=folder)
    # Copies, since neither links nor redirects work on each host, and in a folder.
    run("mike", "deploy", "--branch", BRANCH, "--alias-type", "copy", "--update-aliases", version, *names(version), folder=folder)
    if names(version):
        run("mike", "set-default", "--branch", BRANCH, LATEST, folder=folder)


def names(version: str) -> tuple[str, ...]:
    """The other names of a version: readers who name none get the latest, which is no release candidate."""
    return () if "-" in version else (LATEST,)

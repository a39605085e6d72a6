"""`python3 -m dev.lint.version [VERSION]`: check that every place names one version, or write a new one.

pyproject.toml is the source. The chart, the packages and the pages' image names follow; `make test` compares them.
"""

import argparse
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from dev.console import DevError, run_main

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "pyproject.toml"
# Semantic Versioning, as far as Helm, git and Python agree on it.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-rc\.[1-9]\d*)?")
_ANY = r"(?P<version>[0-9][^\s\"`']*)"
# Each stands there exactly once.
PLACES = (
    (SOURCE, rf'^version = "{_ANY}"$'),
    ("charts/inference-operator/Chart.yaml", rf"^version: {_ANY}$"),
    ("charts/inference-operator/Chart.yaml", rf"^appVersion: {_ANY}$"),
    ("operator/inference_operator/__init__.py", rf'^__version__ = "{_ANY}"$'),
    ("worker-image/inference_worker/__init__.py", rf'^__version__ = "{_ANY}"$'),
    ("client/pyproject.toml", rf'^version = "{_ANY}"$'),
    ("client/inference_client/__init__.py", rf'^__version__ = "{_ANY}"$'),
)
# Wherever a page names an image of ours with a version.
IMAGE = rf"/inference-(?:operator|worker|worker-torch|triton):{_ANY}"
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "charts/**/*.yaml")


def source_version(root: Path) -> str:
    """The version that pyproject.toml names."""
    found: str = tomllib.loads((root / SOURCE).read_text())["project"]["version"]
    return found


def differences(root: Path) -> list[str]:
    """The places that name another version than pyproject.toml, one line each. Raises DevError for a place without any."""
    wanted = source_version(root)
    return [
        f"{path} says {match['version']}, {SOURCE} says {wanted}" for path, match in _places(root) if match["version"] != wanted
    ]


def write(root: Path, version: str) -> list[str]:
    """Write the version everywhere; returns the files that have changed. Raises DevError, and then changes nothing."""
    if VERSION.fullmatch(version) is None:
        raise DevError(f"{version!r} is no version: write MAJOR.MINOR.PATCH, or MAJOR.MINOR.PATCH-rc.N")
    spans: dict[str, list[tuple[int, int]]] = {}
    for path, match in _places(root):
        spans.setdefault(path, []).append(match.span("version"))
    changed = []
    for path, found in spans.items():
        before = after = (root / path).read_text()
        # From the end, so that what is replaced moves nothing that is still to come.
        for begin, end in sorted(found, reverse=True):
            after = after[:begin] + version + after[end:]
        if after != before:
            (root / path).write_text(after)
            changed.append(path)
    return changed


def _places(root: Path) -> Iterator[tuple[str, re.Match[str]]]:
    for path, pattern in PLACES:
        found = list(re.finditer(pattern, (root / path).read_text(), re.MULTILINE))
        if len(found) != 1:
            raise DevError(f"{path} has {len(found)} lines like {pattern}, not one; correct it, or dev/lint/version.py")
        yield path, found[0]
    for page in sorted({page for glob in PAGES for page in root.glob(glob)}):
        for match in re.finditer(IMAGE, page.read_text()):
            yield page.relative_to(root).as_posix(), match


def main() -> int:
    """Check, or write; 1 when places differ."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.lint.version", description=__doc__.splitlines()[0])
    parser.add_argument("version", nargs="?", metavar="VERSION", help="write this one; without it, check")
    version = parser.parse_args().version
    if version is not None:
        for path in write(ROOT, version):
            print(path)
        return 0
    found = differences(ROOT)
    print("\n".join(found) or source_version(ROOT))
    return 1 if found else 0


if __name__ == "__main__":
    run_main(main)

"""`python3 -m dev.lint.pins`: check that all that is fetched is pinned by its content.

Locked requirements have hashes, each install asks for them, and base images have digests. A release is built from these files.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from dev.console import run_main
from dev.lock import LOCKS

ROOT = Path(__file__).resolve().parents[2]
# Files that may lack hashes until somebody whose machine reaches their index has run `make lock`.
WITHOUT_HASHES = ("worker-image/requirements-torchscript.txt",)
CONTAINERFILES = ("operator/Containerfile", *(f"worker-image/Containerfile{end}" for end in ("", ".gpu", ".triton")))
REQUIREMENTS = ("client", "dev", "operator", "worker-image", "tests/fuzz")
INSTALLS = ("dev/**/*.py", "tests/fuzz/*.py", "bench/**/*.py")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}(?![0-9a-f])")
_DIGEST = re.compile(r"[^@\s]+:[^@\s]+@sha256:[0-9a-f]{64}")
_STRICT = "--require-hashes"
# By argument lists of Python, or as a shell writes it.
_INSTALL = re.compile(r"""pip(?:\s|",\s*")install\b""")


def faults(root: Path) -> Iterator[str]:
    """What is not pinned, a line each."""
    yield from _unlisted(root)
    for lock in LOCKS:
        if lock.path not in WITHOUT_HASHES:
            yield from without_hash(lock.path, (root / lock.path).read_text())
    for path in CONTAINERFILES:
        yield from unpinned(path, (root / path).read_text())
    for script in sorted(script for glob in INSTALLS for script in root.glob(glob)):
        yield from careless(script.relative_to(root).as_posix(), script.read_text())


def without_hash(path: str, text: str) -> Iterator[str]:
    """The requirements of a lock that nothing ties to their content."""
    for line in text.replace("\\\n", " ").splitlines():
        requirement = line.split(" #")[0].strip()
        if not requirement or requirement.startswith("#"):
            continue
        if "==" not in requirement or _HASH.search(requirement) is None:
            yield f"{path}: {requirement.split()[0]} has no version with a hash; run make lock"


def unpinned(path: str, text: str) -> Iterator[str]:
    """The images that a Containerfile starts from without a digest, and its installs without hashes."""
    stages = set(re.findall(r"^FROM\s+\S+\s+AS\s+(\S+)", text, re.MULTILINE))
    bases = [(image, f"ARG BASE_IMAGE={image}") for image in re.findall(r"^ARG\s+BASE_IMAGE=?(\S*)", text, re.MULTILINE)]
    used = re.findall(r"^(?:FROM\s+|COPY\s+--from=)(\S+)", text, re.MULTILINE)
    bases += [(image, f"FROM {image}") for image in used if image not in {"${BASE_IMAGE}", "scratch", *stages}]
    for image, line in bases:
        if _DIGEST.fullmatch(image) is None:
            yield f"{path}: {line} names no digest; write NAME:TAG@sha256:DIGEST (RELEASING.md says how to find it)"
    # The switch that one lock needs counts, as long as it is on by default.
    switched = text.replace("${HASHES}", _STRICT) if f"ARG HASHES={_STRICT}\n" in text else text
    yield from careless(path, switched)


def careless(path: str, text: str) -> Iterator[str]:
    """The installs of a file that ask for no hashes, by line."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _INSTALL.search(line) is None or line.lstrip().startswith("#"):
            continue
        # A command goes on for a line or two; what it is made of may stand in a constant just before it.
        nearby = "\n".join(lines[max(0, number - 2) : number + 3])
        if _STRICT not in nearby and "_STRICT" not in nearby:
            yield f"{path}:{number + 1}: installs without {_STRICT}"


def _unlisted(root: Path) -> Iterable[str]:
    known = {lock.path for lock in LOCKS}
    found = {path.relative_to(root).as_posix() for folder in REQUIREMENTS for path in (root / folder).glob("requirements*.txt")}
    return [f"{path}: not in LOCKS of dev/lock.py, so that nothing keeps it" for path in sorted(found - known)]


def main() -> int:
    """Print what is found; 1 when anything is."""
    found = list(faults(ROOT))
    print("\n".join(found) or f"{len(LOCKS)} locks and {len(CONTAINERFILES)} Containerfiles are pinned")
    return 1 if found else 0


if __name__ == "__main__":
    run_main(main)

"""The index of what was made, and the decision to make it again; quick, since it is asked often."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

INDEX = "index.json"
SOURCES = Path(__file__).parent
SOURCE_TYPES = frozenset({".py", ".txt"})
CPU_INFO = Path("/proc/cpuinfo")
# A new version of any of these may give other bytes for the same sources.
TOOLS = ("magika", "numpy", "onnx", "onnxruntime", "pillow", "scikit-learn")


def build_all(folder: Path, trees: Sequence[Path]) -> bool:
    """Build everything in ``folder`` if anything is missing or stale; say whether it was.

    A change of sources, of tools or of the trees' names makes everything stale; a change inside
    a tree does not, since trees of real files change all the time.
    """
    recipe = hash_recipe(trees)
    if is_current(folder, recipe):
        return False
    # Here, not above: the libraries for training take longer to import than the answer "up to
    # date" takes to find.
    from examples.models.build import build_models

    models = build_models(folder, trees)
    found = (path for name in models for path in (folder / name).rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): hash_file(path) for path in found}
    write_index(folder, {"recipe": recipe, "models": models, "files": files})
    return True


def is_current(folder: Path, recipe: str) -> bool:
    """Say whether the index is of this recipe and every file in it is there, unchanged."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        made = index["recipe"] == recipe
        return made and all(hash_file(folder / path) == sha for path, sha in index["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # No index, half an index, or a file that is gone.
        return False


def hash_recipe(trees: Sequence[Path]) -> str:
    """Return the SHA-256 of all that decides the output: sources, tools' versions, processor, tree names."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in SOURCE_TYPES:
            digest.update(f"{path.name} {hash_file(path)}\n".encode())
    for tool in TOOLS:
        digest.update(f"{tool} {metadata.version(tool)}\n".encode())
    digest.update(read_cpu_features().encode())
    for tree in trees:
        digest.update(f"{tree.absolute()}\n".encode())
    return digest.hexdigest()


def read_cpu_features() -> str:
    """Return the processor's features, by which the tools choose how to add up; empty where the system does not tell."""
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_index(folder: Path, index: dict[str, Any]) -> None:
    """Put the index in place in one step, so that a cut-off build never looks finished."""
    draft = folder / f"{INDEX}.draft"
    draft.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(folder / INDEX)

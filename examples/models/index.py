"""Build everything once: the index of what was made, and the decision to make it again."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import threadpoolctl  # type: ignore[import-untyped,unused-ignore]

from examples.models import digits, lane, magika_model
from examples.models.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INDEX = "index.json"
SOURCES = Path(__file__).parent
SOURCE_TYPES = frozenset({".py", ".txt"})
# A new version of any of these may give other bytes for the same sources.
TOOLS = ("magika", "numpy", "onnx", "onnxruntime", "pillow", "scikit-learn")
LICENSES = {"digits": "Apache-2.0", "lane": "Apache-2.0", "magika": "Apache-2.0"}
DIGITS_SHOWN = 4


def build_all(folder: Path, trees: Sequence[Path]) -> bool:
    """Build what is missing or stale in ``folder``; return whether anything was done.

    A change of sources, of tools or of the trees' names makes everything stale; a change inside
    a tree does not, since trees of real files change all the time.
    """
    recipe = hash_recipe(trees)
    if is_current(folder, recipe):
        return False
    builders: dict[str, Callable[[Path], dict[str, float]]] = {
        "digits": digits.build,
        "lane": lane.build,
        "magika": lambda place: magika_model.build(place, trees),
    }
    models = {}
    # Sums that several threads share depend on how many there are, down to the last bit.
    with threadpoolctl.threadpool_limits(1):
        for name, builder in builders.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            measured = builder(folder / name)
            models[name] = describe(folder, name, measured)
    files = {path: hash_file(folder / path) for path in list_made(folder, builders)}
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


def describe(folder: Path, name: str, measured: dict[str, float]) -> dict[str, Any]:
    """Return a model's entry in the index."""
    path = folder / name / "model.onnx"
    return {
        "path": path.relative_to(folder).as_posix(),
        "sha256": hash_file(path),
        "bytes": path.stat().st_size,
        **Session(path).describe(),
        "license": LICENSES[name],
        "measured": {key: round(value, DIGITS_SHOWN) for key, value in measured.items()},
    }


def list_made(folder: Path, names: Sequence[str] | dict[str, Any]) -> list[str]:
    """Return the sorted paths of all files of the models, relative to ``folder``."""
    found = (path for name in names for path in (folder / name).rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def hash_recipe(trees: Sequence[Path]) -> str:
    """Return the SHA-256 of all that decides the output: sources, tools' versions, tree names."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in SOURCE_TYPES:
            digest.update(f"{path.name} {hash_file(path)}\n".encode())
    for tool in TOOLS:
        digest.update(f"{tool} {metadata.version(tool)}\n".encode())
    for tree in trees:
        digest.update(f"{tree.absolute()}\n".encode())
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_index(folder: Path, index: dict[str, Any]) -> None:
    """Put the index in place in one step, so that a cut-off build never looks finished."""
    draft = folder / f"{INDEX}.draft"
    draft.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(folder / INDEX)

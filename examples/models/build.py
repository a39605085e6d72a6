"""Build the three models, one after the other, and describe each for the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import threadpoolctl

from examples.models import digits, lane, magika_model
from examples.models.index import hash_file
from examples.models.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LICENSES = {"digits": "Apache-2.0", "lane": "Apache-2.0", "magika": "Apache-2.0"}
DIGITS_SHOWN = 4


def build_models(folder: Path, trees: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Write every model and its data below ``folder``; return the entries of the index."""
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
    return models


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

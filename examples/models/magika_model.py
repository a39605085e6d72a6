"""Take Google's file type model out of the installed magika wheel, with features of real files.

The model file stays as it is, byte for byte, so that its digest is the one in the wheel.
"""

from __future__ import annotations

import json
import shutil
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.models.file_types import agreement, extension
from examples.models.magika_features import (
    BEGIN_TOKENS,
    BLOCK_BYTES,
    END_TOKENS,
    FEWEST_BYTES,
    PADDING,
    read_trees,
)
from examples.models.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FILES = 512
LICENSE_FILE = Path(__file__).with_name("APACHE-2.0.txt")
NOTICE = """\
model.onnx and the names in labels.json are the model "{model}" of the package magika {version},
unchanged. Copyright 2024 Google LLC, licensed under the Apache License, Version 2.0; the text is
in LICENSE. Source: https://github.com/google/magika
"""
# What the rule in magika_features.py was written for.
EXPECTED_RULE = {
    "beg_size": BEGIN_TOKENS,
    "mid_size": 0,
    "end_size": END_TOKENS,
    "use_inputs_at_offsets": False,
    "min_file_size_for_dl": FEWEST_BYTES,
    "padding_token": PADDING,
    "block_size": BLOCK_BYTES,
}


class RuleChangedError(Exception):
    """The installed magika reads files in another way than this package does."""


def build(folder: Path, trees: Sequence[Path]) -> dict[str, float]:
    """Write model, labels, licence and features into ``folder``; return the rough agreement."""
    source = find_model()
    config = read_config(source)
    shutil.copyfile(source / "model.onnx", folder / "model.onnx")
    write_json(folder / "labels.json", config["target_labels_space"])
    shutil.copyfile(LICENSE_FILE, folder / "LICENSE")
    notice = NOTICE.format(model=source.name, version=metadata.version("magika"))
    (folder / "NOTICE").write_text(notice, encoding="utf-8")
    features, names, _ = read_trees(trees, FILES)
    np.save(folder / "files.npy", features)
    entries = [{"path": name, "extension": extension(name)} for name in names]
    write_json(folder / "files.json", entries)
    labels = classify(Session(folder / "model.onnx"), features, config["target_labels_space"])
    found = agreement(labels, names)
    return {"files": len(names), "judged": found.judged, "agreement": found.share}


def classify(session: Session, features: NDArray[np.int32], labels: Sequence[str]) -> list[str]:
    """Return the most probable label for each row of features [N,2048]."""
    if not len(features):
        return []
    scores = session.run(features)["target_label"]
    return [labels[index] for index in scores.argmax(axis=1)]


def find_model() -> Path:
    """Return the folder of the newest model in the installed wheel, without importing it."""
    spec = util.find_spec("magika")
    if spec is None or not spec.submodule_search_locations:
        message = "the package magika is not installed"
        raise ModuleNotFoundError(message)
    models = Path(spec.submodule_search_locations[0], "models")
    return max(path.parent for path in models.glob("*/model.onnx"))


def read_config(model: Path) -> dict[str, Any]:
    """Return the model's configuration after a check that its feature rule is the known one."""
    config: dict[str, Any] = json.loads((model / "config.min.json").read_text(encoding="utf-8"))
    found = {key: config.get(key) for key in EXPECTED_RULE}
    if found != EXPECTED_RULE:
        message = f"{model.name} has the rule {found}, not {EXPECTED_RULE}"
        raise RuleChangedError(message)
    return config


def write_json(path: Path, value: object) -> None:
    """Write JSON for readers and for diffs: one item a line."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

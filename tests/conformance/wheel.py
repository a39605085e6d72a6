"""ONNX's own conformance models and their data, out of the wheel of a released onnx package, which is fetched once."""

from __future__ import annotations

import random
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from dev.cache import cache_root, locked
from inference_worker import datatypes

# The last release whose wheel holds them. They are the same for every Python, so one that has such a wheel is named.
_RELEASE = ("onnx==1.16.2", "--python-version", "3.11")
_BASE = "onnx/backend/test/data/"
_LIGHT = "light"
FOLDERS = ("node", "simple", "pytorch-converted", "pytorch-operator", _LIGHT)
Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """One model. Those of `light` are whole networks without data of their own."""

    folder: str
    name: str

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def model(self) -> bytes:
        return archive().read(f"{_BASE}{self}.onnx" if self.folder == _LIGHT else f"{_BASE}{self}/model.onnx")

    @property
    def random(self) -> bool:
        """Whether the answers are others each time. Other models have the word in their names for their data, which is fixed."""
        return self.name.startswith(("test_bernoulli", "test_training_dropout"))

    def feeds(self) -> Feeds:
        """The inputs of its data set, in order; seeded ones where there is none."""
        graph = onnx.ModelProto.FromString(self.model).graph
        kept = {each.name for each in graph.initializer}
        wanted = [value for value in graph.input if value.name not in kept]
        if self.folder == _LIGHT:
            return {value.name: _drawn(value) for value in wanted}
        return {value.name: self._input(number, value) for number, value in enumerate(wanted)}

    def _input(self, number: int, value: onnx.ValueInfoProto) -> Array:
        data = archive().read(f"{_BASE}{self}/test_data_set_0/input_{number}.pb")
        array = numpy_helper.to_array(onnx.TensorProto.FromString(data))
        # The data sets have BF16 as UINT16.
        return array.view(datatypes.NUMPY["BF16"]) if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 else array


@cache
def archive() -> zipfile.ZipFile:
    """The wheel."""
    folder = cache_root() / "conformance"
    with locked("conformance"):
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *_RELEASE]
            subprocess.run([*command, "--dest", str(folder)], check=True, timeout=600)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


@cache
def cases() -> tuple[Case, ...]:
    """All of them, in one order."""
    paths = [
        name.removeprefix(_BASE).split("/") for name in archive().namelist() if name.startswith(_BASE) and name.endswith(".onnx")
    ]
    found = {Case(path[0], path[1].removesuffix(".onnx")) for path in paths if path[0] in FOLDERS}
    return tuple(sorted(found, key=str))


def sample(count: int, seed: int) -> tuple[Case, ...]:
    """So many of them, by a seed."""
    return tuple(random.Random(seed).sample(cases(), min(count, len(cases()))))


def _drawn(value: onnx.ValueInfoProto) -> Array:
    shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
    return np.random.default_rng(1).random(shape, dtype=np.float32)

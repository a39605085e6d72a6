"""The four models, and rows to feed them. All are made or taken from packages; nothing is fetched by name from a hub."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from bench.report import ROOT
from bench.worker.installs import HERE, packages

Tensor = NDArray[Any]
DATATYPES = {"tensor(float)": "FP32", "tensor(int32)": "INT32", "tensor(int64)": "INT64"}
_SEED = 11


@dataclass(frozen=True, slots=True)
class Model:
    """One ONNX file. `batch` is the largest number of rows in a run, the same for every server."""

    name: str
    path: Path
    batch: int
    rows: Mapping[str, Tensor]
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, str, tuple[int, ...]], ...]

    @property
    def batch_axes(self) -> dict[str, int | None]:
        """Where an input has its rows; None for one that is shared by all rows."""
        return {name: None if not array.ndim else 1 if name == "state" else 0 for name, array in self.rows.items()}


def session(path: Path) -> ort.InferenceSession:
    """ONNX Runtime as every side uses it: one thread, no spinning, no optimiser of our own."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def digits() -> Model:
    """A perceptron of 64-32-10: nearly all of a request is protocol."""
    folder = _examples() / "digits"
    return _model("digits", folder / "model.onnx", 32, dict(np.load(folder / "heldout.npz")))


def magika() -> Model:
    """Google's file type model: milliseconds a row, and batching hardly pays."""
    folder = _examples() / "magika"
    return _model("magika", folder / "model.onnx", 4, {"bytes": np.load(folder / "files.npy")})


def silero(count: int = 512) -> Model:
    """Voice activity: 0.1 ms a row, state with its rows on the second axis, one scalar shared by all."""
    path = packages(HERE / "models.txt") / "silero_vad" / "data" / "silero_vad_16k_op15.onnx"
    random = np.random.default_rng(_SEED)
    rows: dict[str, Tensor] = {
        "input": random.normal(0, 0.1, (count, 576)).astype(np.float32),
        "state": np.zeros((2, count, 128), np.float32),
        "sr": np.array(16000, np.int64),
    }
    return _model("silero", path, 32, rows)


def resnet(count: int = 16) -> Model:
    """ResNet-50 with made-up weights: a tenth of a second a row, one row a run."""
    import onnx

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_resnet50.onnx"
    random = np.random.default_rng(_SEED)
    return _model("resnet", path, 1, {"gpu_0/data_0": random.normal(0, 1, (count, 3, 224, 224)).astype(np.float32)})


def _model(name: str, path: Path, batch: int, rows: Mapping[str, Tensor]) -> Model:
    opened = session(path)
    inputs = tuple((port.name, DATATYPES[port.type], _trailing(port.shape)) for port in opened.get_inputs())
    outputs = tuple((port.name, DATATYPES[port.type], _trailing(port.shape)) for port in opened.get_outputs())
    return Model(name, path, batch, {port: rows[port] for port, _, _ in inputs}, inputs, outputs)


def _trailing(shape: list[int | str | None]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else -1 for size in shape[1:])


def _examples() -> Path:
    folder = ROOT / "build" / "examples"
    # Quick when nothing has changed; trains when something has.
    subprocess.run([sys.executable, "-m", "examples.models", str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder

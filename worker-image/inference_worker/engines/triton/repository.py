"""A model in the repository that worker and tritonserver share: its file, its configuration, and what runs it there."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError

VERSION = "1"
FACTS_FILE = "facts.json"
_PYTHON_MODEL = Path(__file__).with_name("python_model.py")


def write_model(
    root: Path,
    name: str,
    files: Mapping[str, bytes],
    *,
    platform: Literal["onnxruntime", "python"],
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    gpu: bool,
    parameters: Mapping[str, str],
) -> Path:
    """Write a model's files so that Triton may load it by its name; returns its version's folder. Raises WorkerError."""
    folder = root / name / VERSION
    text = configuration(name, platform=platform, inputs=inputs, outputs=outputs, gpu=gpu, parameters=parameters)
    try:
        folder.mkdir(parents=True)
        for file, data in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        if platform == "python":
            shutil.copyfile(_PYTHON_MODEL, folder / "model.py")
        (folder.parent / "config.pbtxt").write_text(text, encoding="utf-8")
    except OSError as error:
        remove_model(root, name)
        raise WorkerError(
            WorkerReason.REPOSITORY_UNWRITABLE,
            f"the model can't be written for Triton: {error.strerror} ({root}); its volume has to hold the model once more",
        ) from error
    return folder


def remove_model(root: Path, name: str) -> None:
    """Remove a model's files; it need not be there."""
    shutil.rmtree(root / name, ignore_errors=True)


def configuration(
    name: str,
    *,
    platform: Literal["onnxruntime", "python"],
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    gpu: bool,
    parameters: Mapping[str, str],
) -> str:
    """config.pbtxt. The worker's queue makes the batches: max_batch_size is 0, and what Triton sees are whole tensors.

    With a batch dimension of its own Triton would take no model whose rows are not the first axis of every input, and would put
    batches together that the queue had cut for a deadline.
    """
    lines = [
        f"name: {_quoted(name)}",
        f"backend: {_quoted(platform)}",
        *([f"default_model_filename: {_quoted('model.onnx')}"] if platform == "onnxruntime" else []),
        "max_batch_size: 0",
        f"version_policy {{ specific {{ versions: [ {VERSION} ] }} }}",
        *(_tensor("input", spec) for spec in inputs),
        *(_tensor("output", spec) for spec in outputs),
        # One instance: several runs at a time are a matter of the worker's runners, and one session serves them all.
        f"instance_group [ {{ kind: {'KIND_GPU' if gpu else 'KIND_CPU'} count: 1 }} ]",
        *(f"parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(value)} }} }}" for key, value in parameters.items()),
    ]
    return "\n".join(lines) + "\n"


def _tensor(kind: str, spec: TensorSpec) -> str:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    optional = " optional: true" if spec.optional else ""
    return f"{kind} [ {{ name: {_quoted(spec.name)} data_type: TYPE_{datatype} {_dims(spec.wire_shape)}{optional} }} ]"


def _dims(shape: Iterable[int]) -> str:
    sizes = ", ".join(map(str, shape))
    # Triton has no scalars: they travel as [1], and are made what they are on either side.
    return f"dims: [ {sizes or 1} ]"


def _quoted(text: str) -> str:
    """Protobuf's text form of a string: what is not plain goes by its bytes."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in text.encode()) + '"'


def facts(folder: Path) -> dict[str, str]:
    """What the model said of itself when it was loaded; empty when it said nothing."""
    try:
        found: dict[str, str] = json.loads((folder / FACTS_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found

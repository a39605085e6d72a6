"""ONNX's own conformance models, served by a real worker over HTTP and gRPC, answer as the bare runtime does.

The models come in the wheel of a released onnx package, of which one is fetched once (`make test-conformance SAMPLE=100`; 0 is all). What
the runtime can't load, a worker must refuse by name.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zipfile
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from onnx import numpy_helper
from tritonclient.utils import np_to_triton_dtype

from dev.cache import cache_root, locked
from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from tests.process.harness import Place, a_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The last release whose wheel holds them.
RELEASE = "onnx==1.16.2"
ASKED = int(os.environ.get("SAMPLE", "0"))
SEED = int(os.environ.get("SEED", "1"))
# Their answers are another each time.
RANDOM = ("bernoulli", "dropout", "random", "multinomial")
REFUSALS = {
    WorkerReason.MODEL_TYPE_UNSUPPORTED,
    WorkerReason.MODEL_OPERATOR_UNSUPPORTED,
    WorkerReason.MODEL_INVALID,
    WorkerReason.MODEL_TOO_NEW,
    WorkerReason.MODEL_LOCALE_MISSING,
}


@cache
def archive() -> zipfile.ZipFile:
    folder = cache_root() / "conformance"
    with locked("conformance"):
        if not list(folder.glob("*.whl")):
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                RELEASE,
                "-d",
                str(folder),
            ]
            subprocess.run(command, check=True, timeout=600)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def names() -> list[str]:
    if "SAMPLE" not in os.environ:
        return []
    folder = "onnx/backend/test/data/node/"
    found = sorted(
        name.removeprefix(folder).split("/")[0]
        for name in archive().namelist()
        if name.startswith(folder) and name.endswith("/model.onnx")
    )
    found = [name for name in found if not any(word in name for word in RANDOM)]
    return random.Random(SEED).sample(found, ASKED) if 0 < ASKED < len(found) else found


def feeds_of(name: str, model: onnx.ModelProto) -> dict[str, Any]:
    """The first data set's inputs, as far as they are tensors."""
    kept = {each.name for each in model.graph.initializer}
    wanted = [value.name for value in model.graph.input if value.name not in kept]
    base = f"onnx/backend/test/data/node/{name}/test_data_set_0/input_"
    return {
        each: numpy_helper.to_array(onnx.TensorProto.FromString(archive().read(f"{base}{number}.pb")))
        for number, each in enumerate(wanted)
    }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


def same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind in "OSU" or other.dtype.kind in "OSU":
        plain = [[v.decode() if isinstance(v, bytes) else str(v) for v in array.ravel()] for array in (one, other)]
        return one.shape == other.shape and plain[0] == plain[1]
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", names())
def test_a_served_model_answers_as_the_bare_runtime_does(place: Place, name: str) -> None:
    data = archive().read(f"onnx/backend/test/data/node/{name}/model.onnx")
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        kinds = {node.type for node in (*session.get_inputs(), *session.get_outputs())}
        loads = all(kind in datatypes.ONNX for kind in kinds) and session.get_inputs() != []
    except Exception:  # noqa: BLE001 -- the runtime has more fault classes than it documents
        loads = False
    worker = place.start(a_config(place.put("m.onnx", data)))
    if not loads:
        if not worker.running or not _ready(worker):
            ended = worker.ended()
            assert ended.said.reason in REFUSALS, ended.said
        return
    worker.wait_ready()
    feeds = feeds_of(name, onnx.ModelProto.FromString(data))
    try:
        expected = session.run(None, feeds)
    except Exception as error:  # noqa: BLE001 -- as above
        pytest.skip(f"the bare runtime refuses the set's own inputs: {error}"[:200])
    outputs = [node.name for node in session.get_outputs()]
    halves = {node.name for node in (*session.get_inputs(), *session.get_outputs()) if "bfloat16" in node.type}
    if halves:
        pytest.skip("the bare runtime's Python face has no bfloat16")
    for client, module in ((f"127.0.0.1:{worker.port}", over_http), (f"127.0.0.1:{worker.grpc_port}", over_grpc)):
        inputs = []
        for key, array in feeds.items():
            tensor = module.InferInput(key, list(array.shape), np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        with module.InferenceServerClient(client) as calls:
            result = calls.infer("net", inputs, outputs=[module.InferRequestedOutput(each) for each in outputs])
            for each, answer in zip(outputs, expected, strict=True):
                assert same(np.asarray(result.as_numpy(each)), np.asarray(answer)), (module.__name__, each)


def _ready(worker: Any) -> bool:
    try:
        worker.wait_ready()
    except AssertionError:
        return False
    return True

"""Models of more than 2 GB in a real worker: what protobuf can't hold is loaded from files beside, or refused by name.

They take 8 GB of memory, so they run only when they are asked for (`make test-large`). Their files have holes: on the disk they are small.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.callers import INFER
from tests.process.harness import Place, a_config, until
from tests.process.wire import infer_json, post

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH = 64
SECONDS = 600.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 1 << 30:
            path.unlink()


def beside(name: str, count: int, columns: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=models.FLOAT, dims=[WIDTH, columns], data_location=onnx.TensorProto.EXTERNAL)
    size = WIDTH * columns * 4
    for key, value in (("location", "m.onnx.data"), ("offset", str(count * size)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def put_model(folder: Path, weights: int, columns: int) -> None:
    """x [N, 64] -> y [N, 3]: sums of products with several weights, of whose columns only the last three are not zero."""
    bounds = {"begin": columns - 3, "end": columns, "axis": 1}
    nodes, parts = [], []
    for i in range(weights):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{i}"], [f"all{i}"]),
            helper.make_node("Slice", [f"all{i}", *bounds], [f"part{i}"]),
        ]
        parts.append(f"part{i}")
    nodes.append(helper.make_node("Sum", parts, ["y"]))
    initializers = [beside(f"w{i}", i, columns) for i in range(weights)]
    initializers += [numpy_helper.from_array(np.array([value]), name) for name, value in bounds.items()]
    x, y = models.tensor("x", models.FLOAT, ["N", WIDTH]), models.tensor("y", models.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    with (folder / "m.onnx.data").open("wb") as file:
        file.truncate(weights * WIDTH * columns * 4)
        for row in range(weights * WIDTH):
            file.seek(((row + 1) * columns - 3) * 4)
            file.write(np.array([1, row % WIDTH, -1], np.float32).tobytes())


def digest_of(folder: Path) -> str:
    """As `sha256sum m.onnx m.onnx.data | sha256sum` prints it."""
    lines = ""
    for name in ("m.onnx", "m.onnx.data"):
        with (folder / name).open("rb") as file:
            lines += f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n"
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


@pytest.mark.parametrize(("weights", "columns"), [(1, 9_000_000), (5, 2_000_000)], ids=["in one weight", "in five"])
def test_a_model_with_its_weights_beside_it_answers(place: Place, weights: int, columns: int) -> None:
    put_model(place.claim, weights, columns)
    assert (place.claim / "m.onnx.data").stat().st_size > 1 << 31
    worker = place.start(a_config("pvc://data/m.onnx", digest=digest_of(place.claim), batch_size=2))

    until(lambda: not worker.running or worker.answers("/v2/health/ready") == 200, "ready", seconds=SECONDS)

    assert worker.running, worker.log
    rows = np.random.default_rng(1).integers(-3, 4, (2, WIDTH)).astype(np.float32)
    truth = weights * rows @ np.stack([[1, row, -1] for row in range(WIDTH)])
    assert post(worker.port, INFER, infer_json(rows.tolist())).json["outputs"][0]["data"] == truth.ravel().tolist()


def test_a_model_in_one_file_is_refused_with_its_size_and_the_cure(place: Place) -> None:
    """protobuf reads no file of 2 GiB, and the runtime has no words for it."""
    head = models.identity()
    (place.claim / "m.onnx").write_bytes(head)
    # An unknown field of bytes, which fills the file: what any reader would have to skip.
    size = 2_300_000_000
    with (place.claim / "m.onnx").open("ab") as file:
        file.write(bytes([0xFA, 0x07]) + varint(size))
        file.truncate(file.tell() + size)

    ended = place.start(a_config("pvc://data/m.onnx")).ended(seconds=SECONDS)

    assert ended.said.reason is WorkerReason.MODEL_TOO_LARGE
    assert all(word in ended.said.message for word in (str((place.claim / "m.onnx").stat().st_size), "2147483647", "external"))


def varint(number: int) -> bytes:
    digits = [number >> shift & 127 for shift in range(0, number.bit_length(), 7)]
    return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])

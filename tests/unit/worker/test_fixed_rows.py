"""Models whose sizes are all fixed: the first one counts rows, or something else, and a batch may tell by its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from inference_protocol.messages import BatchTask, ModelSource, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker.batch.task import Task
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.warmup import warm_up
from tests.process.harness import answers_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CPU = ("CPUExecutionProvider",)


def a_model(nodes: Sequence[tuple[str, list[str], dict[str, Any]]], shape: Sequence[int | str], out: Sequence[int | str]) -> bytes:
    """Operators in a row, from x to y; the last one's output is y."""
    made, before = [], "x"
    for number, (kind, others, attributes) in enumerate(nodes):
        after = "y" if number == len(nodes) - 1 else f"t{number}"
        made.append(helper.make_node(kind, [before, *others], [after], **attributes))
        before = after
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [
            helper.make_tensor("places", TensorProto.FLOAT, (4, 1), [0, 1, 2, 3]),
            helper.make_tensor("one", TensorProto.FLOAT, (1,), [1]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


NO_ROWS = {
    "a softmax over the first dimension": a_model([("Softmax", [], {"axis": 0})], (4,), (4,)),
    "channels that are summed": a_model([("ReduceSum", [], {"keepdims": 0})], (3, 2, 2), ()),
    "channels that are normalised": a_model([("Softmax", [], {"axis": 0})], (3, 2, 2), (3, 2, 2)),
    "the largest of all": a_model([("ReduceMax", [], {"keepdims": 1, "axes": [0]}), ("Add", ["one"], {})], (4, 2), (1, 2)),
    "places that count": a_model([("Add", ["places"], {})], (4, 2), (4, 2)),
    "a norm over the first dimension": a_model([("LpNormalization", [], {"axis": 0, "p": 2})], (4, 2), (4, 2)),
}
ROWS = {
    "a batch size of its own": a_model([("Softmax", [], {"axis": 1})], (4, 3), (4, 3)),
    "one row": a_model([("Softmax", [], {"axis": 1})], (1, 3), (1, 3)),
}


SQUEEZED = a_model([("Squeeze", [], {})], ("N", 1), ("N",))


def run(data: bytes, root: Path, x: np.ndarray, *, batch: int = 4) -> np.ndarray:
    (root / "data").mkdir()
    np.save(root / "data" / "in.npy", x)
    engine = OnnxEngine(data, providers=CPU, threads=1)
    config = WorkerConfig("team", "job", "uid", 1, ModelSource(name="net", version="1", uri="pvc://data/m"), CPU, batch_size=batch)
    task = BatchTask(input_uri="pvc://data/in.npy", output_uri="pvc://data/out")
    Task(config, task, engine, warm_up(engine, batch), digest="sha256:m", root=root).run()
    found: np.ndarray = answers_in(root / "data" / "out")["y"]
    return found


@pytest.mark.parametrize("name", NO_ROWS)
def test_what_is_no_row_makes_a_whole_tensor_one_item(name: str, tmp_path: Path) -> None:
    data = NO_ROWS[name]
    session = onnxruntime.InferenceSession(data, providers=list(CPU))
    shape = session.get_inputs()[0].shape
    x = np.random.default_rng(1).standard_normal((5, *shape)).astype(np.float32)

    found = run(data, tmp_path, x)

    assert np.array_equal(found, np.stack([session.run(None, {"x": each})[0] for each in x]))


@pytest.mark.parametrize("name", ROWS)
def test_an_export_with_a_batch_size_of_its_own_still_has_rows(name: str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)

    assert np.allclose(run(ROWS[name], tmp_path, x), np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), atol=1e-6)


def test_an_answer_that_loses_its_row_where_it_is_alone_is_still_the_answer_to_its_item(tmp_path: Path) -> None:
    """Exporters write squeeze() without an axis: one row alone gives a number, and two give two (speechmos' plcmos)."""
    x = np.arange(5, dtype=np.float32).reshape(5, 1)

    assert run(SQUEEZED, tmp_path, x).ravel().tolist() == [0, 1, 2, 3, 4]


def refusing_zeros(nodes: Sequence[tuple[str, list[str], dict[str, Any]]]) -> bytes:
    """Rows of four, reshaped by a size that zeros make impossible."""
    guard = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Ceil", ["largest"], ["up"]),
        helper.make_node("Cast", ["up"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Min", ["whole", "unit"], ["least"]),
        # Zeros ask for the place before the first, twice over.
        helper.make_node("Sub", ["least", "unit"], ["before"]),
        helper.make_node("Add", ["before", "before"], ["place"]),
        helper.make_node("Gather", ["only", "place"], ["nought"]),
        helper.make_node("Sub", ["x", "nought"], ["start"]),
    ]
    made, before = [], "start"
    for number, (kind, others, attributes) in enumerate(nodes):
        after = "y" if number == len(nodes) - 1 else f"t{number}"
        made.append(helper.make_node(kind, [before, *others], [after], **attributes))
        before = after
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 3)) for name in "xy"]
    weights = [
        helper.make_tensor("unit", TensorProto.INT64, (), [1]),
        helper.make_tensor("only", TensorProto.FLOAT, (1,), [0]),
    ]
    graph = helper.make_graph([*guard, *made], "g", [values[0]], [values[1]], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def test_a_fixed_model_that_refuses_zeros_is_tried_with_its_first_items(tmp_path: Path) -> None:
    x = np.random.default_rng(1).random((8, 3)).astype(np.float32) + 1
    engine = OnnxEngine(refusing_zeros([("Softmax", [], {"axis": 0})]), providers=CPU, threads=1)
    assert "refused the zeros" in warm_up(engine, 4).layout.why

    with pytest.raises(WorkerError, match="does not count items") as caught:
        run(refusing_zeros([("Softmax", [], {"axis": 0})]), tmp_path, x)

    assert caught.value.reason is WorkerReason.INPUT_INVALID

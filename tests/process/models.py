"""Tiny ONNX models, built in memory: each shows one trait that a worker must cope with."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
INT64, STRING, BOOL = TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
BY_DATATYPE = {
    "BOOL": BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": INT64,
    "FP16": HALF,
    "BF16": TensorProto.BFLOAT16,
    "FP32": FLOAT,
    "FP64": DOUBLE,
    "BYTES": STRING,
}
Shape = list[int | str]


def tensor(name: str, kind: int, shape: Shape) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
) -> bytes:
    initializers = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def identity(kind: int = FLOAT, shape: Shape | None = None) -> bytes:
    """x -> y, unchanged."""
    shape = ["N", 2] if shape is None else shape
    return model([helper.make_node("Identity", ["x"], ["y"])], [tensor("x", kind, shape)], [tensor("y", kind, shape)])


def matmul(*, rows: int | None = None, width: int = 4, out: int = 3) -> bytes:
    """x [N, width] -> y [N, out]; every row's answer differs and depends on that row alone."""
    first: int | str = "N" if rows is None else rows
    weight = np.random.default_rng(7).standard_normal((width, out)).astype(np.float32)
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [tensor("x", FLOAT, [first, width])],
        [tensor("y", FLOAT, [first, out])],
        {"w": weight},
    )


def with_external_data() -> tuple[bytes, dict[str, bytes]]:
    """matmul() with its weights in a file beside it: the model's own file, and that one by its name."""
    made = ModelProto.FromString(matmul())
    (weight,) = made.graph.initializer
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    return made.SerializeToString(), {"weights.bin": data}


def slow(*, width: int = 64, steps: int = 60) -> bytes:
    """A chain of MatMuls that keeps its numbers: some hundred microseconds for each batch."""
    weight = np.linalg.qr(np.random.default_rng(3).standard_normal((width, width)))[0].astype(np.float32)
    names = ["x", *(f"t{i}" for i in range(steps - 1)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    return model(nodes, [tensor("x", FLOAT, ["N", width])], [tensor("y", FLOAT, ["N", width])], {"w": weight})


def endless() -> bytes:
    """x -> y, unchanged; a run with a value above 100 never ends."""
    above = helper.make_node("Greater", ["most", "limit"], ["on"])
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_again"]), helper.make_node("Identity", ["kept"], ["kept_again"])],
        "body",
        [tensor("i", INT64, []), tensor("was_on", BOOL, []), tensor("kept", FLOAT, ["N", 2])],
        [tensor("on_again", BOOL, []), tensor("kept_again", FLOAT, ["N", 2])],
    )
    most = helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)
    loop = helper.make_node("Loop", ["", "on", "x"], ["y"], body=body)
    limit = {"limit": np.array(100, np.float32)}
    return model([most, above, loop], [tensor("x", FLOAT, ["N", 2])], [tensor("y", FLOAT, ["N", 2])], limit)


def add(*, rows: int | None = None) -> bytes:
    """a, b -> total: two inputs with equal rows."""
    first: int | str = "N" if rows is None else rows
    return model(
        [helper.make_node("Add", ["a", "b"], ["total"])],
        [tensor("a", FLOAT, [first, 2]), tensor("b", FLOAT, [first, 2])],
        [tensor("total", FLOAT, [first, 2])],
    )


def two_outputs() -> bytes:
    """x -> same, negated."""
    return model(
        [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Neg", ["x"], ["negated"])],
        [tensor("x", FLOAT, ["N", 2])],
        [tensor("same", FLOAT, ["N", 2]), tensor("negated", FLOAT, ["N", 2])],
    )


def label() -> bytes:
    """x [N, 4] -> class [N], int64."""
    return model(
        [helper.make_node("ArgMax", ["x"], ["class"], axis=1, keepdims=0)],
        [tensor("x", FLOAT, ["N", 4])],
        [tensor("class", INT64, ["N"])],
    )


def named_label() -> bytes:
    """x [N, 4] -> text [N]: the class by name, as classifiers with string labels give it."""
    return model(
        [helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0), helper.make_node("Gather", ["names", "i"], ["text"])],
        [tensor("x", FLOAT, ["N", 4])],
        [tensor("text", STRING, ["N"])],
        {"names": np.array(["zero", "one", "two", "drei ✓"], dtype=object)},
    )


def column_sums() -> bytes:
    """x [N, 2] -> sums [2]: an output without a row for each item."""
    return model(
        [helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0)],
        [tensor("x", FLOAT, ["N", 2])],
        [tensor("sums", FLOAT, [2])],
        {"axes": np.array([0], dtype=np.int64)},
    )


def grand_total() -> bytes:
    """x [N, 2] -> total []: a scalar output."""
    return model(
        [helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0)],
        [tensor("x", FLOAT, ["N", 2])],
        [tensor("total", FLOAT, [])],
    )


def square_root() -> bytes:
    """x -> y: NaN where x is negative."""
    return model([helper.make_node("Sqrt", ["x"], ["y"])], [tensor("x", FLOAT, ["N", 2])], [tensor("y", FLOAT, ["N", 2])])


def scaled() -> bytes:
    """x [N, 2], factor [] -> y: a scalar input."""
    return model(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [tensor("x", FLOAT, ["N", 2]), tensor("factor", FLOAT, [])],
        [tensor("y", FLOAT, ["N", 2])],
    )


def column() -> bytes:
    """x [N, 3], k [] -> y [N]: the column that a scalar names."""
    return model(
        [helper.make_node("Gather", ["x", "k"], ["y"], axis=1)],
        [tensor("x", FLOAT, ["N", 3]), tensor("k", INT64, [])],
        [tensor("y", FLOAT, ["N"])],
    )


def constant() -> bytes:
    """A model that takes nothing."""
    value = numpy_helper.from_array(np.ones(1, dtype=np.float32))
    return model([helper.make_node("Constant", [], ["y"], value=value)], [], [tensor("y", FLOAT, [1])])


def sequence() -> bytes:
    """x -> a sequence of tensors, which the protocol has no form for."""
    out = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    return model([helper.make_node("SplitToSequence", ["x"], ["y"], axis=0)], [tensor("x", FLOAT, ["N", 2])], [out])


def renamed_output(name: str) -> bytes:
    """x [N, 2] -> an output of a name that may stand in somebody's way."""
    return model([helper.make_node("Identity", ["x"], [name])], [tensor("x", FLOAT, ["N", 2])], [tensor(name, FLOAT, ["N", 2])])


def gather() -> bytes:
    """i [N] -> y [N]: refuses indices beyond its ten entries when it runs, not when it is fed."""
    return model(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        [tensor("i", INT64, ["N"])],
        [tensor("y", FLOAT, ["N"])],
        {"table": np.arange(10, dtype=np.float32)},
    )
